"""Which rows of data files are deleted, and how a round deletes more. Runs on executors.

Begin with ``key_deletes``. ``position_finder`` finds rows by key, ``position_deletes`` writes their
positions, as delete files or ``deletion_vectors``; ``earlier_marks`` and ``live_rows`` read what is
deleted already.

Must not know: Java.
"""
