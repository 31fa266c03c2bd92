"""States of Airflow's task instances."""

from __future__ import annotations

from typing import Any

ENDED = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})
STARTED = ENDED | {"running", "restarting"}
"""States of a task that has started, or that will not start."""


def states_of(ti: Any, task_id: str) -> dict[str, str | None]:
    """Returns the states of a task of the run of ``ti``. The key of a mapped task is TASK_INDEX."""
    found = ti.get_task_states(dag_id=ti.dag_id, run_ids=[ti.run_id], task_ids=[task_id])
    return dict(found.get(ti.run_id, {}))


def mapped_states_of(ti: Any, task_id: str) -> dict[int, str | None]:
    """Returns the states of the mapped instances of a task of the run of ``ti``, by index."""
    prefix = f"{task_id}_"
    return {
        int(name.removeprefix(prefix)): state
        for name, state in states_of(ti, task_id).items()
        if name.startswith(prefix)
    }


def state_of(ti: Any, task_id: str, map_index: int = -1) -> str | None:
    """Returns the state of a task of the run of ``ti``, or of one of its mapped instances.

    A task whose run a user marked before it was expanded has no instances: its own state counts.
    """
    found = states_of(ti, task_id)
    return (
        found.get(task_id)
        if map_index < 0
        else found.get(f"{task_id}_{map_index}", found.get(task_id))
    )
