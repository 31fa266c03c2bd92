"""KV batches, stored values, KV snapshots and RocksDB's files (docs/fluss/kv-batches.md).

Begin with ``value_batch``. ``sst_table`` and ``rocksdb_manifest`` read RocksDB's files as bytes.
"""
