"""Labels of mapped tasks: the names of a pack's tables in place of a bare index."""

PACK_LABEL = "{{ label | default(task.entry['label']) }}"
"""Template. Before the task starts, the name comes from entry. Airflow 3.1 has only the value that
the running task sets."""
