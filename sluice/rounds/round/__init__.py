"""An ordinary round.

Begin with ``round.run_round``: recover, plan, copy, commit. ``compaction`` is the step that an
ordinary round may have besides.
"""
