"""The list of tables, and one table: search, buckets, lake snapshots.

Begin with ``list_reads`` and ``table_reads``, the routes. ``selection`` filters and orders
without I/O.
"""
