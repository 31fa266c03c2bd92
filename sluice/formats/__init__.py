"""Bytes <-> Arrow: types, schemas, log batches, rows, keys, bucketing. No I/O."""
