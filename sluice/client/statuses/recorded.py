"""Tiering statuses for a cluster that keeps none: rounds record them, ``sluice status`` reads them.

A round never fails because of its status: each write has a deadline, an error is logged as one
warning, and such writes then pause for a while. Calls that a user makes may fail.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from os import getpid
from typing import TypeVar

from sluice.client.statuses.accesses import EventKind, StatusEvents
from sluice.client.statuses.cache import StatusCache
from sluice.client.statuses.due import MakeDue, RecordedDue
from sluice.client.statuses.ends import Begun, End, by_columns, rounds_of
from sluice.client.statuses.history import RoundHistory
from sluice.client.statuses.listing import StatusListing, described_freshness_ms
from sluice.client.statuses.round_table import PATH as ROUNDS_PATH
from sluice.client.statuses.status_table import PATH, StatusTable
from sluice.clock import Clock, SystemClock
from sluice.config import ClientConfig
from sluice.errors import (
    DatabaseNotExist,
    InvalidTable,
    StatusUnreadable,
    TableNotExist,
)
from sluice.model import Claim, Reason, TableInfo, TablePath, TieringRound
from sluice.statuses import DEFAULT_FRESHNESS_MS, RecordedStatus, recorded
from sluice.statuses.recorded import Columns

T = TypeVar("T")

READ_RETRY_AFTER_S = 10.0
"""Pause after a failed read before a claim; short, because a user waits for the claim."""
HEARTBEAT_INTERVAL_S = 30.0
"""Minimum time between two recorded heartbeats of a round, and before the first."""
_HEARTBEATS_MAX = 10_000
_CHECKED_MAX = 20
"""Maximum number of tables that are checked one by one before a claim."""


class RecordedStatuses:
    """Reads and writes the statuses of one cluster in its table ``sluice.tiering_status``.

    Safe for use by many threads; the lock guards the state between events.
    """

    def __init__(self, config: ClientConfig, clock: Clock | None = None) -> None:
        """:param config: the configuration of the client; the first event connects."""
        self._table = StatusTable(config)
        self._clock = clock or SystemClock()
        self._events = StatusEvents(
            self._clock,
            config.tiering_status_timeout_ms / 1000,
            self._table.connect,
            config.connect_timeout_ms / 1000,
        )
        self._due = RecordedDue(self._events, self._clock, self._upsert)
        self.listing = StatusListing(self._table, self._events, self._clock)
        self._history = RoundHistory(self._table.rounds, self._events)
        self._backoff_ms = config.tiering_backoff_ms
        self._lock = threading.Lock()  # guards the rest
        self._known = StatusCache()
        self._unreadable: tuple[float, str] | None = None  # until when, and why
        self._tidied = False
        self._beats: dict[Claim, float] = {}
        self._begun: dict[Claim, Begun] = {}

    def close(self) -> None:
        self._table.close()

    # ---- for rounds ----

    def claimed_many(
        self,
        claims: Sequence[Claim],
        by: str | None = None,
        requested: Container[TablePath] | None = None,
    ) -> list[str | None]:
        """Records claims, or returns why their tables must not be tiered now; None: they may be.

        One read and few writes.

        :param by: the name of the run; by default host and process id.
        :param requested: the tables that may be tiered; None: all of them.
        :raises StatusUnreadable: a user may have paused the tables.
        """
        name = by or this_process()
        wanted = [c for c in claims if requested is None or c.path in requested]
        freshness = self._read(partial(self._read_before, claims, wanted))
        now_ms = self._clock.now_ms()
        numbers = self._history.last_numbers([c for c in wanted if not self._before(c).rounds])
        reasons: list[str | None] = []
        changes: list[tuple[Claim, Columns, TieringRound | None]] = []
        for claim in claims:
            row, columns = self._before(claim), dict(self._known.unwritten(claim.table_id))
            row = replace(row, rounds=row.rounds or numbers.get(claim.table_id, 0))
            fresh_ms = freshness.get(claim.table_id, DEFAULT_FRESHNESS_MS)
            if recorded.is_assigned_again(row, claim, now_ms):
                reasons.append(recorded.ASSIGNED_AGAIN)
                continue
            if claim not in wanted:
                reasons.append(recorded.NOT_REQUESTED)
                continue
            waits = {"freshness_ms": fresh_ms, "backoff_ms": self._backoff_ms}
            lost = recorded.lost(row, claim, now_ms, **waits)
            columns |= lost
            why_not = recorded.skip_reason(replace(row, **columns), now_ms)
            reasons.append(why_not)
            if why_not is None:
                begun = {"rounds": row.rounds, **columns}
                columns = {**begun, **recorded.claimed(claim, now_ms, name)}
                self._keep_begun(claim, Begun(now_ms, name, None if row.is_claimed else row))
            if columns:
                before = recorded.last_claim(row, claim.path)
                ended = recorded.round_of(before, row, lost, None) if lost else None
                changes.append((claim, columns, ended))
        self._record_claims(changes)
        return reasons

    def _read_before(self, claims: Sequence[Claim], wanted: Sequence[Claim]) -> dict[int, int]:
        """Reads the rows of claimed tables.

        :returns: the freshness of those of the wanted ones whose last claim has no end, by id.
        """
        self._rows([claim.table_id for claim in claims])
        opened = [claim for claim in wanted if self._before(claim).is_claimed]
        infos = self._table.admin.known_infos([claim.path for claim in opened])
        return {info.table_id: described_freshness_ms(info) for info in infos.values()}

    def _before(self, claim: Claim) -> RecordedStatus:
        return self._known.row(claim.table_id) or RecordedStatus(claim.table_id)

    def _record_claims(self, changes: Sequence[tuple[Claim, Columns, TieringRound | None]]) -> None:
        """:param changes: with the end of the claim before, if that was lost."""
        if not changes:
            return

        def write() -> bool:
            self._upsert_all([columns for _, columns, _ in changes])
            return True

        path = changes[0][0].path
        if not self._events.event(path, "record its claim", write, EventKind.WRITE, PATH):
            return
        for claim, _, _ in changes:
            self._known.written(claim.table_id)
        lost = [(claim.path, ended) for claim, _, ended in changes if ended is not None]
        self._history.record(lost)

    def _keep_begun(self, claim: Claim, begun: Begun) -> None:
        with self._lock:
            if len(self._begun) >= _HEARTBEATS_MAX:
                self._begun.clear()
            self._begun[claim] = begun

    def before_round(self, claim: Claim) -> RecordedStatus | None:
        """The status before a claim that this process recorded.

        None: it is not known, or the claim before has no recorded end.
        """
        with self._lock:
            begun = self._begun.get(claim)
        return None if begun is None else begun.before

    def compaction_requested_ms(self, claim: Claim) -> int | None:
        """When a compaction of a claimed table was requested; None: it was not, or is not known."""
        row, table_id = self.before_round(claim), claim.table_id
        if row is None:  # another process has recorded the claim
            what = "read whether a compaction was requested"
            read = partial(self._table.read, [table_id])
            found = self._events.event(claim.path, what, read, EventKind.REQUEST, PATH)
            row = (found or {}).get(table_id)
        return None if row is None else row.compaction_requested_ms

    def claims_of(self, by: str) -> list[Claim]:
        """Returns the recorded claims of a run that have no recorded end.

        :raises FlussError: the statuses cannot be read.
        """
        rows = self._events.patient(self._table.all, PATH)
        return [
            recorded.last_claim(row, TablePath(row.database_name or "", row.table_name or ""))
            for row in rows
            if row.is_claimed and row.claimed_by == by
        ]

    def paused(self, claims: Sequence[Claim]) -> set[Claim]:
        """Returns the claims whose tables are paused.

        :raises FlussError: the statuses cannot be read.
        """
        ids = [claim.table_id for claim in claims]
        rows = self._events.patient(lambda: self._table.read(ids), PATH)
        return {
            claim
            for claim in claims
            if (row := rows.get(claim.table_id)) is not None and row.paused
        }

    def eligible(self, paths: Sequence[TablePath] | None) -> Sequence[TablePath] | None:
        """Returns those of a few tables that may be tiered now; None and many stay as they are.

        Fluss would assign a paused or failing table again and again, so it is not requested.

        :raises StatusUnreadable: the statuses cannot be read, so no table may be claimed.
        """
        if paths is None or len(paths) > _CHECKED_MAX:
            self._read(lambda: self._table.read([]))
            return paths
        ids: dict[TablePath, int] = {}

        def read() -> None:
            for path in paths:
                with suppress(TableNotExist, DatabaseNotExist):
                    ids[path] = self._table.admin.table_info(path).table_id
            self._rows(list(ids.values()))

        self._read(read)
        now_ms = self._clock.now_ms()
        return [
            path
            for path, table_id in ids.items()
            if recorded.skip_reason(self._known.row(table_id), now_ms) is None
        ]

    def heartbeat(self, claims: Iterable[Claim]) -> None:
        """Records heartbeats of running rounds, at most one per interval and round."""
        now_s, now_ms = self._clock.monotonic_s(), self._clock.now_ms()
        due = [claim for claim in claims if self._is_due(claim, now_s)]
        if due:
            write = partial(self._write_alive, due, now_ms)
            self._events.event(due[0].path, "record its heartbeat", write, EventKind.WRITE, PATH)

    def _write_alive(self, claims: Sequence[Claim], now_ms: int) -> None:
        """Writes all heartbeats at once; claims that were not recorded need a second write."""
        found = self._table.read([claim.table_id for claim in claims])
        changes = []
        for claim in claims:
            with self._lock:
                begun = self._begun.get(claim) or Begun(now_ms, this_process())
            row = found.get(claim.table_id)
            changes.append(
                recorded.heartbeat(row, claim, now_ms, since_ms=begun.since_ms, by=begun.by)
            )
        self._upsert_all(changes)

    def _is_due(self, claim: Claim, now_s: float) -> bool:
        """Returns whether to record this heartbeat; never the first one of a claim."""
        with self._lock:
            if len(self._beats) >= _HEARTBEATS_MAX:
                self._beats.clear()
            if now_s - self._beats.setdefault(claim, now_s) < HEARTBEAT_INTERVAL_S:
                return False
            self._beats[claim] = now_s
        return True

    def finished_many(
        self,
        ends: Sequence[tuple[Claim, TieringRound | None]],
        *,
        forced: bool = False,
        refused: Collection[Claim] = (),
    ) -> None:
        """Records that rounds succeeded, by one read and few writes.

        :param ends: with what each round did, for its history.
        :param refused: claims that the coordinator had revoked; their ends are recorded only if no
            later claim or end is recorded.
        """

        def end(
            claim: Claim, details: TieringRound | None, before: RecordedStatus | None
        ) -> Columns:
            if claim in refused and not _is_open(before, claim):
                return {}
            now_ms = self._clock.now_ms()
            return recorded.finished(claim, before, now_ms, forced=forced, details=details)

        self._end([End(claim, details, partial(end, claim, details)) for claim, details in ends])

    def failed(
        self,
        claim: Claim,
        reason: Reason,
        details: TieringRound | None = None,
        *,
        refused: bool = False,
    ) -> None:
        """Records that a round failed.

        :param reason: the error, checked for secrets.
        :param details: what the round did, for its history.
        :param refused: see :meth:`finished_many`.
        """
        freshness = [DEFAULT_FRESHNESS_MS]

        def end(before: RecordedStatus | None) -> Columns:
            if refused and not _is_open(before, claim):
                return {}
            return recorded.failed(
                claim,
                before,
                self._clock.now_ms(),
                str(reason),
                freshness_ms=freshness[0],
                backoff_ms=self._backoff_ms,
                details=details,
            )

        def read() -> None:
            freshness[0] = self._freshness_of(claim)

        self._end([End(claim, details, end)], read)

    def released(self, claim: Claim, stopped: str | None = None) -> None:
        """Records that the claim was released by its owner.

        :param stopped: who stopped its round; None: the claim was not used.
        """

        def end(before: RecordedStatus | None) -> Columns:
            if before is None or not before.is_of(claim):
                return {}
            return recorded.released(claim, self._clock.now_ms(), stopped)

        self._end([End(claim, None, end)])

    # ---- for users ----

    def pause(self, info: TableInfo, paused: bool) -> None:
        """Records that a table is paused, or no longer.

        :raises InvalidTable: the table is not tiered.
        :raises FlussError: the status was not stored.
        """
        _check_tiered(info)
        columns = recorded.paused(info.table_id, info.path, paused)
        self._events.bounded(lambda: self._upsert(columns, needed="paused"), PATH)

    def retry(self, info: TableInfo) -> None:
        """Clears recorded failures. Raises the errors of :meth:`pause`."""
        _check_tiered(info)

        def do() -> None:
            row = self._table.read([info.table_id]).get(info.table_id)
            if row is not None and row.failures:
                now_ms = self._clock.now_ms()
                self._upsert(recorded.retried(info.table_id, info.path, now_ms))

        self._events.bounded(do, PATH)

    def request_compaction(self, info: TableInfo) -> None:
        """Records that the next round compacts the table. Raises the errors of :meth:`pause`."""
        _check_tiered(info)
        columns = recorded.compaction_requested(info.table_id, info.path, self._clock.now_ms())
        needed = "compaction_requested_ms"
        self._events.bounded(lambda: self._upsert(columns, needed=needed), PATH)

    def make_due(self, info: TableInfo, do: MakeDue, lost_by: str | None = None) -> None:
        """Makes a table due, unless a recorded round is running: see :meth:`RecordedDue.make`.

        :raises StatusUnreadable: whether a round is running cannot be read.
        :raises InvalidTable: the table is not tiered.
        """
        _check_tiered(info)
        row = self._read(lambda: self._row(info.table_id), waits=False)
        self._due.make(info, row, do, lost_by)

    # ---- deadlines and failures ----

    def _end(self, ends: Sequence[End], read: Callable[[], None] = lambda: None) -> None:
        """:param read: reads what else the ends need, within the deadline."""
        if not ends:
            return
        with self._lock:
            for each in ends:
                self._beats.pop(each.claim, None)
                self._begun.pop(each.claim, None)
        path = ends[0].claim.path
        history: list[threading.Thread] = []  # written beside the status, which takes as long

        def write_ends() -> bool:
            self._rows([each.claim.table_id for each in ends])
            read()
            rows = [(each, self._known.row(each.claim.table_id)) for each in ends]
            found = [(each, before, each.columns(before)) for each, before in rows]
            if rounds := rounds_of(found):
                write = partial(self._history.record, rounds)
                history.append(threading.Thread(target=write, name="sluice-history", daemon=True))
                history[-1].start()
            self._upsert_all(columns for _, _, columns in found)
            return True

        what = "record the end of its round"
        is_recorded = self._events.event(path, what, write_ends, EventKind.END, PATH)
        for thread in history:
            thread.join()  # its write has a deadline
        for each in ends:
            table_id = each.claim.table_id
            if is_recorded:
                self._known.written(table_id)
            elif columns := each.columns(self._known.row(table_id)):
                self._known.not_written(table_id, columns)
        self._tidy_once(path)

    def _tidy_once(self, path: TablePath) -> None:
        """Deletes the rows and rounds of dropped tables at the first end of this process."""
        with self._lock:
            tidied, self._tidied = self._tidied, True
        if tidied:
            return
        what, kind = "delete rows of dropped tables", EventKind.TIDY
        dropped = self._events.event(path, what, self._table.delete_dropped, kind, PATH)
        if dropped:
            delete = partial(self._table.rounds.delete, [row.table_id for row in dropped])
            self._events.event(path, what, delete, kind, ROUNDS_PATH)

    def _read(self, do: Callable[[], T], *, waits: bool = True) -> T:
        """Reads statuses before a claim; after a failure, not again for a while.

        :param waits: reads again while a claim's time allows; False: a user waits for the answer.
        :raises StatusUnreadable: names the cause.
        """
        now_s = self._clock.monotonic_s()
        with self._lock:
            unreadable = self._unreadable
        if unreadable is None or now_s >= unreadable[0]:
            try:
                answer = (self._events.patient if waits else self._events.bounded)(do, PATH)
            except Exception as error:
                now_s = self._clock.monotonic_s()
                unreadable = now_s + READ_RETRY_AFTER_S, f"{type(error).__name__}: {error}"
                with self._lock:
                    self._unreadable = unreadable
            else:
                with self._lock:
                    self._unreadable = None
                return answer
        raise StatusUnreadable(
            f"table {PATH} cannot be read, so no table is claimed, because it may be paused:"
            f" {unreadable[1]}"
        )

    def _upsert(self, *rows: Columns, needed: str | None = None) -> None:
        """Writes rows, inside an event only.

        After the deadline nothing is written: the row may be newer by then.
        """
        self._table.upsert(rows, self._events.is_late, needed)

    def _upsert_all(self, rows: Iterable[Columns]) -> None:
        for alike in by_columns(rows):
            self._upsert(*alike)

    def _row(self, table_id: int) -> RecordedStatus | None:
        """Reads a row and adds its unwritten columns."""
        self._rows([table_id])
        return self._known.row(table_id)

    def _rows(self, ids: Sequence[int]) -> None:
        self._known.read(ids, self._table.read(ids))

    def _freshness_of(self, claim: Claim) -> int:
        try:
            return described_freshness_ms(self._table.admin.table_info(claim.path))
        except TableNotExist:
            return DEFAULT_FRESHNESS_MS


def this_process() -> str:
    """The name of this process in statuses and in the history of rounds."""
    return f"{socket.gethostname()}:{getpid()}"


def _is_open(row: RecordedStatus | None, claim: Claim) -> bool:
    return row is not None and row.is_claimed and row.is_of(claim)


def _check_tiered(info: TableInfo) -> None:
    if not info.datalake_enabled:
        raise InvalidTable(
            f"table {info.path} is not tiered: set its option table.datalake.enabled to true"
        )
