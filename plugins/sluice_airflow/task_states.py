"""States of Airflow's task instances."""

from __future__ import annotations

STARTED = frozenset(
    {"running", "success", "failed", "skipped", "upstream_failed", "removed", "restarting"}
)
"""States of a task that has started, or that will not start."""
