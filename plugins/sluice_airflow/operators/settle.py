"""Reports what became of the tables of a pack, and updates their assets."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sluice_airflow.airflow_api.api_server import RetriedIfAway, fails_at_once
from sluice_airflow.airflow_api.task_states import state_of
from sluice_airflow.assets import add_events, has_landed, lake_tables
from sluice_airflow.claims.packs import LABEL_MAX, PACK_LABEL, Pack
from sluice_airflow.config.settings import connection_id
from sluice_airflow.hooks.fluss import FlussHook
from sluice_airflow.outcomes import account
from sluice_airflow.outcomes import settle as settling

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)

VERDICTS = "verdicts"
"""XCom key: the reports of the tables of the pack."""


class SluiceSettleOperator(RetriedIfAway):
    """Reports outcomes to the coordinator that the tier task has not, and releases KV snapshots.

    A teardown of the tasks that open the run and claim its tables. It reads the files that the
    Spark driver left, whatever became of the tier task. The asset of each table that was tiered
    gets an event.

    :param entry: the pack, as for the tier task. (templated)
    :param fluss_conn_id: connection of type fluss; None: as the section [sluice] says.
    :param tier_task_id: id of the task that tiers the pack.
    """

    template_fields: Sequence[str] = ("tables", "entry")

    def __init__(
        self,
        *,
        entry: Any,
        fluss_conn_id: str | None = None,
        tier_task_id: str = "tier",
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("map_index_template", PACK_LABEL)
        kwargs.setdefault("outlets", [lake_tables(fluss_conn_id)])
        super().__init__(**kwargs)
        self.entry: Pack = entry
        self.tables = ""
        self.fluss_conn_id = connection_id(fluss_conn_id)
        self.tier_task_id = tier_task_id

    def _do_render_template_fields(self, parent: Any, *args: Any, **kwargs: Any) -> None:
        """As that of SluiceTierOperator, also if the operator itself is expanded."""
        super()._do_render_template_fields(parent, *args, **kwargs)
        if parent is self:
            self.tables = ", ".join(table["table"] for table in self.entry["tables"])

    @fails_at_once
    def execute(self, context: Context) -> None:
        """:raises FlussError, OSError: tables could not be reported, and none was tiered.

        drop_lease reports them. If others were tiered, this task succeeds, because Airflow sends
        no asset events of a task that fails.
        """
        ti = context["ti"]
        context["label"] = self.entry["label"]
        state = state_of(ti, self.tier_task_id, ti.map_index)
        results, failures = (
            ti.xcom_pull(task_ids=self.tier_task_id, key=key, map_indexes=ti.map_index) or {}
            for key in ("results", "failures")
        )
        with FlussHook(self.fluss_conn_id).get_client() as client:
            verdicts, errors = settling.settle_pack(
                client, self.entry["tables"], results, failures, state
            )
        failed = sum(verdict.reported == "failed" for verdict in verdicts)
        context["label"] = label_after(self.entry["label"], failed, len(self.entry["tables"]))
        for verdict in verdicts:
            has_failed = verdict.reported == "failed"
            log.log(logging.WARNING if has_failed else logging.INFO, "%s", verdict)
        told = [
            {**asdict(verdict), "reason": verdict.reason[: account.REASON_MAX]}
            for verdict in verdicts
        ]
        ti.xcom_push(key=VERDICTS, value=told)  # also if this task fails
        add_events(context, self.fluss_conn_id, verdicts)
        if errors and not any(map(has_landed, verdicts)):
            raise errors[0]


def label_after(label: str, failed: int, tables: int) -> str:
    """The label of a task that succeeds although tables have failed."""
    if not failed:
        return label
    end = " (failed)" if tables == 1 else f" ({failed} failed)"
    return label[: LABEL_MAX - len(end)] + end
