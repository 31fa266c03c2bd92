"""Copies one split from its log to data files. Runs on executors; all here can be pickled.

Begin with ``split.copy_split``; ``keyed`` is the same for a table with a primary key.
``log_ranges`` reads a range and finds every gap in it. ``last_changes`` reduces a changelog to one
change of each key, in bounded memory: ``change_partitions``, ``key_hashes``, ``key_runs`` and
``spill`` serve it. ``parts`` divides a long window among executors.

Must not know: the plan of the round, its claim, and the lake's catalog.
"""
