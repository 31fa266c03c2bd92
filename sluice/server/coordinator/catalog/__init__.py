"""Databases, tables, schemas and partitions, and the rules for them.

Begin with ``catalog``. The rules have no state: ``descriptor_rules`` fills in defaults, ``options``
says which may change, the others are about primary keys, lakes, bucket counts and partitions by
time.
"""
