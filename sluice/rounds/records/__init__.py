"""The small files of a run under ``work_uri``, by which drivers and tasks tell each other what
happened.

Begin with ``files``: the folder of a round, its plan, its result, its failure. ``packs`` has the
tables of one Spark application. Each file appears complete, under its name, or not at all.

Must not know: clusters, lakes, and how a round works.
"""
