"""Tiering statuses where the cluster keeps none: written down by rounds, put together for readers.

What a round writes is never worth the round: each event has a deadline, its failure is one
warning, and after one no such event is tried for a while. What a user asks for may fail.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from os import getpid
from typing import TypeVar

from sluice.client.status_cache import StatusCache
from sluice.client.status_table import PATH, StatusTable
from sluice.clock import Clock, SystemClock
from sluice.config import ClientConfig
from sluice.errors import (
    DatabaseNotExist,
    InvalidConfig,
    InvalidTable,
    RequestTimeOut,
    SluiceError,
    TableNotDue,
    TableNotExist,
)
from sluice.formats.column_memory import load_kernels
from sluice.masking import mask
from sluice.model import Claim, TableBucket, TableInfo, TablePath, TieringStatus
from sluice.statuses import DEFAULT_FRESHNESS_MS, RecordedStatus, freshness_ms, recorded
from sluice.statuses.recorded import Columns

T = TypeVar("T")
_LOG = logging.getLogger(__name__)

RETRY_AFTER_S = 60.0
"""After a failed write none is tried for so long; ends of rounds have a count of their own."""
READ_RETRY_AFTER_S = 10.0
"""The same for reads before a claim: soon again, since a pause is to hold."""
HEARTBEAT_INTERVAL_S = 30.0
"""Most often that a round's heartbeat is written down, and how old a round is before that."""
_HEARTBEATS_MAX = 10_000
_LAG_ERRORS = (SluiceError, OSError, ValueError, ImportError)
"""Why a lag may be unknown: the cluster, its remote storage, a file system not installed."""
_CHECKED_MAX = 20
"""Most tables that are was_read up one by one before a claim."""


class _EventKind(Enum):
    """Events that are tried or left out together; each is so many seconds quiet after a failure."""

    READ, WRITE, END = "read", "write", "end"

    @property
    def retry_after_s(self) -> float:
        return READ_RETRY_AFTER_S if self is _EventKind.READ else RETRY_AFTER_S


@dataclass(frozen=True, slots=True)
class _Lag:
    rows: int | None = None
    ms: int | None = None
    lake_snapshot_id: int | None = None


class RecordedStatuses:
    """The statuses of one cluster in its own table ``sluice.tiering_status``.

    Safe for use by many threads; the lock guards what is remembered between events.
    """

    def __init__(self, config: ClientConfig, clock: Clock | None = None) -> None:
        """:param config: as the client's own; nothing is sent before the first event."""
        self._table = StatusTable(config)
        self._clock = clock or SystemClock()
        self._deadline_s = config.tiering_status_timeout_ms / 1000
        self._backoff_ms = config.tiering_backoff_ms
        self._lock = threading.Lock()  # guards the rest
        self._known = StatusCache()
        self._thread = threading.local()  # its ``given_up``: nobody waits for it any more
        self._retry_at_s: dict[_EventKind, float] = {}
        self._warned = False
        self._tidied = False
        self._beats: dict[Claim, float] = {}
        self._begun: dict[Claim, tuple[int, str]] = {}

    def close(self) -> None:
        self._table.close()

    # ---- what rounds write ----

    def claimed(self, claim: Claim, by: str | None = None) -> str | None:
        """Writes a claim down, unless the table is not to be tiered now: then answers why not.

        :param by: which run it is; by default this process.
        """
        name = by or _this_process()

        def read() -> int:
            row = self._row(claim.table_id)
            is_open = row is not None and row.is_claimed
            return self._freshness_of(claim) if is_open else DEFAULT_FRESHNESS_MS

        freshness_ms = self._event(claim.path, "its claim", read, _EventKind.READ)
        now_ms, backoff_ms = self._clock.now_ms(), self._backoff_ms
        row = self._known.row(claim.table_id) or RecordedStatus(claim.table_id)
        columns = dict(self._known.unwritten(claim.table_id))
        if freshness_ms is not None:
            columns |= recorded.lost(
                row, claim, now_ms, freshness_ms=freshness_ms, backoff_ms=backoff_ms
            )
        why_not = recorded.skip_reason(replace(row, **columns), now_ms)
        if why_not is None:
            columns |= recorded.claimed(claim, now_ms, name)
            with self._lock:
                if len(self._begun) >= _HEARTBEATS_MAX:
                    self._begun.clear()
                self._begun[claim] = now_ms, name
        if columns and freshness_ms is not None:

            def write() -> bool:
                self._upsert(columns)
                return True

            if self._event(claim.path, "its claim", write, _EventKind.WRITE):
                self._known.written(claim.table_id)
        return why_not

    def eligible(self, paths: Sequence[TablePath]) -> Sequence[TablePath]:
        """Those of a few tables that may be tiered now, as far as that is known.

        Fluss hands a paused or failing table out again and again: so it is not even asked for it.
        """
        if not 0 < len(paths) <= _CHECKED_MAX:
            return paths
        ids: dict[TablePath, int] = {}

        def read() -> bool:
            for path in paths:
                with suppress(TableNotExist, DatabaseNotExist):
                    ids[path] = self._table.admin.table_info(path).table_id
            self._rows(list(ids.values()))
            return True

        was_read = self._event(paths[0], "what is to be tiered", read, _EventKind.READ)
        now_ms = self._clock.now_ms()

        def is_eligible(path: TablePath) -> bool:
            if path not in ids:
                return not was_read
            return recorded.skip_reason(self._known.row(ids[path]), now_ms) is None

        return [path for path in paths if is_eligible(path)]

    def heartbeat(self, claims: Iterable[Claim]) -> None:
        """Writes down, now and then, that rounds go on."""
        now_s, now_ms = self._clock.monotonic_s(), self._clock.now_ms()
        due = [claim for claim in claims if self._is_due(claim, now_s)]
        if due:
            write = partial(self._write_alive, due, now_ms)
            self._event(due[0].path, "its heartbeat", write, _EventKind.WRITE)

    def _write_alive(self, claims: Sequence[Claim], now_ms: int) -> None:
        """One write for all; a second one for those whose claims were not written."""
        found = self._table.read([claim.table_id for claim in claims])
        by_columns: dict[tuple[str, ...], list[Columns]] = {}
        for claim in claims:
            with self._lock:
                since_ms, by = self._begun.get(claim, (now_ms, _this_process()))
            row = found.get(claim.table_id)
            columns = recorded.heartbeat(row, claim, now_ms, since_ms=since_ms, by=by)
            if columns:
                by_columns.setdefault(tuple(columns), []).append(columns)
        for rows in by_columns.values():
            self._upsert(*rows)

    def _is_due(self, claim: Claim, now_s: float) -> bool:
        """Whether its heartbeat is to be written now; never at its first one."""
        with self._lock:
            if len(self._beats) >= _HEARTBEATS_MAX:
                self._beats.clear()
            if now_s - self._beats.setdefault(claim, now_s) < HEARTBEAT_INTERVAL_S:
                return False
            self._beats[claim] = now_s
        return True

    def finished(self, claim: Claim, *, forced: bool, refused: bool = False) -> None:
        """The round has ended well.

        :param refused: the coordinator had taken the claim back; that counts only as long as it
            is the last one, and has no end yet.
        """

        def end(before: RecordedStatus | None, _freshness_ms: int) -> Columns:
            if refused and not _is_open(before, claim):
                return {}
            return recorded.finished(claim, before, self._clock.now_ms(), forced=forced)

        self._end(claim, end)

    def failed(self, claim: Claim, reason: str, *, refused: bool = False) -> None:
        """The round has failed.

        :param reason: without secrets already.
        :param refused: as for :meth:`finished`.
        """

        def end(before: RecordedStatus | None, freshness_ms: int) -> Columns:
            if refused and not _is_open(before, claim):
                return {}
            return recorded.failed(
                claim,
                before,
                self._clock.now_ms(),
                reason,
                freshness_ms=freshness_ms,
                backoff_ms=self._backoff_ms,
            )

        self._end(claim, end)

    def released(self, claim: Claim) -> None:
        """The claim was given back by whoever had begun it."""

        def end(before: RecordedStatus | None, _freshness_ms: int) -> Columns:
            if before is None or not before.is_of(claim):
                return {}
            return recorded.released(claim, self._clock.now_ms())

        self._end(claim, end)

    # ---- what users want ----

    def pause(self, info: TableInfo, paused: bool) -> None:
        """:raises InvalidTable: the table is not tiered. :raises FlussError: it was not stored."""
        _check_tiered(info)
        columns = recorded.paused(info.table_id, info.path, paused)
        self._bounded(lambda: self._upsert(columns))

    def retry(self, info: TableInfo) -> None:
        """Forgets failures, if there are any. Raises as :meth:`pause`."""
        _check_tiered(info)

        def do() -> None:
            row = self._table.read([info.table_id]).get(info.table_id)
            if row is not None and row.failures:
                now_ms = self._clock.now_ms()
                self._upsert(recorded.retried(info.table_id, info.path, now_ms))

        self._bounded(do)

    def make_due(self, info: TableInfo, do: Callable[[], Claim | None]) -> None:
        """Has the coordinator make a table due, unless a round is known to have it.

        :param do: does so, and answers under which claim the table had waited, if it had.
        :raises TableNotDue: a round has it; or by ``do``. :raises InvalidTable: it is not tiered.
        """
        _check_tiered(info)
        path, table_id = info.path, info.table_id
        row = self._event(path, "who has it", lambda: self._row(table_id), _EventKind.READ)
        by = recorded.claim_holder(row, self._clock.now_ms())
        if row is not None and by is not None:
            raise TableNotDue(
                f"table {path} is being tiered by {by} (tiering epoch {row.tiering_epoch}):"
                " `sluice tier` with --now --wait 5min tiers it once that has ended",
                waits=True,
            )
        columns = recorded.round_requested(table_id, path, row, do(), self._clock.now_ms())
        if columns:
            self._event(path, "that it is due", lambda: self._upsert(columns), _EventKind.WRITE)

    def list(self, infos: Iterable[TableInfo]) -> list[TieringStatus]:
        """The status of each of these tables that is tiered, by path.

        What cannot be read of the status table makes states Unknown, with the reason as the note.
        """
        tiered = sorted((i for i in infos if i.datalake_enabled), key=lambda info: info.path)
        rows: Mapping[int, RecordedStatus] = {}
        unread: str | None = None
        try:
            ids = [info.table_id for info in tiered]
            rows = self._bounded(lambda: self._table.read(ids))
        except SluiceError as error:
            unread = mask(f"table {PATH} cannot be read: {type(error).__name__}: {error}")
        now_ms = self._clock.now_ms()
        found = []
        lags = self._lags(tiered)
        for info in tiered:
            row = rows.get(info.table_id)
            freshness_ms = _freshness_ms(info)
            status = recorded.status_of(info.path, info.table_id, freshness_ms, row, now_ms)
            if unread is not None:  # then neither is known
                status = replace(status, failures=None, paused=None)
            lag = lags.get(info.table_id, _Lag())
            found.append(
                replace(
                    status,
                    note=unread or status.note,
                    lag_rows=lag.rows,
                    lag_ms=lag.ms,
                    lake_snapshot_id=lag.lake_snapshot_id,
                )
            )
        return found

    # ---- how far the lake is behind ----

    def _lags(self, infos: Sequence[TableInfo]) -> dict[int, _Lag]:
        """As many as there is time for; rows first, since how old they are costs a fetch."""
        found: dict[int, _Lag] = {}

        def do() -> None:
            behind: list[tuple[TableInfo, dict[TableBucket, int]]] = []
            for info in infos:
                with suppress(*_LAG_ERRORS):  # dropped meanwhile, or without a leader
                    behind.append((info, self._rows_behind(info, found)))
            for info, offsets in behind:
                if offsets:
                    with suppress(*_LAG_ERRORS):  # expired, or in a storage out of reach
                        self._age(info, offsets, found)

        with suppress(*_LAG_ERRORS):
            self._bounded(do)
        return dict(found)

    def _rows_behind(self, info: TableInfo, found: dict[int, _Lag]) -> dict[TableBucket, int]:
        """Notes the rows that the lake lacks; answers where they begin in each bucket."""
        admin = self._table.admin
        snapshot = admin.lake_snapshot(info.path)
        snapshot_id = None if snapshot is None else snapshot.snapshot_id
        found[info.table_id] = _Lag(lake_snapshot_id=snapshot_id)
        offsets = {} if snapshot is None else snapshot.offsets
        partitions: list[int | None] = [None]
        if info.is_partitioned:
            partitions = [part.partition_id for part in admin.partitions_of(info)]
        rows = 0
        begins: dict[TableBucket, int] = {}
        for partition in partitions:
            ends = admin.list_offsets(
                info.path, range(info.bucket_count), partition, table_id=info.table_id
            )
            at = {
                number: offsets.get(TableBucket(info.table_id, partition, number))
                for number in ends
            }
            if never := [n for n, end in ends.items() if at[n] is None and end > 0]:
                # What had expired before the first round is behind in no lake.
                at |= admin.list_offsets(
                    info.path, never, partition, "earliest", table_id=info.table_id
                )
            for number, end in ends.items():
                tiered = at[number] or 0
                if end > tiered:
                    begins[TableBucket(info.table_id, partition, number)] = tiered
                    rows += end - tiered
        found[info.table_id] = _Lag(rows, None if rows else 0, snapshot_id)
        return begins

    def _age(
        self, info: TableInfo, begins: Mapping[TableBucket, int], found: dict[int, _Lag]
    ) -> None:
        """When the first batch of each bucket was written: one fetch from each server."""
        oldest_ms = min(self._table.written_ms(info, begins))
        age_ms = max(self._clock.now_ms() - oldest_ms, 0)
        found[info.table_id] = replace(found[info.table_id], ms=age_ms)

    # ---- deadlines and failures ----

    def _end(self, claim: Claim, end: Callable[[RecordedStatus | None, int], Columns]) -> None:
        """:param end: columns of the end by the row before and the table's freshness in ms."""
        with self._lock:
            self._beats.pop(claim, None)
            self._begun.pop(claim, None)

        def do() -> bool:
            if columns := end(self._row(claim.table_id), self._freshness_of(claim)):
                self._upsert(columns)
            return True

        if self._event(claim.path, "the end of its round", do, _EventKind.END):
            self._known.written(claim.table_id)
        elif columns := end(self._known.row(claim.table_id), DEFAULT_FRESHNESS_MS):
            self._known.not_written(claim.table_id, columns)
        with self._lock:
            tidied, self._tidied = self._tidied, True
        if not tidied:
            self._event(claim.path, "what was dropped", self._table.delete_dropped, _EventKind.END)

    def _event(self, path: TablePath, what: str, do: Callable[[], T], kind: _EventKind) -> T | None:
        """Does it, if that is possible in time; a failure is a warning, the first time.

        How a round ended is worth a try of its own after a claim that was not written: it is what
        people look for, and nothing waits for it any more.
        """
        with self._lock:
            until_s = self._retry_at_s.get(kind)
        if until_s is not None and self._clock.monotonic_s() < until_s:
            return None
        try:
            answer = self._bounded(do)
        except Exception as error:  # whatever it is, it is not worth a round
            with self._lock:
                self._retry_at_s[kind] = self._clock.monotonic_s() + kind.retry_after_s
                level = logging.DEBUG if self._warned else logging.WARNING
                self._warned = True
            said = mask(f"{type(error).__name__}: {error}")
            _LOG.log(
                level,
                "table %s: no use of its tiering status in %s (%s), which `sluice status` shows;"
                " the round goes on: %s",
                path,
                PATH,
                what,
                said,
            )
            return None
        with self._lock:
            if kind is _EventKind.READ:
                self._retry_at_s.pop(kind, None)
            else:  # who can write can read
                self._retry_at_s.clear()
            self._warned = bool(self._retry_at_s)
        return answer

    def _bounded(self, do: Callable[[], T]) -> T:
        """:raises RequestTimeOut: it took longer than all of it may; it ends by itself then."""
        load_kernels()  # compiled once for a machine: that is nobody's deadline
        answer: Future[T] = Future()
        given_up = threading.Event()

        def run() -> None:
            self._thread.given_up = given_up
            try:
                answer.set_result(do())
            except BaseException as error:
                answer.set_exception(error)

        threading.Thread(target=run, name="sluice-statuses", daemon=True).start()
        try:
            return answer.result(self._deadline_s)
        except TimeoutError as error:
            given_up.set()
            raise RequestTimeOut(
                f"table {PATH} did not answer within {self._deadline_s:g} s"
                " (client.tiering_status_timeout_ms)"
            ) from error

    def _upsert(self, *rows: Columns) -> None:
        """Inside :meth:`_bounded` only. What was given up is not written later: by then a row may
        say more."""
        self._table.upsert(rows, self._thread.given_up.is_set)

    def _row(self, table_id: int) -> RecordedStatus | None:
        """As it should be: with what could not be written of it."""
        self._rows([table_id])
        return self._known.row(table_id)

    def _rows(self, ids: Sequence[int]) -> None:
        self._known.read(ids, self._table.read(ids))

    def _freshness_of(self, claim: Claim) -> int:
        try:
            return _freshness_ms(self._table.admin.table_info(claim.path))
        except TableNotExist:
            return DEFAULT_FRESHNESS_MS


def _this_process() -> str:
    return f"{socket.gethostname()}:{getpid()}"


def _is_open(row: RecordedStatus | None, claim: Claim) -> bool:
    return row is not None and row.is_claimed and row.is_of(claim)


def _freshness_ms(info: TableInfo) -> int:
    try:
        return freshness_ms(info.descriptor.properties)
    except InvalidConfig:
        return DEFAULT_FRESHNESS_MS


def _check_tiered(info: TableInfo) -> None:
    if not info.datalake_enabled:
        raise InvalidTable(f"table {info.path} is not tiered: table.datalake.enabled is not true")
