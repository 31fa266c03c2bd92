"""Handles FetchLog: collects complete batches, waits for more if requested, and encodes them.

The response is encoded by hand around the log data, which is read from the files directly into its
place in the message. So the data is copied once here, and once more by gRPC. If a client requests
only some columns, the others are removed from each batch (``sluice.formats.log.projection``).
"""

from __future__ import annotations

import io
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sluice.clock import Clock
from sluice.errors import CorruptRecord, FlussError, UnknownTableOrBucket
from sluice.model import TableBucket
from sluice.server.tablet.buckets.ports import Tables
from sluice.server.tablet.buckets.replicas import Replicas
from sluice.server.tablet.logs.log import BucketLog
from sluice.server.tablet.logs.manager import LogManager
from sluice.server.tablet.logs.projector import Projector
from sluice.server.tablet.logs.segment import Slice
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.error_codes import put_error
from sluice.wire.listeners.handlers import calling_party
from sluice.wire.messages.table_paths import bucket_in

WAIT_MAX_MS = 10_000
"""The maximum time that a fetch waits for data, even if it requests more."""

DEFAULT_WAIT_MS = 100
"""How long a fetch with ``min_bytes`` and no ``max_wait_ms`` waits, as Fluss does."""

_TABLES_RESP = 1 << 3 | 2
_TABLE_ID = 1 << 3
_BUCKETS_RESP = 2 << 3 | 2
_RECORDS = 8 << 3 | 2


@dataclass(slots=True)
class _Part:
    """One bucket's part of a response."""

    bucket: TableBucket
    request: pb.PbFetchLogReqForBucket
    log: BucketLog | None = None
    error: FlussError | None = None
    projector: Projector | None = None
    slice: Slice | None = None
    records: bytes | None = None
    """Projected bytes, sent instead of the slice's own."""
    seen_offset: int = 0
    """The end of the log just before it was read; data after it ends a wait."""


class Fetcher:
    """Handles FetchLog. At most ``waiting_max`` fetches wait; further ones return at once.

    The limit keeps threads free for calls that do not wait. At the limit, the wait of a party (a
    user on a host) that has more than another ends early for the other's.
    """

    def __init__(
        self,
        tables: Tables,
        logs: LogManager,
        replicas: Replicas,
        clock: Clock,
        *,
        max_bytes: int,
        waiting_max: int,
    ) -> None:
        self._tables = tables
        self._logs = logs
        self._replicas = replicas
        self._clock = clock
        self._max_bytes = max_bytes
        self._waiting_max = max(waiting_max, 1)
        self._stopped = False
        self._waiters: dict[threading.Event, str] = {}  # with their parties, the oldest first
        self._lock = threading.Lock()  # guards _waiters and _stopped

    def fetch(self, request: pb.FetchLogRequest) -> bytes:
        """Returns the serialized FetchLogResponse."""
        parts = [
            self._part(table, bucket)
            for table in request.tables_req
            for bucket in table.buckets_req
        ]
        max_bytes = min(request.max_bytes, self._max_bytes)
        if self._gather(parts, max_bytes) < request.min_bytes and self._may_wait(parts):
            wait_ms = request.max_wait_ms if request.HasField("max_wait_ms") else DEFAULT_WAIT_MS
            self._wait(parts, max_bytes, request.min_bytes, min(wait_ms, WAIT_MAX_MS))
        for _ in parts:
            try:
                return self._read(parts)
            except (UnknownTableOrBucket, CorruptRecord):  # now the log of that part says why
                self._gather(parts, max_bytes)
        return self._read(parts)

    def _read(self, parts: Sequence[_Part]) -> bytes:
        """Reads the batches into the response.

        :raises UnknownTableOrBucket: a file was deleted in the meantime.
        :raises CorruptRecord: a batch is damaged, and its log refuses calls from now on.
        """
        for part in parts:
            if part.projector is not None:
                self._project(part, part.projector)
        return self._encode(parts)

    def stop(self) -> None:
        """Ends the wait of all fetches, which return the data that exists."""
        with self._lock:
            self._stopped = True
            for waiter in list(self._waiters):
                self._end_wait(waiter)

    def _may_begin(self, waiter: threading.Event) -> bool:
        """Whether a wait may begin, if need be in place of another party's."""
        party = calling_party()
        with self._lock:
            if self._stopped:
                return False
            if len(self._waiters) >= self._waiting_max:
                have = Counter(self._waiters.values())
                greediest, most = have.most_common(1)[0]
                if most <= have[party] + 1:
                    return False
                self._end_wait(next(one for one, of in self._waiters.items() if of == greediest))
            self._waiters[waiter] = party
        return True

    def _end_wait(self, waiter: threading.Event) -> None:
        """Ends a wait. Call it under the lock."""
        del self._waiters[waiter]
        waiter.set()

    def _part(self, table: pb.PbFetchLogReqForTable, bucket: pb.PbFetchLogReqForBucket) -> _Part:
        part = _Part(bucket_in(bucket, table.table_id), bucket)
        try:
            hosted = self._tables.find(table.table_id)
            if hosted is None:
                raise UnknownTableOrBucket(f"no table has the id {table.table_id}")
            log = self._logs.find(hosted, part.bucket)
            if table.projection_pushdown_enabled:
                part.projector = Projector(hosted, tuple(table.projected_fields))
            part.log = log
        except FlussError as error:
            part.error = error
        return part

    def _gather(self, parts: Sequence[_Part], max_bytes: int) -> int:
        """Collects each bucket's part; returns the total number of bytes."""
        total = 0
        for part in parts:
            if part.log is None:
                continue
            left = max_bytes - total
            try:
                # The first batch is sent whatever its size, so that a reader makes progress.
                # That of another bucket may exceed the limit of its bucket, but not the total.
                limit = min(part.request.max_fetch_bytes, left)
                offset = part.request.fetch_offset
                # Not held while a fetch waits: who drops the bucket must not wait for readers.
                with self._replicas.leading(part.bucket):
                    part.seen_offset = part.log.end_offset
                    found = part.log.slice(offset, max(limit, 0), min_one_batch=True)
                if found is not None and total and found.length > left:
                    found = None
                part.slice, part.records = found, None
                total += 0 if found is None else found.length
            except FlussError as error:
                part.log, part.error = None, error
        return total

    def _project(self, part: _Part, projector: Projector) -> None:
        if part.slice is None or part.log is None or part.error is not None:
            return
        buffer = memoryview(bytearray(part.slice.length))
        try:
            part.log.read(part.slice, buffer)
            part.records = projector.project(buffer)
        except UnknownTableOrBucket:
            raise
        except FlussError as error:
            part.error = error

    @staticmethod
    def _may_wait(parts: Sequence[_Part]) -> bool:
        return bool(parts) and all(part.error is None for part in parts)

    def _wait(self, parts: Sequence[_Part], max_bytes: int, min_bytes: int, wait_ms: int) -> None:
        waiter = threading.Event()
        if wait_ms <= 0 or not self._may_begin(waiter):
            return
        deadline = self._clock.monotonic_s() + wait_ms / 1000
        try:
            while True:
                waiter.clear()
                if waiter not in self._waiters:  # what was cleared may have been its end
                    return
                settled = [
                    part.log is None or part.log.wait_beyond(part.seen_offset, waiter)
                    for part in parts
                ]
                left = deadline - self._clock.monotonic_s()
                if all(settled) and (left <= 0 or not waiter.wait(left)):
                    return
                if self._gather(parts, max_bytes) >= min_bytes or not self._may_wait(parts):
                    return
                if left <= 0:
                    return
        finally:
            with self._lock:
                self._waiters.pop(waiter, None)
            for part in parts:
                if part.log is not None:
                    part.log.forget_waiter(waiter)

    # -- the response's bytes

    def _encode(self, parts: Sequence[_Part]) -> bytes:
        """Encodes the message around the slices, then reads the slices into their places."""
        layout: list[bytes | _Part] = []
        for table_id in dict.fromkeys(part.bucket.table_id for part in parts):
            inner: list[bytes | _Part] = [_varint(_TABLE_ID) + _varint(table_id)]
            for part in parts:
                if part.bucket.table_id == table_id:
                    self._encode_bucket(part, inner)
            layout.append(_varint(_TABLES_RESP) + _varint(_length(inner)))
            layout += inner
        # bytes(n) is zeroed lazily by the system, and BytesIO hands the very object out again:
        # the only copy made here is the one from the page cache.
        buffer = io.BytesIO(bytes(_length(layout)))
        with buffer.getbuffer() as view:
            position = 0
            for piece in layout:
                size = _size(piece)
                with view[position : position + size] as target:  # released after an error, too
                    if isinstance(piece, bytes):
                        target[:] = piece
                    elif piece.log is not None and piece.slice is not None:
                        piece.log.read(piece.slice, target)
                position += size
        return buffer.getvalue()

    @staticmethod
    def _encode_bucket(part: _Part, layout: list[bytes | _Part]) -> None:
        bucket = pb.PbFetchLogRespForBucket(bucket_id=part.request.bucket_id)
        if part.request.HasField("partition_id"):
            bucket.partition_id = part.request.partition_id
        if part.error is not None:
            put_error(bucket, part.error)
            if "base_offset" in part.error.details and "next_offset" in part.error.details:
                bucket.damaged_start_offset = part.error.details["base_offset"]
                bucket.damaged_end_offset = part.error.details["next_offset"]
        elif part.log is not None:
            bucket.high_watermark = part.log.end_offset  # not below what the slice holds
            # Fluss always sends 0, and its clients ignore it: docs/fluss/messages.md#fetch-log
            bucket.log_start_offset = part.log.start_offset
        inner: list[bytes | _Part] = [bucket.SerializeToString()]
        if part.error is None:
            # Also if empty: Fluss's Java client needs the field (docs/fluss/messages.md#fetch-log).
            records = part.records if part.records is not None else part if part.slice else b""
            inner += [_varint(_RECORDS) + _varint(_size(records)), records]
        layout.append(_varint(_BUCKETS_RESP) + _varint(_length(inner)))
        layout += inner


def _length(layout: Sequence[bytes | _Part]) -> int:
    return sum(map(_size, layout))


def _size(piece: bytes | _Part) -> int:
    if isinstance(piece, bytes):
        return len(piece)
    return 0 if piece.slice is None else piece.slice.length


def _varint(value: int) -> bytes:
    out = bytearray()
    value &= 2**64 - 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
