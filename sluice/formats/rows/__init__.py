"""Fluss's row formats: all rows of a batch at once, to Arrow and back (docs/fluss/rows.md).

Begin with ``arrays``. ``plan`` has the numbers by which the loops read each column,
``column_memory`` the memory of Arrow columns, ``records`` the records of a batch.
"""
