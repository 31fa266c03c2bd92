"""Reads and writes primary-key tables: look-ups, scans, KV snapshots, upserts.

Begin with ``reader``, ``scanner``, ``snapshot_reader`` and ``writer``. ``sst_values`` reads the
files of a KV snapshot, ``stored_rows`` decodes them.
"""
