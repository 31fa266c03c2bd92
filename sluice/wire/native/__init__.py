"""Fluss's native protocol: the listener of a server and the transport of a client.

Begin with ``server`` and ``transport``. ``connection`` is one of a listener, ``link`` one of a
client, ``workers`` and ``memory`` what all connections of a listener share, ``sasl`` the login.
"""
