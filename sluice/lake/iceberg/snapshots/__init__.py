"""What a table's metadata says: its history, live files, stored files, columns.

Begin with ``history``. ``live_files`` has the files in which deleted rows are looked up,
``tiering_note`` the newest tiering snapshot where a catalog keeps no history.
"""
