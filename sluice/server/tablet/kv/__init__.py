"""Primary-key tables: a store and a log for each bucket, merges, snapshots, scans.

Begin with ``tablet``. ``store`` is RocksDB with the log offset that it has reached, ``merge``
writes the changelog, ``snapshotter`` uploads snapshots, ``scan_manager`` has the scan sessions
(rules: ``sluice/scans``).
"""
