"""Begins further rounds of tables in the same try of the tier task. Does not import Airflow."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from sluice.client.tiering.heartbeats import Heartbeats
from sluice.errors import RoundsNotEnough, SluiceError
from sluice.masking import mask
from sluice.model import Reason, TablePath
from sluice.rounds.records.json_files import read_json
from sluice.rounds.records.plan_file import PlanFile, claim_of
from sluice.rounds.records.result import RoundFailure, RoundResult
from sluice.rounds.records.run_names import RunNames
from sluice_airflow.acquire.acquire import acquire_again
from sluice_airflow.acquire.due_again import FINAL, DueAgain
from sluice_airflow.claims.claimed_again import is_ended, mark_started, replace_claim
from sluice_airflow.claims.claims import ClaimedTable
from sluice_airflow.config.connection import FlussConnection
from sluice_airflow.outcomes.account import HELD, TableAccount
from sluice_airflow.tier.reports import report
from sluice_airflow.tier.tried_table import TriedTable

if TYPE_CHECKING:
    from sluice.client import Client

log = logging.getLogger(__name__)

ROUNDS_MAX = 100
"""Most rounds of one table in one try."""
CLAIMS_LOST_MAX = 3
"""How often one try claims a table again whose claim it has lost."""
DUE_S = 30.0
"""How long to wait until the coordinator assigns a table for its next round, and for the round of
another worker if the table must reach an end."""
POLL_S = 1.0


class NextRounds:
    """Claims again what a try has not finished: lost claims, and tables that must reach an end.

    A table must reach an end if a run waits for it (``PlanFile.until``), and a limit has ended its
    round early. A table that waits, for instance because its worker was considered lost, is made
    due (:class:`DueAgain`).
    """

    def __init__(
        self,
        client: Client,
        connection: FlussConnection,
        lease_id: str,
        heartbeats: Heartbeats,
        is_killed: Callable[[], bool] = lambda: False,
        due_s: float = DUE_S,
        ended_before: Collection[str] = (),
    ) -> None:
        """:param is_killed: whether the task must end.
        :param due_s: see ``DUE_S``.
        :param ended_before: the plans whose claims other tasks of the run had ended before this
            try. A claim that they end during the try stays ended: a user has stopped the table.
        """
        self._client = client
        self._connection = connection
        self._lease_id = lease_id
        self._heartbeats = heartbeats
        self._is_killed = is_killed
        self._due_s = due_s
        self._ended_before = ended_before
        self._due = DueAgain(client, lease_id, RunNames(connection.work_uri).of)
        self._lost: dict[TablePath, int] = {}
        self._given_up: set[str] = set()

    def begin(self, tables: Sequence[TriedTable], attempt: str) -> list[TriedTable]:
        """Claims tables for their next round. Returns those that have a new claim.

        A table that must reach an end and gets no claim in time has failed. One whose claim was
        lost keeps that outcome, with a note.

        :param attempt: the id of the files of the next rounds.
        """
        for table in tables:
            if _must_go_on(table) and not _advances(table):
                table.fail_with(RoundsNotEnough(_not_reached(table)))
        waiting = {table.claim.path: table for table in tables if self._wants(table)}
        begun: list[TriedTable] = []
        why: dict[TablePath, TableAccount] = {}
        until, pause_s = time.monotonic() + self._due_s, POLL_S
        while waiting and not self._is_killed():
            entries, idle, refused = self._acquire(self._reported(waiting))
            for table in [waiting.pop(path) for path in idle if path in waiting]:
                table.end_idle()
            for path in [path for path in refused if path in waiting]:
                waiting.pop(path).fail(RoundFailure(refused[path]))
            for entry in entries:
                table = waiting.pop(claim_of(entry).path)
                # The links between the claims are those that the keeper of the run makes.
                replace_claim(table.plan_uri, entry)
                mark_started(entry["plan_uri"], attempt, table.airflow_task)
                table.next_round(entry, attempt)
                begun.append(table)
                log.info("%s: round %d of this try", table.name, table.rounds)
            why |= self._make_due(waiting)
            for path in [path for path in waiting if _is_hopeless(waiting[path], why.get(path))]:
                self._give_up(waiting.pop(path), why[path])
            if not waiting or time.monotonic() >= until:
                break
            time.sleep(pause_s)
            pause_s *= 2  # on Apache Fluss, each attempt claims all tables for a moment
        for path, table in waiting.items():
            self._give_up(table, why.get(path))
        return begun

    def _make_due(self, waiting: Mapping[TablePath, TriedTable]) -> dict[TablePath, TableAccount]:
        """Makes tables due that have no claim. Returns why they have none."""
        known = [table for table in waiting.values() if table.is_lost or table.is_reported]
        wanted = {table.claim.path for table in known if table.entry.get("must_reach_end")}
        return self._due.ask([table.claim for table in known], wanted) if known else {}

    def _give_up(self, table: TriedTable, why: TableAccount | None) -> None:
        text = f"the coordinator did not assign the table within {self._due_s:.0f} s"
        if self._is_killed():
            text = "the task was stopped"
        elif why is not None:
            text = f"{why['became']}: {why['text']}"
        log.warning("%s: not claimed again: %s", table.name, text)
        self._given_up.add(table.name)
        if table.is_lost:
            table.note_first(f"not claimed again: {text}")
        else:
            table.fail_with(RoundsNotEnough(_not_reached(table, text)))

    def _reported(self, waiting: dict[TablePath, TriedTable]) -> dict[TablePath, TriedTable]:
        """The tables whose last round the coordinator knows: only these can be claimed again."""
        known, is_away = {}, False
        for path, table in waiting.items():
            result = table.outcome
            assert isinstance(result, RoundResult)
            if not table.is_lost and not table.is_reported:
                if is_away:
                    continue
                table.is_reported = report(self._client, table)
                is_away = not table.is_reported  # not one time limit for each table
            if table.is_lost or table.is_reported:  # there is no report of a lost claim
                known[path] = table
        return known

    def _acquire(
        self, waiting: dict[TablePath, TriedTable]
    ) -> tuple[list[ClaimedTable], list[TablePath], dict[TablePath, Reason]]:
        if not waiting:
            return [], [], {}
        plans = {path: _plan_of(table) for path, table in waiting.items()}
        try:
            return acquire_again(
                self._client, self._connection, self._lease_id, plans, self._heartbeats
            )
        except SluiceError as error:
            log.warning("no table was claimed again: %s", mask(str(error)))
            return [], [], {}

    def _wants(self, table: TriedTable) -> bool:
        result = table.outcome
        if not isinstance(result, RoundResult):
            return False
        if not table.is_lost:
            return _must_go_on(table)
        if result.table_dropped or table.name in self._given_up:
            return False
        count = self._lost[table.claim.path] = self._lost.get(table.claim.path, 0) + 1
        why = f"its claim was lost {count} times" if count > CLAIMS_LOST_MAX else ""
        if table.plan_uri not in self._ended_before and is_ended(table.plan_uri):
            why = "another task of the run has ended its claim"
        if why:
            self._given_up.add(table.name)
            table.note_first(f"not claimed again: {why}")
        return not why


def _is_hopeless(table: TriedTable, why: TableAccount | None) -> bool:
    """Whether the table gets no claim soon, so that the task need not wait."""
    if why is None:
        return False
    is_held = why["became"] == HELD and not table.entry.get("must_reach_end")
    return is_held or why["became"] in FINAL


def _advances(table: TriedTable) -> bool:
    """Whether one more round may reach the end."""
    assert isinstance(table.outcome, RoundResult)
    return table.rounds < ROUNDS_MAX and table.outcome.offsets != table.offsets_before


def _must_go_on(table: TriedTable) -> bool:
    result = table.outcome
    if not table.entry.get("must_reach_end") or not isinstance(result, RoundResult):
        return False
    return result.outcome != "claim_lost" and not _plan_of(table).is_reached(result)


def _plan_of(table: TriedTable) -> PlanFile:
    return PlanFile.from_json(read_json(table.plan_uri) or {})


def _not_reached(table: TriedTable, why: str = "") -> str:
    """:param why: why no further round has begun; empty: further rounds would not help."""
    assert isinstance(table.outcome, RoundResult)
    rounds = "1 round" if table.rounds == 1 else f"{table.rounds} rounds"
    found = (
        f"{rounds} did not reach the end of the log at the time of the trigger"
        f" ({table.outcome.forced})"
    )
    if why:
        return f"{found}, and the table was not claimed again: {why}"
    return f"{found}; trigger the run again, or raise tiering.max_round_ms"
