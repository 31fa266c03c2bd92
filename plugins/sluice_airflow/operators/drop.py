"""Ends a run: releases what it still holds, and says what became of each table."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sluice.masking import mask
from sluice.model import TablePath
from sluice_airflow.acquire.requests import statuses_of
from sluice_airflow.airflow_api.airflow_names import AirflowFailException
from sluice_airflow.airflow_api.api_server import RetriedIfAway, fails_at_once
from sluice_airflow.airflow_api.task_states import state_of, states_of
from sluice_airflow.claims.claims import ClaimedTable
from sluice_airflow.claims.packs import Pack, tables_of
from sluice_airflow.config.settings import connection_id
from sluice_airflow.hooks.fluss import FlussHook
from sluice_airflow.operators.acquire import ACCOUNT, ERROR
from sluice_airflow.operators.keep import end_keeper
from sluice_airflow.operators.settle import VERDICTS
from sluice_airflow.outcomes import account
from sluice_airflow.outcomes import settle as settling
from sluice_airflow.outcomes.verdict import Verdict

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)

ATTEMPTS_TIMEOUT_MS = 10_000
"""The account does not wait longer for the times of next attempts."""


class SluiceDropOperator(RetriedIfAway):
    """Releases all claims and the lease of a run. Fails if a table was not tiered.

    A teardown of the tasks that open the run and claim its tables, with
    ``on_failure_fail_dagrun=True``. Its log and its XCom ``account`` have what became of each table
    that the run was asked for.

    :param lease_id: what :class:`SluiceOpenOperator` returned. (templated)
    :param fluss_conn_id: connection of type fluss; None: as the section [sluice] says.
    :param acquire_task_id: id of the task that claims.
    :param tier_task_id: id of the mapped task that tiers.
    :param settle_task_id: id of the mapped task that reports.
    :param keep_task_id: id of the task that keeps waiting claims.
    """

    template_fields: Sequence[str] = ("lease_id",)

    def __init__(
        self,
        *,
        lease_id: Any,
        fluss_conn_id: str | None = None,
        acquire_task_id: str = "acquire_lease",
        tier_task_id: str = "tier",
        settle_task_id: str = "settle",
        keep_task_id: str = "keep_claims",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.lease_id = lease_id
        self.fluss_conn_id = connection_id(fluss_conn_id)
        self.acquire_task_id = acquire_task_id
        self.tier_task_id = tier_task_id
        self.settle_task_id = settle_task_id
        self.keep_task_id = keep_task_id

    @fails_at_once
    def execute(self, context: Context) -> None:
        """:raises AirflowFailException: names the tables that were not tiered, and the reasons."""
        ti = context["ti"]
        found_packs: list[Pack] | None = ti.xcom_pull(task_ids=self.acquire_task_id)
        packs = found_packs or []
        acquired = found_packs is not None
        # None: it may work on.
        why = None if acquired else ti.xcom_pull(task_ids=self.acquire_task_id, key=ERROR)
        entries = tables_of(packs)
        end_keeper(ti, self.keep_task_id)  # first: until it has ended, it may lease snapshots
        hook = FlussHook(self.fluss_conn_id)
        work_uri = hook.config().require_work_uri()
        with hook.get_client() as client:
            # The result counts, not the state: a task that is marked as success has none.
            verdicts = settling.drop(
                client, work_uri, self.lease_id, entries, acquired=acquired or bool(why)
            )
        for verdict in verdicts:
            log.warning("%s", verdict)
        self._check_acquired(state_of(ti, self.acquire_task_id), acquired, why)
        told = self._verdicts(ti, packs, entries, verdicts)
        before = ti.xcom_pull(task_ids=self.acquire_task_id, key=ACCOUNT) or {}
        found = account.complete(
            self._unclaimed(before, work_uri),
            [str(entry["table"]) for entry in entries],
            told,
            verdicts,
        )
        counts = before.get("counts", {})
        self._tell_attempts(hook, found)
        tell_account(ti, found, counts)
        if why := account.error(found, before.get("wanted", ()), sum(counts.values())):
            raise AirflowFailException(why)
        states = states_of(ti, self.tier_task_id).values()
        ended = [state for state in states if state not in ("success", "removed")]
        if ended and entries:
            raise AirflowFailException(
                f"all tables were tiered, but {len(ended)} of {len(packs)} tier tasks did not"
                " succeed; see their logs"
            )

    def _check_acquired(self, state: str | None, acquired: bool, why: str | None) -> None:
        """:raises AirflowFailException: the task that claims has failed, or has no result."""
        if state == "success" and acquired:
            return
        if state == "success":
            why = "a user marked it before it had claimed tables"
        ended = f"the task {self.acquire_task_id} ended as {state}"
        raise AirflowFailException(f"no table was tiered: {ended}: {why or 'see its log'}")

    def _verdicts(
        self,
        ti: Any,
        packs: Sequence[Pack],
        entries: Sequence[ClaimedTable],
        own: Sequence[Verdict],
    ) -> list[Verdict]:
        """What the settle tasks have reported, and what the files of the other tables say.

        Trust the result, not the state: a tier marked success by hand has none.

        :param own: the reports of this task.
        """
        indexes = list(range(len(packs)))
        pull = {"task_ids": self.settle_task_id, "key": VERDICTS, "map_indexes": indexes}
        settled = ti.xcom_pull(**pull) if packs else None
        told = [Verdict(**verdict) for found in settled or () for verdict in found or ()]
        silent = {str(entry["table"]): entry for entry in entries}
        for verdict in (*told, *own):
            silent.pop(verdict.table, None)
        return told + [*filter(None, map(settling.unsettled, silent.values()))]

    def _tell_attempts(self, hook: FlussHook, found: Sequence[account.TableAccount]) -> None:
        failing = [one["table"] for one in found if one["became"] in account.FAILING]
        if not failing:
            return
        paths = [TablePath.parse(table) for table in failing]
        try:
            with hook.get_client(ATTEMPTS_TIMEOUT_MS) as client:
                account.tell_attempts(found, statuses_of(client, paths), int(time.time() * 1000))
        except Exception as error:  # the account is worth more than these times
            log.info("cannot read when the tables are due again: %s", mask(str(error)))

    def _unclaimed(self, before: dict[str, Any], work_uri: str) -> list[account.TableAccount]:
        """The account of the tables that are in no pack."""
        found: dict[str, account.TableAccount]
        found = {one["table"]: one for one in before.get("tables", ())}
        if before.get("again"):  # a user may have cleared the run
            names = [name for name, one in found.items() if one["became"] in account.UNTOUCHED]
            if names:
                for verdict in settling.tiered_before(work_uri, self.lease_id, names):
                    found[verdict.table] = account.of_verdict(verdict)
        return list(found.values())


def tell_account(ti: Any, found: list[account.TableAccount], counts: dict[str, int]) -> None:
    """Logs what became of each table, and pushes it.

    :param counts: how many more tables became what, of which no name is known.
    """
    summary = account.summary(found, counts)
    log.info("%s", "\n".join([summary, *account.lines(found)]))
    shown = found[: account.SHOWN_MAX]
    ti.xcom_push(key=ACCOUNT, value={"summary": summary, "tables": shown})
