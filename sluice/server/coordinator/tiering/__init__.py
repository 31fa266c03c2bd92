"""The coordinator's side of tiering: states, heartbeats, lake snapshots, lag.

Begin with ``tiering``, which adds clock, lock and store to ``sluice/statuses``. ``lake_snapshots``
registers what rounds commit, ``rounds`` keeps their history, ``auto_partitioner`` makes partitions
by time.
"""
