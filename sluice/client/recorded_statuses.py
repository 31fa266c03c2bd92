"""Tiering statuses where the cluster keeps none: written down by rounds, put together for readers.

What a round writes is never worth the round: each event has a deadline, its failure is one
warning, and after one nothing more is tried for a while. What a user asks for may fail.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from os import getpid
from typing import Any, TypeVar

from sluice.client.status_table import PATH, StatusTable
from sluice.clock import Clock, SystemClock
from sluice.config import ClientConfig
from sluice.errors import (
    InvalidConfig,
    InvalidTable,
    RequestTimeOut,
    SluiceError,
    TableNotExist,
)
from sluice.formats.column_memory import load_kernels
from sluice.masking import mask
from sluice.model import Claim, TableBucket, TableInfo, TablePath, TieringStatus
from sluice.model.durations import duration_ms
from sluice.statuses import DEFAULT_FRESHNESS_MS, Recorded, recorded

T = TypeVar("T")
_LOG = logging.getLogger(__name__)

QUIET_S = 60.0
"""After a failure nothing is tried for so long; but for the first end of a round."""
BEAT_EVERY_S = 30.0
"""Most often that a round's heartbeat is written down, and how old a round is before that."""
_BEATS_MAX = 10_000
_NOT_TO_BE_HAD = (SluiceError, OSError, ValueError, ImportError)
"""Why a lag may be unknown: the cluster, its remote storage, a file system not installed."""
_LOOKED_AT_MAX = 20
"""Most tables that are looked up one by one before a claim."""


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
        self._quiet_until_s: dict[bool, float] = {}  # of ends, and of all else
        self._warned = False
        self._tidied = False
        self._beats: dict[Claim, float] = {}

    def close(self) -> None:
        self._table.close()

    # ---- what rounds write ----

    def begin(self, claim: Claim, by: str | None = None) -> str | None:
        """Writes a claim down, unless the table is not to be tiered now: then answers why not.

        :param by: which run it is; by default this process.
        """
        name = by or f"{socket.gethostname()}:{getpid()}"

        def do() -> str | None:
            row, now_ms = self._row(claim.table_id), self._clock.now_ms()
            columns = {} if row is None else self._lost(row, claim, now_ms)
            if row is not None:
                row = replace(row, **columns)
            why_not = recorded.not_now(row, now_ms)
            if why_not is None:
                columns = {**columns, **recorded.claimed(claim, now_ms, name)}
            if columns:
                self._table.upsert(columns)
            return why_not

        return self._event(claim.path, "its claim", do)

    def _lost(self, row: Recorded, claim: Claim, now_ms: int) -> Mapping[str, Any]:
        if not row.is_claimed:
            return {}  # asked without a call
        freshness_ms = self._freshness_of(claim)
        return recorded.lost(
            row, claim, now_ms, freshness_ms=freshness_ms, backoff_ms=self._backoff_ms
        )

    def wanted(self, paths: Sequence[TablePath]) -> Sequence[TablePath]:
        """Those of a few tables that may be tiered now; all of them where that cannot be told.

        Fluss hands a paused or failing table out again and again: so it is not even asked for it.
        """
        if not 0 < len(paths) <= _LOOKED_AT_MAX:
            return paths

        def do() -> list[TablePath]:
            ids: dict[TablePath, int] = {}
            for path in paths:
                with suppress(TableNotExist):
                    ids[path] = self._table.admin.table_info(path).table_id
            rows, now_ms = self._table.read(list(ids.values())), self._clock.now_ms()
            return [p for p, i in ids.items() if recorded.not_now(rows.get(i), now_ms) is None]

        answer = self._event(paths[0], "what is to be tiered", do)
        return paths if answer is None else answer

    def alive(self, claims: Iterable[Claim]) -> None:
        """Writes down, now and then, that rounds go on."""
        now_s, now_ms = self._clock.monotonic_s(), self._clock.now_ms()
        for claim in claims:
            with self._lock:
                if len(self._beats) >= _BEATS_MAX:
                    self._beats.clear()
                if now_s - self._beats.setdefault(claim, now_s) < BEAT_EVERY_S:
                    continue
                self._beats[claim] = now_s
            write = partial(self._table.upsert, recorded.alive(claim, now_ms))
            self._event(claim.path, "its heartbeat", write)

    def finished(self, claim: Claim, *, forced: bool, refused: bool = False) -> None:
        """The round has ended well.

        :param refused: the coordinator had taken the claim back; that counts only as long as it
            is the last one, and has no end yet.
        """

        def do() -> None:
            before = self._row(claim.table_id)
            if refused and not _is_open(before, claim):
                return
            now_ms = self._clock.now_ms()
            self._table.upsert(recorded.finished(claim, before, now_ms, forced=forced))

        self._end(claim, do)

    def failed(self, claim: Claim, reason: str, *, refused: bool = False) -> None:
        """The round has failed.

        :param reason: without secrets already.
        :param refused: as for :meth:`finished`.
        """

        def do() -> None:
            before = self._row(claim.table_id)
            if refused and not _is_open(before, claim):
                return
            self._table.upsert(
                recorded.failed(
                    claim,
                    before,
                    self._clock.now_ms(),
                    reason,
                    freshness_ms=self._freshness_of(claim),
                    backoff_ms=self._backoff_ms,
                )
            )

        self._end(claim, do)

    def released(self, claim: Claim) -> None:
        """The claim was given back by whoever had begun it."""

        def do() -> None:
            row = self._row(claim.table_id)
            if row is not None and row.is_of(claim):
                self._table.upsert(recorded.released(claim, self._clock.now_ms()))

        self._end(claim, do)

    # ---- what users want ----

    def pause(self, info: TableInfo, paused: bool) -> None:
        """:raises InvalidTable: the table is not tiered. :raises FlussError: it was not stored."""
        _check_tiered(info)
        columns = recorded.paused(info.table_id, info.path, paused)
        self._bounded(lambda: self._table.upsert(columns))

    def retry(self, info: TableInfo) -> None:
        """Forgets failures, if there are any. Raises as :meth:`pause`."""
        _check_tiered(info)

        def do() -> None:
            row = self._row(info.table_id)
            if row is not None and row.failures:
                now_ms = self._clock.now_ms()
                self._table.upsert(recorded.retried(info.table_id, info.path, now_ms))

        self._bounded(do)

    def list(self, infos: Iterable[TableInfo]) -> list[TieringStatus]:
        """The status of each of these tables that is tiered, by path.

        What cannot be read of the status table makes states Unknown, with the reason as the note.
        """
        tiered = sorted((i for i in infos if i.datalake_enabled), key=lambda info: info.path)
        rows: Mapping[int, Recorded] = {}
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
                with suppress(*_NOT_TO_BE_HAD):  # dropped meanwhile, or without a leader
                    behind.append((info, self._rows_behind(info, found)))
            for info, offsets in behind:
                if offsets:
                    with suppress(*_NOT_TO_BE_HAD):  # expired, or in a storage out of reach
                        self._age(info, offsets, found)

        with suppress(*_NOT_TO_BE_HAD):
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
        rows, begins = 0, {}
        for partition in partitions:
            ends = admin.list_offsets(
                info.path, range(info.bucket_count), partition, table_id=info.table_id
            )
            for number, end in ends.items():
                bucket = TableBucket(info.table_id, partition, number)
                tiered = offsets.get(bucket, 0)
                if end > tiered:
                    rows, begins[bucket] = rows + end - tiered, tiered
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

    def _end(self, claim: Claim, do: Callable[[], None]) -> None:
        with self._lock:
            self._beats.pop(claim, None)
        self._event(claim.path, "the end of its round", do, is_end=True)
        with self._lock:
            tidied, self._tidied = self._tidied, True
        if not tidied:
            self._event(claim.path, "what was dropped", self._table.delete_dropped, is_end=True)

    def _event(
        self, path: TablePath, what: str, do: Callable[[], T], *, is_end: bool = False
    ) -> T | None:
        """Does it, if that is possible in time; a failure is a warning, the first time.

        :param is_end: worth a try of its own after a claim that was not written: how a round ended
            is what people look for, and nothing waits for it any more.
        """
        with self._lock:
            until_s = self._quiet_until_s.get(is_end)
        if until_s is not None and self._clock.monotonic_s() < until_s:
            return None
        try:
            answer = self._bounded(do)
        except Exception as error:  # whatever it is, it is not worth a round
            with self._lock:
                self._quiet_until_s[is_end] = self._clock.monotonic_s() + QUIET_S
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
            self._quiet_until_s.clear()
            self._warned = False
        return answer

    def _bounded(self, do: Callable[[], T]) -> T:
        """:raises RequestTimeOut: it took longer than all of it may; it ends by itself then."""
        load_kernels()  # compiled once for a machine: that is nobody's deadline
        answer: Future[T] = Future()

        def run() -> None:
            try:
                answer.set_result(do())
            except BaseException as error:
                answer.set_exception(error)

        threading.Thread(target=run, name="sluice-statuses", daemon=True).start()
        try:
            return answer.result(self._deadline_s)
        except TimeoutError as error:
            raise RequestTimeOut(
                f"table {PATH} did not answer within {self._deadline_s:g} s"
                " (client.tiering_status_timeout_ms)"
            ) from error

    def _row(self, table_id: int) -> Recorded | None:
        return self._table.read([table_id]).get(table_id)

    def _freshness_of(self, claim: Claim) -> int:
        try:
            return _freshness_ms(self._table.admin.table_info(claim.path))
        except TableNotExist:
            return DEFAULT_FRESHNESS_MS


def _is_open(row: Recorded | None, claim: Claim) -> bool:
    return row is not None and row.is_claimed and row.is_of(claim)


def _freshness_ms(info: TableInfo) -> int:
    text: Any = info.descriptor.properties.get("table.datalake.freshness")
    try:
        return DEFAULT_FRESHNESS_MS if text is None else duration_ms("freshness", text)
    except InvalidConfig:
        return DEFAULT_FRESHNESS_MS


def _check_tiered(info: TableInfo) -> None:
    if not info.datalake_enabled:
        raise InvalidTable(f"table {info.path} is not tiered: table.datalake.enabled is not true")
