"""Fails what follows a task group if a table that its run must tier is not in the lake."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sluice_airflow.airflow_api.airflow_names import AirflowFailException
from sluice_airflow.airflow_api.api_server import RetriedIfAway, fails_at_once
from sluice_airflow.claims.packs import Pack, tables_of
from sluice_airflow.operators.acquire import ACCOUNT, ERROR
from sluice_airflow.outcomes import account
from sluice_airflow.outcomes import settle as settling

if TYPE_CHECKING:
    from airflow.sdk import Context


class SluiceCheckOperator(RetriedIfAway):
    """Succeeds if the run has tiered what it was asked for, also if nothing was new.

    The last ordinary task of a group: nothing can follow a teardown. It reads the files that the
    Spark drivers left, and claims, reports and releases nothing.

    :param acquire_task_id: id of the task that claims.
    """

    template_fields: Sequence[str] = ()

    def __init__(self, *, acquire_task_id: str = "acquire_lease", **kwargs: Any) -> None:
        kwargs.setdefault("trigger_rule", "all_done")
        super().__init__(**kwargs)
        self.acquire_task_id = acquire_task_id

    @fails_at_once
    def execute(self, context: Context) -> None:
        """:raises AirflowFailException: names the tables that were not tiered, and the reasons."""
        ti = context["ti"]
        packs: list[Pack] | None = ti.xcom_pull(task_ids=self.acquire_task_id)
        if packs is None:
            why = ti.xcom_pull(task_ids=self.acquire_task_id, key=ERROR) or "see its log"
            raise AirflowFailException(f"no table was claimed by {self.acquire_task_id}: {why}")
        before = ti.xcom_pull(task_ids=self.acquire_task_id, key=ACCOUNT) or {}
        entries = tables_of(packs)
        told = list(filter(None, map(settling.unsettled, entries)))
        names = [str(entry["table"]) for entry in entries]
        found = account.complete(before.get("tables", ()), names, told, [])
        self.log.info("%s", "\n".join([account.summary(found, {}), *account.lines(found)]))
        more = sum(before.get("counts", {}).values())
        if why := account.error(found, before.get("wanted", ()), more):
            raise AirflowFailException(why)
