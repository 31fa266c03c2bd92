"""Commands that write or show rows of users: append, delete, lookup, sql.

Begin with ``append``. Rows are data: nothing is masked in them, and no value changes on its way.
"""
