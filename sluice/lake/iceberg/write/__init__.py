"""Writes the rows of one split as files that Iceberg accepts as its own. Runs on executors.

Begin with ``split_writer``. ``written_columns`` and ``arrow`` bring rows to the lake's columns and
types, ``partitioned_files`` divides them by the user's partition fields, ``compactor`` rewrites
files.

Must not know: Java.
"""
