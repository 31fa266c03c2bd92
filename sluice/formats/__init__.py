"""Converts Fluss's formats to Arrow and back: types, batches, rows, keys, buckets. No I/O."""
