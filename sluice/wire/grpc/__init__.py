"""gRPC: the listener of a server and the transport of a client.

Begin with ``server`` and ``transport``.
"""
