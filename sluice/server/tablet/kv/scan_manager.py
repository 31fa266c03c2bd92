"""All scan sessions of a tablet server: adds clock, lock and stores to :mod:`sluice.scans`.

Every read holds the read lock of its bucket, and so does the start of a session. The closing of the
store ends sessions under the write lock. So no session can start for a store that is closed.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import structlog

from sluice.clock import Clock
from sluice.errors import InvalidScanRequest, NetworkError
from sluice.formats.kv.value_batch import build_value_batch
from sluice.model import TableBucket
from sluice.scans import (
    ContinueScan,
    OpenScan,
    Replies,
    Reply,
    ScanLimits,
    ScanRange,
    Session,
    Sessions,
    opened,
)
from sluice.server.tablet.kv.scan_context import Pin, ScannerContext, View
from sluice.server.tablet.kv.scan_view import Rows
from sluice.server.ticker import Ticker

_HEADROOM = 64 * 1024  # of a response, in addition to its rows

_log = structlog.get_logger("sluice.scans")


class ScannableTablet(Protocol):
    """A tablet that provides a view of its rows."""

    def open_view(self) -> tuple[View, int]:
        """Returns a view of the current rows, and the log offset that they have reached."""


class Stores(Protocol):
    """The KV stores of the server."""

    def leading(self, bucket: TableBucket) -> AbstractContextManager[ScannableTablet]:
        """Yields a bucket's tablet, whose store cannot change during the block.

        :raises UnknownTableOrBucket, NonPrimaryKeyTable: as they say.
        """

    def pin(self, bucket: TableBucket) -> Pin:
        """Keeps the store open after the block."""

    def on_closing(self, listener: Callable[[TableBucket], None]) -> None:
        """Registers a listener, called before a store is closed, outside all ``leading`` blocks."""


@dataclass(frozen=True, slots=True)
class ScanBatch:
    """A response. Fields with None are omitted."""

    scanner_id: bytes | None
    records: bytes | None
    """A value batch; None without rows."""
    has_more: bool
    log_offset: int | None = None
    """The rows contain all changes below this log offset. Only in the first response."""


class ScannerManager:
    """Opens, continues and closes scans. Safe for use by many threads.

    ``_lock`` guards sessions, replies and contexts; it is held for no read and no wait. Locks are
    taken in this order: the bucket's, the session's turn, ``_lock``, a pin's.
    """

    def __init__(
        self,
        stores: Stores,
        clock: Clock,
        limits: ScanLimits,
        *,
        message_bytes_max: int,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        """:param message_bytes_max: the maximum response size, even if a client requests more."""
        self._stores = stores
        self._clock = clock
        self._limits = limits
        self._bytes_max = message_bytes_max - _HEADROOM
        self._new_id = new_id
        self._lock = threading.Lock()
        self._sessions = Sessions(limits)
        self._replies = Replies(limits.replay_bytes_max, limits.ttl_ms)
        self._contexts: dict[bytes, ScannerContext] = {}
        self._ticker = Ticker("scan-check", self._check)
        stores.on_closing(self._store_closing)

    def start(self, check_interval_ms: int) -> None:
        """Starts to check for idle sessions."""
        self._ticker.start(check_interval_ms)

    def stop(self) -> None:
        """Ends all sessions and refuses new ones."""
        self._ticker.stop()
        with self._lock:
            for scanner_id in self._sessions.all():
                self._end(scanner_id, "the server was stopped")

    @property
    def open_scans(self) -> int:
        """The number of open sessions."""
        with self._lock:
            return len(self._sessions)

    def oldest_offset(self, bucket: TableBucket) -> int | None:
        """The lowest log offset from which an open scan of the bucket is continued, or None."""
        with self._lock:
            return self._sessions.oldest_offset(bucket)

    # -- what clients ask for

    def open(self, request: OpenScan) -> ScanBatch:
        """Opens a view of a bucket's rows and returns the first batch.

        :raises TooManyScanners, UnknownTableOrBucket, NonPrimaryKeyTable: as they say.
        :raises KvStorageError: the store cannot be read.
        :raises RecordTooLarge: a row is too large for a response.
        """
        bucket, scanner_id = request.bucket, request.wanted_id or self._new_id().encode()
        with self._stores.leading(bucket) as tablet:
            with self._lock:
                is_known = scanner_id in self._sessions
            answer = None if is_known else self._begin(tablet, request, scanner_id)
            # None: the same call has opened it; its response was lost or is still on the way.
            again = ContinueScan(scanner_id, 0, request.batch_bytes, request.user)
            return answer or self._next(again, bucket)

    def _begin(
        self, tablet: ScannableTablet, request: OpenScan, scanner_id: bytes
    ) -> ScanBatch | None:
        """Returns the first batch, and keeps a session if there are more; None if one exists."""
        with self._place(request.bucket, request.user) as begin:
            view, log_offset = tablet.open_view()
            context = ScannerContext(view, self._stores.pin(request.bucket))
            is_begun = False
            try:
                rows = self._read(context, ScanRange(0, None, request.limit), request.batch_bytes)
                records, count = _records(rows), len(rows.values)
                session = opened(
                    scanner_id,
                    request.bucket,
                    log_offset,
                    request.limit,
                    count,
                    rows.next_key,
                    request.user,
                )
                if session is not None:
                    is_begun = begin(session, context)
                    if not is_begun:
                        return None
            finally:
                if not is_begun:
                    context.close()
            known = scanner_id if rows.values else None
            return ScanBatch(known, records, session is not None, log_offset)

    def resume(self, request: ContinueScan) -> ScanBatch:
        """Returns the next batch of a scan, or the last one again.

        A refused call leaves the session unchanged.

        :raises ScannerExpired, UnknownScannerId: the scan has ended, or never existed.
        :raises InvalidScanRequest: not the next call.
        :raises UnknownTableOrBucket, KvStorageError: and the scan has ended.
        """
        with self._lock:
            found = self._replies.find(request.scanner_id, request.call_seq_id, request.user)
            if found is None:
                bucket = self._sessions.find(request.scanner_id, request.user).bucket
        if found is not None:
            return _repeat_last(request, found)
        with self._stores.leading(bucket):
            return self._next(request, bucket)

    def close(self, scanner_id: bytes, user: str = "") -> None:
        """Ends a scan of a user, if it exists."""
        with self._lock:
            if self._sessions.is_of(scanner_id, user):
                self._end(scanner_id)
            self._replies.drop(scanner_id, user)

    # -- background work

    def expire(self) -> int:
        """Ends idle scans whose time to live has passed; returns their number."""
        with self._lock:
            return self._expire()

    def _expire(self) -> int:
        now_s = self._clock.monotonic_s()
        idle = [i for i in self._sessions.idle(now_s) if not self._contexts[i].in_use]
        for scanner_id in idle:
            self._end(scanner_id, f"it was idle for more than {self._limits.ttl_ms} ms")
        self._sessions.forget(now_s)
        self._replies.forget(now_s)
        return len(idle)

    def _store_closing(self, bucket: TableBucket) -> None:
        """Ends the scans of a dropped bucket, or of a failed store."""
        with self._lock:
            gone = self._sessions.of(bucket)
            for scanner_id in gone:
                self._end(
                    scanner_id,
                    "this server no longer serves its bucket, or the key-value store failed",
                )
        if gone:
            _log.info("ended the scans of a closed store", bucket=str(bucket), scans=len(gone))

    def _check(self) -> None:
        expired = self.expire()
        if expired:
            _log.info("ended idle scans", scans=expired)

    # -- parts

    @contextmanager
    def _place(
        self, bucket: TableBucket, user: str
    ) -> Iterator[Callable[[Session, ScannerContext], bool]]:
        """Reserves a place for one session; releases it unless the session begins."""
        with self._lock:
            if self._ticker.is_stopping:
                raise NetworkError("the server is stopping and accepts no new scans")
            self._expire()
            self._sessions.reserve(bucket, user)
        is_begun = False

        def begin(session: Session, context: ScannerContext) -> bool:
            nonlocal is_begun
            with self._lock:
                if session.scanner_id in self._sessions:
                    return False
                self._sessions.begin(session, self._clock.monotonic_s())
                self._contexts[session.scanner_id] = context
                self._replies.drop(session.scanner_id)  # of one that its client has named so before
                is_begun = True
                return True

        try:
            yield begin
        finally:
            if not is_begun:
                with self._lock:
                    self._sessions.release(bucket, user)

    def _next(self, request: ContinueScan, bucket: TableBucket) -> ScanBatch:
        """Handles a call of a session under the bucket's lock."""
        context = self._enter(request, bucket)
        if isinstance(context, Reply):
            return _repeat_last(request, context)
        try:
            with context.turn():
                return self._advance(context, request)
        finally:
            with self._lock:
                context.leave()

    def _enter(self, request: ContinueScan, bucket: TableBucket) -> ScannerContext | Reply:
        """Enters the context of a session; returns its reply if this call has just ended it."""
        with self._lock:
            reply = self._replies.find(request.scanner_id, request.call_seq_id, request.user)
            if reply is not None:
                return reply
            session = self._sessions.find(request.scanner_id, request.user)
            if session.bucket != bucket:
                raise InvalidScanRequest(
                    f"bucket {bucket}: the requested scanner id belongs to a scan of bucket"
                    f" {session.bucket}"
                )
            context = self._contexts[request.scanner_id]
            context.enter()
            return context

    def _advance(self, context: ScannerContext, request: ContinueScan) -> ScanBatch:
        """Reads the batch of a call, in its turn."""
        scanner_id = request.scanner_id
        with self._lock:
            reply = self._replies.find(scanner_id, request.call_seq_id, request.user)
            if reply is not None:
                return _repeat_last(request, reply)
            session = self._sessions.find(scanner_id, request.user)
            scan_range = session.scan_range(request.call_seq_id)
            self._sessions.touch(scanner_id, self._clock.monotonic_s())
        rows = self._read(context, scan_range, request.batch_bytes)
        records = _records(rows)
        assert records is not None, "a session has a row to give"
        after = session.after(scan_range, len(rows.values), rows.next_key)
        with self._lock:
            self._sessions.find(scanner_id, request.user)  # it may have been closed meanwhile
            now_s = self._clock.monotonic_s()
            if after is None:
                reply = Reply(request.call_seq_id, records, request.user)
                self._replies.keep(scanner_id, reply, now_s)
                self._end(scanner_id)
            else:
                self._sessions.update(after)
                self._sessions.touch(scanner_id, now_s)
        log_offset = None if request.call_seq_id else session.log_offset
        return ScanBatch(scanner_id, records, after is not None, log_offset)

    def _read(self, context: ScannerContext, scan_range: ScanRange, batch_bytes: int) -> Rows:
        most = self._bytes_max
        wanted = (
            most if scan_range.is_repeat else min(batch_bytes, self._limits.batch_bytes_max, most)
        )
        return context.view.read(scan_range.start, scan_range.rows_max, wanted, most)

    def _end(self, scanner_id: bytes, reason: str = "") -> None:
        """Ends a session under the lock; its last reader releases the context."""
        if self._sessions.end(scanner_id, self._clock.monotonic_s(), reason) is not None:
            self._contexts.pop(scanner_id).close()


def _repeat_last(request: ContinueScan, reply: Reply) -> ScanBatch:
    """Returns the last batch of a scan again."""
    return ScanBatch(request.scanner_id, reply.records, has_more=False)


def _records(rows: Rows) -> bytes | None:
    return build_value_batch(pa.array(rows.values, pa.binary())) if rows.values else None
