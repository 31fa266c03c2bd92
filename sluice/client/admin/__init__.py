"""Administration of a cluster: databases, tables, partitions, offsets, lake snapshots.

Begin with ``admin.Admin``. ``schemas`` keeps the schemas of a table's rows, ``missing_leaders``
says for all commands which tables have buckets without a leader.

Must not know: rows.
"""
