"""The task instance that ran a round, as its history keeps it. Does not import Airflow."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any, TypedDict
from urllib.parse import quote, unquote

from sluice.rounds.records.packs import running_application
from sluice_airflow.claims.claimed_again import started_try
from sluice_airflow.claims.unreadable import logged

_READABLE = ":+@,"
"""Characters of run ids that stay as they are."""


def is_manual(context: Any) -> bool:
    """Whether a person or a program triggered the run of a task, and not its schedule."""
    run_type = context["dag_run"].run_type
    return getattr(run_type, "value", run_type) in ("manual", "operator_triggered")


@dataclass(frozen=True, slots=True)
class TaskRun:
    """One try of a task instance."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    """-1: the task is not mapped."""
    try_number: int

    @classmethod
    def of(cls, ti: Any) -> TaskRun:
        """The try that runs in this process."""
        return cls(ti.dag_id, str(ti.run_id), ti.task_id, int(ti.map_index), int(ti.try_number))

    def __str__(self) -> str:
        """``DAG/RUN/TASK/MAP INDEX/TRY``, each part percent-encoded."""
        return "/".join(quote(str(part), safe=_READABLE) for part in astuple(self))

    @classmethod
    def parse(cls, text: str | None) -> TaskRun | None:
        """The task run in the text of a history; None if it has another form."""
        try:
            dag_id, run_id, task_id, map_index, try_number = (text or "").split("/")
            names = unquote(dag_id), unquote(run_id), unquote(task_id)
            return cls(*names, int(map_index), int(try_number)) if all(names) else None
        except ValueError:
            return None


class RanBy(TypedDict):
    """What a round's details say of who ran it."""

    airflow_task: str | None
    spark_application: str | None


def ran_by(plan_uri: str) -> RanBy:
    """Who ran the round of a plan: the last try of the tier task that began it.

    A lost driver or task leaves its files, too. What cannot be read is None.
    """
    found = RanBy(airflow_task=None, spark_application=None)
    # Any error of a file system: a report does not fail without a link.
    with logged(f"read who ran the round of {plan_uri}", Exception):
        attempt, task = started_try(plan_uri)
        found["airflow_task"] = task
        if attempt and (application := running_application(plan_uri, attempt)) is not None:
            found["spark_application"] = application.id
    return found
