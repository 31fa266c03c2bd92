"""Keys: their encodings, the buckets and partitions that they choose
(docs/fluss/keys-and-buckets.md).

Begin with ``bucketing``. ``keys`` has Fluss's three encoders, ``primary_keys`` and ``key_rows``
those of KV stores.
"""
