"""Parquet files by pyarrow: writes files of a target size, and opens them on executors.

Begin with ``writer``. ``encodings`` chooses how each column is stored.

Must not know: Iceberg.
"""
