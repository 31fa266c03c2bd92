"""How the files of a lake table are reached: one configuration, taken from the table, renewed
before its keys end.

Begin with ``table_storage``. ``keys_file`` carries renewed keys to executors.

Must not know: what the files contain, and py4j.
"""
