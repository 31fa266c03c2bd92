"""Scans all rows of one bucket of a primary-key table, as of one point in time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator

import pyarrow as pa

from sluice.client.admin.admin import Admin
from sluice.client.connection.connection import Connection
from sluice.client.kv.scan_session import ScanSession, SessionLost
from sluice.client.kv.stored_rows import StoredRows
from sluice.errors import (
    InvalidScanRequest,
    NonPrimaryKeyTable,
    ScanRestarted,
)
from sluice.formats.kv.value_batch import values_of
from sluice.model import TableBucket, TableInfo, TablePath

_CLOSE_S = 5.0
"""Longest wait for a running call at the end of a block, in seconds."""
_KEEP_ALIVE_BYTES = 1
"""Batch size that keeps a scan alive: the smallest batch, which is one row."""


class KvScanner:
    """One full scan of a bucket inside a ``with`` block. Use it from one thread.

    The server freezes the rows when the block begins. One batch is fetched ahead. If the caller is
    slow, the scanner fetches a single row from time to time, so that the server does not end the
    scan. Memory is three times ``scan_max_bytes``, plus those rows.
    """

    note = ""
    """A note for the user about these rows; none for a scan."""

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
        """:param limit: maximum number of rows; all by default.
        :param info: the table as planned, whose schema the rows get; by default the current one.
        :raises TableNotExist: the table does not exist.
        :raises NonPrimaryKeyTable: the table is a log table.
        :raises InvalidScanRequest: the limit is below 1.
        """
        self.info = info or admin.table_info(path)
        if not self.info.has_primary_key:
            raise NonPrimaryKeyTable(
                f"table {path} has no primary key: read its log with log_reader"
            )
        self.info.check_bucket(bucket)
        if limit is not None and limit < 1:
            raise InvalidScanRequest(f"limit = {limit}: use 1 row or more, or omit the limit")
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
        """Starts the scan: the server freezes the rows.

        :raises UnsupportedVersion: the server does not support scans (Fluss 0.9 does not).
        :raises TooManyScanners: the server had no free scan until the retries ended.
        :raises FlussError: see ``Client.lookup``.
        """
        self._prefetch.start(self._session.open(self._batch_bytes, self._limit))
        self._is_open = True
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the scan in the client and on the server."""
        self._is_open = False
        self._prefetch.stop(_CLOSE_S)

    @property
    def log_offset(self) -> int:
        """The rows contain all changes of the bucket's log below this offset; inside the block."""
        self._check_inside()
        return self._session.log_offset

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows in key order, each once, in the schema of ``info``.

        A second call continues where the first ended.

        :raises ScanRestarted: the server lost the frozen rows. Discard the yielded rows and start
            again with a new scanner.
        :raises CorruptRecord: a response does not hold rows of this table.
        :raises SchemaNotExist: a row was written with a newer schema.
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
                f"{self._name} cannot continue, the server lost its frozen rows: {error}. Discard"
                f" the {self._yielded} rows read as of log offset {self._session.log_offset} and"
                " start a new scan",
                rows=self._yielded,
                log_offset=self._session.log_offset,
                bucket=str(self.bucket),
            ) from error

    def _check_inside(self) -> None:
        if not self._is_open:
            raise RuntimeError(f"{self._name}: use the scanner inside a with block")


class _ScanPrefetch:
    """Fetches about one batch ahead on a thread, then keeps the session alive."""

    def __init__(
        self,
        session: ScanSession,
        batch_bytes: int,
        keep_alive_s: float,
        abandoned: threading.Event,
    ) -> None:
        self._session = session  # used by the thread only, once it runs
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
        """Starts the thread, after the first batch was received."""
        self._waiting.append(first)
        self._bytes = len(first)
        if self._session.has_more:
            self._thread.start()
        else:
            self._ended = True

    def stop(self, timeout_s: float) -> None:
        """Ends the session after the running call; waits at most ``timeout_s`` for it."""
        with self._changed:
            self._abandoned.set()
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def records(self) -> Iterator[bytes]:
        """Yields batches as they arrive, then raises the error that ended the session, if any."""
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
        except BaseException as failure:  # raised to the consumer
            error = failure
        finally:
            self._session.close()
            with self._changed:
                self._ended, self._error = True, error
                self._changed.notify_all()

    def _wanted_bytes(self) -> int:
        """Waits until the next fetch is due and returns its size; 0 once the scan is abandoned."""
        with self._changed:
            has_room = self._changed.wait_for(
                lambda: self._bytes < self._batch_bytes or self._abandoned.is_set(),
                self._keep_alive_s,
            )
            if self._abandoned.is_set():
                return 0
            return self._batch_bytes if has_room else _KEEP_ALIVE_BYTES
