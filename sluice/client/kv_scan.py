"""Reads all rows of one bucket of a table with a primary key, as they are at one moment."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from types import TracebackType

import pyarrow as pa

from sluice.client.admin import Admin
from sluice.client.connection import Connection
from sluice.client.scan_session import ScanSession, SessionLost
from sluice.client.stored_rows import StoredRows
from sluice.errors import (
    InvalidScanRequest,
    NonPrimaryKeyTable,
    ScanRestarted,
)
from sluice.formats.value_batch import values_of
from sluice.model import TableBucket, TableInfo, TablePath

_CLOSE_S = 5.0
"""Longest wait at the end of a block for a call under way."""
_KEEP_ALIVE_BYTES = 1
"""What is asked for to keep a scan alive: the smallest batch, of one row."""


class KvScanner:
    """One full scan, while a ``with`` block lasts. Use it from one thread.

    The server freezes the rows when the block begins. A batch is fetched ahead of its consumer.
    While he takes his time, a row is fetched now and then, so that the server does not think that
    nobody wants the rows any more. Memory is three times ``scan_max_bytes``, and those rows.
    """

    def __init__(
        self,
        connection: Connection,
        admin: Admin,
        path: TablePath,
        bucket: TableBucket,
        *,
        limit: int | None = None,
        info: TableInfo | None = None,
    ) -> None:
        """:param limit: most rows; all by default.
        :param info: the table as it was planned with; rows come in its schema.
        :raises TableNotExist: :raises NonPrimaryKeyTable: for a log table.
        :raises InvalidScanRequest: the limit is not one row or more.
        """
        self.info = info or admin.table_info(path)
        if not self.info.has_primary_key:
            raise NonPrimaryKeyTable(f"table {path} has no primary key: read its log")
        self.info.check_bucket(bucket)
        if limit is not None and limit < 1:
            raise InvalidScanRequest(f"limit = {limit}: ask for one row or more, or give no limit")
        self.bucket = bucket
        self._name = f"scan of bucket {bucket} of {path}"
        self._limit = limit
        config = connection.config
        self._batch_bytes = min(config.scan_max_bytes, config.max_message_bytes // 2)
        self._rows = StoredRows(admin, self.info, self._name)
        self._abandoned = threading.Event()
        self._session = ScanSession(connection, path, bucket, self._abandoned)
        keep_alive_s = config.scan_keep_alive_ms / 1000
        self._prefetch = _ScanPrefetch(
            self._session, self._batch_bytes, keep_alive_s, self._abandoned
        )
        self._is_open = False
        self._yielded = 0

    def __enter__(self) -> KvScanner:
        """Freezes the rows.

        :raises UnsupportedVersion: the server does not know such scans (Fluss 0.9 does not).
        :raises TooManyScanners: as many are open as may be, for as long as it was tried.
        :raises FlussError: as ``Client.lookup``.
        """
        self._prefetch.start(self._session.open(self._batch_bytes, self._limit))
        self._is_open = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the scan, here and on the server."""
        self._is_open = False
        self._prefetch.stop(_CLOSE_S)

    @property
    def log_offset(self) -> int:
        """The rows hold what the bucket's log has below this; known inside the block."""
        self._check_inside()
        return self._session.log_offset

    @property
    def note(self) -> str:
        """Nothing need be told of rows of a scan."""
        return ""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows in the order of their keys, each once, in the schema of ``info``.

        Another call goes on where the one before has ended.

        :raises ScanRestarted: the server has lost the frozen rows; what was yielded is of a moment
            that cannot be had again. Give it up and begin with a new scanner.
        :raises CorruptRecord: what came is no row of this table.
        :raises SchemaNotExist: a row is newer than the schema.
        :raises FlussError: the server cannot be reached in time.
        """
        self._check_inside()
        try:
            for records in self._prefetch.records():
                if not records:
                    continue
                batch = self._rows.decode(values_of(records))
                self._yielded += batch.num_rows
                yield batch
                self._check_inside()
        except SessionLost as error:
            raise ScanRestarted(
                f"{self._name} cannot go on, its frozen rows are gone: {error}. {self._yielded}"
                f" rows as of log offset {self._session.log_offset} were yielded: give them up and"
                " begin a new scan",
                rows=self._yielded,
                log_offset=self._session.log_offset,
                bucket=str(self.bucket),
            ) from error

    def _check_inside(self) -> None:
        if not self._is_open:
            raise RuntimeError(f"{self._name} is read inside a with block")


class _ScanPrefetch:
    """A thread that fetches batches until about one waits, then keeps the session alive."""

    def __init__(
        self,
        session: ScanSession,
        batch_bytes: int,
        keep_alive_s: float,
        abandoned: threading.Event,
    ) -> None:
        self._session = session  # of the thread, once that runs
        self._batch_bytes = batch_bytes
        self._keep_alive_s = keep_alive_s
        self._abandoned = abandoned
        self._changed = threading.Condition()  # guards the rest
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._ended = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="sluice-kv-scan", daemon=True)

    def start(self, first: bytes) -> None:
        """Begins with the first batch, which is here already."""
        self._waiting.append(first)
        self._bytes = len(first)
        if self._session.has_more:
            self._thread.start()
        else:
            self._ended = True

    def stop(self, timeout_s: float) -> None:
        """Ends the session, after the call under way; waits no longer than that for it."""
        with self._changed:
            self._abandoned.set()
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def records(self) -> Iterator[bytes]:
        """Batches as they come; the error that ended the session behind them."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._ended)
                if not self._waiting:
                    if self._error is not None:
                        raise self._error
                    return
                records = self._waiting.popleft()
                self._bytes -= len(records)
                self._changed.notify_all()
            yield records

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            while self._session.has_more and (wanted := self._wanted_bytes()):
                records = self._session.more(wanted)
                with self._changed:
                    self._waiting.append(records)
                    self._bytes += len(records)
                    self._changed.notify_all()
        except BaseException as failure:  # it belongs to the consumer
            error = failure
        finally:
            self._session.close()
            with self._changed:
                self._ended, self._error = True, error
                self._changed.notify_all()

    def _wanted_bytes(self) -> int:
        """How much to fetch next, as soon as it is time for it; 0: nobody waits any more."""
        with self._changed:
            has_room = self._changed.wait_for(
                lambda: self._bytes < self._batch_bytes or self._abandoned.is_set(),
                self._keep_alive_s,
            )
            if self._abandoned.is_set():
                return 0
            return self._batch_bytes if has_room else _KEEP_ALIVE_BYTES
