"""Plans a round: one split for each bucket whose log has grown since the registered offsets.

Begin with ``plan.make_plan``. ``dropped`` and ``noted_drops`` are about partitions that somebody
drops meanwhile, ``keyed_options`` about tables with a primary key, ``position_lookups`` about the
budget for finding the rows that a round deletes.

Must not know: how a split is copied, and how the lake is written.
"""
