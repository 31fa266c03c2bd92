"""Log and rows of a bucket for a round; it is pickled to an executor and connects there."""

from __future__ import annotations

import tempfile
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from sluice.client.admin.admin import Admin
from sluice.client.connection.connection import Connection
from sluice.client.connection.unreachable import waited_for_once
from sluice.client.kv.scanner import KvScanner
from sluice.client.kv.snapshot_reader import KvSnapshotReader
from sluice.client.log.reader import LogReader
from sluice.config import ClientConfig
from sluice.errors import KvSnapshotNotExist, SluiceError, StorageError, UnsupportedVersion
from sluice.model import TableInfo, TablePath
from sluice.rounds.copy.spill import SpillFolder
from sluice.rounds.values.ports import BucketRows
from sluice.rounds.values.reasons import reason_of
from sluice.rounds.values.types import LogRecords, Split, StartMode


class ClientLogSource:
    """LogSource and KeyedSource of a round. Safe for use by many threads, on one connection.

    It connects at the first read; the connection is closed when the last reference is dropped.
    """

    def __init__(
        self, config: ClientConfig | str, path: TablePath, info: TableInfo | None = None
    ) -> None:
        """:param info: the table as planned, whose schema the rows get; by default each executor
        uses the current schema.
        """
        self.config = ClientConfig(bootstrap=config) if isinstance(config, str) else config
        self.path = path
        self.info = info
        self._round_id = uuid.uuid4().hex
        self._lock = threading.Lock()  # guards _reader
        self._reader: LogReader | None = None

    def __getstate__(self) -> tuple[ClientConfig, TablePath, TableInfo | None, str]:
        return self.config, self.path, self.info, self._round_id

    def __setstate__(self, state: tuple[ClientConfig, TablePath, TableInfo | None, str]) -> None:
        self.__init__(*state[:3])  # type: ignore[misc]
        self._round_id = state[3]

    def read(self, split: Split) -> Iterator[LogRecords]:
        """Yields batches in offset order from the split's start to its stop, empty ones included.

        :raises LogOffsetOutOfRange: the log no longer has the start offset.
        :raises CorruptRecord: a batch cannot be read, or the lake cannot hold it.
        """
        start, stop, is_part = split.start_offset, split.stop_offset, split.part is not None
        reader, bucket = self._open(), split.bucket
        windows = {bucket: (start, stop)}
        with (
            waited_for_once(self._round_id, reader.connection, self.path, bucket),
            closing(reader.read_many(windows, whole_batches=is_part)) as batches,
        ):
            for _, records in batches:
                reader.check_for_lake(bucket, records)
                yield records

    @contextmanager
    def rows(self, split: Split) -> Iterator[BucketRows]:
        """Yields the initial rows of a bucket, from its downloaded KV snapshot or from a scan.

        If the snapshot cannot be downloaded and the cluster supports scans, the bucket is scanned.

        :raises KvSnapshotNotExist: the snapshot was deleted; or this machine does not see one of
            its files, and the cluster does not support scans.
        :raises StorageError: a file is truncated, cannot be read, or cannot be stored here, and the
            cluster does not support scans.
        :raises SpillFailed: there is no room for the files.
        :raises UnsupportedVersion: the split needs a scan, and the cluster does not support scans.
        """
        with ExitStack() as stack:
            yield self._rows(split, stack)

    def _rows(self, split: Split, stack: ExitStack) -> BucketRows:
        assert split.keyed is not None
        reader = self._open()
        where = (reader.connection, reader.admin, self.path, split.bucket)
        unread: SluiceError | None = None
        if split.keyed.start_mode is StartMode.KV_SNAPSHOT:
            assert split.keyed.snapshot_id is not None
            # In the folder of spilled changes, where files of killed processes are deleted.
            spill = SpillFolder(Path(split.keyed.spill_dir or tempfile.gettempdir()))
            stack.callback(spill.close)
            snapshot = KvSnapshotReader(
                *where, split.keyed.snapshot_id, info=reader.info, folder=str(spill.path)
            )
            try:
                return stack.enter_context(snapshot)
            except StorageError as error:
                unread = error
            except KvSnapshotNotExist as error:
                # The snapshot exists, but this machine may not see the cluster's storage.
                if not error.details.get("file_missing"):
                    raise
                unread = error
        try:
            rows = stack.enter_context(KvScanner(*where, info=reader.info))
        except UnsupportedVersion as error:
            if unread is not None:
                raise unread from error
            raise UnsupportedVersion(
                f"bucket {split.bucket} of table {self.path} has to be scanned, as"
                f" {split.keyed.scan_reason}, but the cluster does not support scans: wait until"
                " it has a new snapshot (kv.snapshot.interval)"
            ) from error
        why = split.keyed.scan_reason
        if unread is not None:
            why = f"its KV snapshot could not be read: {reason_of(unread).text}"
        return _ScannedRows(rows, f"bucket {split.bucket.name} was scanned, as {why}")

    def _open(self) -> LogReader:
        with self._lock:
            if self._reader is None:
                connection: Any = Connection(self.config)
                self._reader = LogReader(connection, Admin(connection), self.path, self.info)
            return self._reader


class _ScannedRows:
    """Rows of a scan, with the reason for the scan as their note."""

    def __init__(self, rows: KvScanner, note: str) -> None:
        self._rows, self.note = rows, note
        self.log_offset = rows.log_offset

    def batches(self) -> Iterator[pa.RecordBatch]:
        return self._rows.batches()
