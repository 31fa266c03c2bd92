"""The logs of buckets: append, fetch, retention, recovery after a crash.

Begin with ``log``. ``manager`` opens and syncs all logs, ``recovery`` decides at a start what
became of damaged ones, ``writers`` stores a repeated batch once, ``fetch`` answers FetchLog.
"""
