"""The connection to a cluster: addresses, transports, leaders of buckets, retries.

Begin with ``connection.Connection``, which all other rooms of the client call. ``retry`` says when
a call is sent again, ``remote_files`` opens what Fluss has moved to its remote storage.

Must not know: what a call means.
"""
