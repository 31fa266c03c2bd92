"""Reads and writes logs: Arrow record batches with offsets and timestamps.

Begin with ``reader`` and ``writer``. ``fetches`` asks several buckets in one request,
``remote_segments`` reads what Fluss has moved to its remote storage.
"""
