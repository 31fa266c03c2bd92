"""The values that the steps of a round pass to each other, and the Protocols of what is around it.

Begin with ``types`` (split, result, snapshot), then ``ports`` (cluster, lake, lake table, runner).
``attempt`` is what one attempt of a round carries from step to step. ``lake_files`` has the files
that splits write, ``history`` and ``expiry`` the snapshots of a lake table, ``limits`` when a round
ends early, ``reasons`` what people read of an error.

Must not know: which step makes or uses a value.
"""
