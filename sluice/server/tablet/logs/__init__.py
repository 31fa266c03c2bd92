"""The logs of buckets: append, fetch, retention, recovery after a crash.

Begin with ``log``. A log is a folder of files of batches (``segment``), each with a record of what
was synced (``synced_batches``). ``manager`` opens and syncs all logs, ``recovery`` judges at a
start what is damaged, ``damage`` says so and gives it up, ``writers`` stores a repeated batch once,
``fetch`` answers FetchLog.
"""
