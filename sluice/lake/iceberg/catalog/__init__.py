"""Iceberg's Java API over py4j, and a table as its catalog has loaded it.

Begin with ``java`` (errors, callbacks, collections) and ``loaded_table``. ``file_io`` reads how the
table's FileIO reaches its files, ``write_check`` tries to write as rounds do.
"""
