"""The coordinator's calls: requests to the rooms beside it, and their answers.

Begin with ``catalog_calls`` and ``tiering_calls``. A call has no rule of its own.
"""
