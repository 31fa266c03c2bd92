"""Commands that make and list tables: create-table, create-lake-table, tables.

Begin with ``create_table``. ``schema_text`` and ``type_text`` read a schema as a user writes it.
"""
