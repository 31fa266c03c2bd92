"""What became of the tables of a run, and how that is told. Does not import Airflow, except for
links.

Begin with ``settle``, which reports to the coordinator: every function may be repeated. ``account``
says what became of each table that the run was asked for; ``lineage``, ``links`` and
``failed_start`` tell others.

Must not know: operators, and how drivers are started.
"""
