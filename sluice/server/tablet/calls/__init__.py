"""The tablet's calls: requests to the rooms beside it, and their answers.

Begin with ``log_calls`` and ``kv_calls``. A call has no rule of its own.
"""
