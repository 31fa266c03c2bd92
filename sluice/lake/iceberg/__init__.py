"""Iceberg: the catalog and commits by its Java API, data files by pyarrow.

Begin with ``lake.IcebergLake`` and ``table.IcebergTable``, which are ``Lake`` and ``LakeTable`` of
``sluice/rounds/values/ports.py``. Below them:

- ``catalog``: Java over py4j, and a table as its catalog has loaded it.
- ``deletes``, ``write``: what executors do. No Java.
- ``snapshots``: what a table's metadata says: history, live files, columns.
- ``commit``: Iceberg's updates, and the fence.
- ``upkeep``: expiry and maintenance.

What a lake table must look like is in ``sluice/iceberg_rules``.
"""
