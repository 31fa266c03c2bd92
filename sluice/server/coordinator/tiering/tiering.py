"""The coordinator's tiering: the rules of :mod:`sluice.statuses` with a clock, a lock and a store.

The lasting part of a change is stored before the change is visible. If the store fails, nothing
changes.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import structlog

from sluice.clock import Clock, monotonic_ms
from sluice.errors import FencedTieringEpoch, InvalidTable, UnknownServerError
from sluice.failpoints import failpoint
from sluice.model import TableInfo, TablePath, TieringRound, TieringStatus
from sluice.model.tiering import kept_values
from sluice.server.coordinator.tiering.heartbeats import answer_heartbeat, made_safe
from sluice.server.coordinator.tiering.rounds import TieringRounds
from sluice.server.coordinator.tiering.rows import TieringRows
from sluice.server.storage.database import Database
from sluice.server.ticker import Ticker
from sluice.statuses import (
    BACKOFF_MS,
    State,
    TableStatus,
    TieringStatuses,
    freshness_ms,
)
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.messages import values

_log = structlog.get_logger("sluice.tiering")

_ACTIONS = {
    values.TIERING_PAUSE: "paused",
    values.TIERING_RESUME: "resumed",
    values.TIERING_RETRY: "failures cleared",
    values.TIERING_AGAIN: "round requested",
    values.TIERING_COMPACT: "compaction requested",
}


class TieringChanges:
    """Receives the table changes of one :meth:`Tiering.catalog_change`."""

    def __init__(self, tiering: Tiering, draft: TieringStatuses) -> None:
        self._tiering = tiering
        self._draft = draft

    def changed(self, connection: sqlite3.Connection, info: TableInfo) -> None:
        """Stores the tiering of a created or altered table in the catalog's transaction."""
        self._tiering.apply_change(self._draft, connection, info)

    def dropped(self, table_id: int) -> None:
        self._draft.forget(table_id)


class Tiering:
    """The tiering of all lake tables. ``_lock`` guards ``_statuses``, replaced at each change."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        timeout_ms: int,
        backoff_ms: int = BACKOFF_MS,
        on_ended: Callable[[TieringRound], None] = lambda ended: None,  # noqa: ARG005
    ) -> None:
        """:param on_ended: called for each ended round, once it is stored; must be quick."""
        self._database = database
        self._rows = TieringRows(database)
        self._rounds = TieringRounds(database)
        self._on_ended = on_ended
        self._clock = clock
        self._lock = threading.Lock()
        # Rises with every start, which fences rounds that were assigned before.
        self.coordinator_epoch = database.next_values("coordinator_epoch") + 1
        self._statuses = TieringStatuses(self.coordinator_epoch, timeout_ms, backoff_ms)
        self._ticker = Ticker("tiering-check", self._check)

    def start(self, tables: list[TableInfo], check_interval_ms: int) -> None:
        """Loads the tiered tables and starts to check for lost workers."""
        with self._change() as draft:
            for info in tables:
                if not info.datalake_enabled:
                    continue
                stored = self._load(info)
                if stored is None:  # created, but the process died before it was enabled
                    draft.enable(_new(info, self._clock.now_ms()), self._clock.now_ms())
                else:
                    draft.restore(stored)
        self._ticker.start(check_interval_ms)

    def stop(self) -> None:
        self._ticker.stop()

    # -- what happens to tables

    @contextmanager
    def catalog_change(self) -> Iterator[TieringChanges]:
        """Locks tiering while the block changes the catalog; applies both when the block ends.

        If the block raises, tiering is unchanged. So changes of the catalog reach tiering in order,
        and both become visible together. The block acquires the catalog's lock inside this one.
        """
        with self._lock:
            draft = self._statuses.copy()
            yield TieringChanges(self, draft)
            self._statuses = draft

    def apply_change(
        self, draft: TieringStatuses, connection: sqlite3.Connection, info: TableInfo
    ) -> None:
        """Starts, ends or adjusts a table's tiering in the caller's transaction."""
        if not info.datalake_enabled:
            draft.forget(info.table_id)
            return
        now = self._clock.now_ms()
        draft.enable(self._load(info) or _new(info, now), now)
        draft.set_freshness(info.table_id, _freshness(info))
        self._store(draft, connection)

    # -- heartbeats of workers

    def heartbeat(self, request: pb.LakeTieringHeartbeatRequest) -> pb.LakeTieringHeartbeatResponse:
        """Processes the reports of a worker, and assigns it a table: see :mod:`heartbeats`."""
        request = made_safe(request)
        with self._change() as draft:
            return answer_heartbeat(draft, request, *self._times(), _log.info, _log.warning)

    def check_round(self, table_id: int, coordinator_epoch: int | None, epoch: int | None) -> None:
        """Checks that a round is the table's current one; accepts old clients that send no epoch.

        :raises InvalidCoordinator, TableNotExist, FencedTieringEpoch: the round is not current.
        """
        if coordinator_epoch is None and epoch is None:
            return
        with self._change() as draft:
            known = draft.get(table_id)
            current = 0 if known is None else known.tiering_epoch
            status = draft.check(
                table_id,
                self.coordinator_epoch if coordinator_epoch is None else coordinator_epoch,
                current if epoch is None else epoch,
            )
            if epoch is not None and status.state is not State.TIERING:
                raise FencedTieringEpoch(
                    f"table {status.path} (id {table_id}): the round of tiering epoch {epoch} has"
                    " ended"
                )

    def statuses(self, path: TablePath | None) -> list[TieringStatus]:
        """The statuses of all lake tables, or of one; empty for a table that is not tiered."""
        with self._change() as draft:
            return [
                _tiering_status(status)
                for status in draft.all()
                if path is None or status.path == path
            ]

    def rounds(self, table_id: int, limit: int) -> list[TieringRound]:
        """The newest ended rounds of a table."""
        return self._rounds.newest(table_id, limit)

    # -- what users want

    def control(self, info: TableInfo, action: int) -> None:
        """Pauses or resumes a table, clears its failures, requests a round or a compaction.

        :raises InvalidTable: the table is not tiered. :raises UnknownServerError: unknown action.
        """
        with self._change() as draft:
            if draft.get(info.table_id) is None:
                raise InvalidTable(
                    f"table {info.path} is not tiered: enable tiering first (table.datalake.enabled"
                    " = true)"
                )
            now, before = self._clock.now_ms(), draft.get(info.table_id)
            if action in (values.TIERING_PAUSE, values.TIERING_RESUME):
                draft.pause(info.table_id, action == values.TIERING_PAUSE)
            elif action == values.TIERING_RETRY:
                draft.retry(info.table_id, now)
            elif action == values.TIERING_AGAIN:
                draft.request_round(info.table_id, now)
            elif action == values.TIERING_COMPACT:
                draft.request_compaction(info.table_id, now)
            else:
                raise UnknownServerError(
                    f"table {info.path}: unknown ControlTiering action {action}; send 0 to 4"
                )
            changed = draft.get(info.table_id) != before
            draft.advance(*self._times())
        if changed:
            _log.info(f"tiering: {_ACTIONS[action]}", table=str(info.path))

    # -- inside

    @contextmanager
    def _change(self) -> Iterator[TieringStatuses]:
        """Yields a draft advanced to the current time; stores and activates it after the block.

        Changes made by the passage of time stay even if the block raises.
        """
        with self._lock:
            now, monotonic = self._times()
            if self._statuses.has_due(now, monotonic):
                caught_up = self._statuses.copy()
                for lost in caught_up.advance(now, monotonic):
                    epoch = lost.tiering_epoch
                    _log.warning("worker lost", table=str(lost.path), tiering_epoch=epoch)
                self._activate(caught_up)
            draft = self._statuses.copy()
            yield draft
            self._activate(draft)

    def _times(self) -> tuple[int, int]:
        """The wall time and the monotonic time, both in milliseconds."""
        return self._clock.now_ms(), monotonic_ms(self._clock)

    def _activate(self, draft: TieringStatuses) -> None:
        self._store(draft)
        self._statuses = draft
        for ended in draft.ended:
            self._on_ended(ended)

    def _store(self, draft: TieringStatuses, connection: sqlite3.Connection | None = None) -> None:
        """Stores changed tables, in the caller's transaction or in a new one."""
        rows = []
        for table_id in sorted(draft.changed):
            status, before = draft.get(table_id), self._statuses.get(table_id)
            if status is not None and (before is None or not self._rows.same(status, before)):
                rows.append(status)
        if rows or draft.ended:
            own = self._database.transaction() if connection is None else nullcontext(connection)
            with own as connection_of_all:
                self._rows.store(connection_of_all, rows)
                self._rounds.store(connection_of_all, draft.ended)
                failpoint("server.tiering.before_commit")

    def _load(self, info: TableInfo) -> TableStatus | None:
        return self._rows.load(_new(info, 0))

    def _check(self) -> None:
        with self._lock:
            due = self._statuses.has_due(*self._times())
        if due:
            with self._change():
                pass


def _tiering_status(status: TableStatus) -> TieringStatus:
    """The status returned to users, without the lag, which needs logs and lake."""
    waits = status.state is not State.TIERING and not status.paused
    due_ms = status.due_ms if waits else None
    return TieringStatus(
        status.path,
        status.table_id,
        "" if status.state is None else status.state.value,
        status.tiering_epoch,
        claimed_by=status.claimed_by,
        claimed_ms=status.claimed_ms,
        requested_ms=status.requested_next_ms,
        **{**kept_values(status), "next_attempt_ms": due_ms},
    )


def _new(info: TableInfo, now_ms: int) -> TableStatus:
    return TableStatus(info.table_id, info.path, _freshness(info), now_ms)


def _freshness(info: TableInfo) -> int:
    return freshness_ms(info.descriptor.properties)
