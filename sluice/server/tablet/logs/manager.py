"""Opens, syncs and deletes the logs of the server."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

import structlog

from sluice.clock import Clock
from sluice.errors import DataDirError, LogStorageError, UnknownTableOrBucket
from sluice.model import TableBucket, TableInfo
from sluice.server.data_dir import bucket_folder, delete_table, orphans, sync_folder
from sluice.server.log_ends import StoredLogEnds
from sluice.server.tablet.buckets.files import LogFiles
from sluice.server.tablet.buckets.ports import HostedTable, Tables
from sluice.server.tablet.logs.log import BucketLog
from sluice.server.ticker import Ticker
from sluice.server.time_limit import TimeLimit

SYNCS_AT_ONCE = 16
"""Threads that sync logs at a stop. The system writes the files of many syncs together."""

_log = structlog.get_logger("sluice.log")


class LogManager:
    """All logs by bucket. ``_lock`` guards the mapping; each log has its own lock."""

    def __init__(
        self,
        root: Path,
        tables: Tables,
        lake_offsets: Callable[[TableInfo], Mapping[TableBucket, int]],
        files: LogFiles,
        segment_bytes: int,
        clock: Clock,
        ends: StoredLogEnds,
        kv_offset: Callable[[TableBucket], int],
        *,
        is_same_boot: bool = False,
    ) -> None:
        """:param lake_offsets: returns the lake offsets of a table's buckets.

        :param kv_offset: returns the log offset of a bucket's newest KV snapshot, or 0.
        :param is_same_boot: the machine has run since the last server wrote to the logs.
        """
        self._root = root
        self._tables = tables
        self._lake_offsets = lake_offsets
        self._files = files
        self._segment_bytes = segment_bytes
        self._clock = clock
        self._ends = ends  # guarded by _ends_lock
        self._ends_lock = threading.Lock()
        self._kv_offset = kv_offset
        self._is_same_boot = is_same_boot
        self._lock = threading.RLock()
        self._logs: dict[TableBucket, BucketLog] = {}
        self._ticker = Ticker("log-sync", self._sync_all)

    def start(self, sync_interval_ms: int) -> None:
        """Loads the logs, deletes those of dropped tables, and starts to sync.

        :raises LogStorageError: a file cannot be read or written.
        :raises StorageError: the metadata cannot be read or written.
        :raises DataDirError: a log belongs to a table id that the metadata never issued.
        """
        self._root.mkdir(parents=True, exist_ok=True)
        sync_folder(self._root.parent)
        self._remove_orphans()
        for table in self._tables.tables():
            in_lake = self._lake_offsets(table.info)
            for bucket in table.buckets():
                folder, lake_offset = self._folder(table, bucket), in_lake.get(bucket, 0)
                given = self._given(bucket, folder)
                if folder.is_dir() or lake_offset > 0 or given > 0:
                    behind = self._ends.found.get(bucket, (None, False))[0]
                    log = self._open(table, bucket, folder, lake_offset, given, behind)
                    self._logs[bucket] = log
        self._ends.begin()
        self._keep_damaged_ends()
        self._reserve_ends()
        self._ticker.start(sync_interval_ms)

    def _given(self, bucket: TableBucket, folder: Path) -> int:
        """An offset below which the log has given all offsets, by what others know of it."""
        end, is_exact = self._ends.found.get(bucket, (0, False))
        if not is_exact and any(map(_has_offsets, folder.glob("*.log"))):
            end = 0  # it is beyond the end of the log, as it should be
        return max(end, self._kv_offset(bucket))

    def _reserve_ends(self) -> None:
        with self._ends_lock:
            logs = list(self._logs.items())  # a bucket that is dropped from now on is forgotten
            self._ends.reserve(_exact_ends(logs))

    def _keep_damaged_ends(self) -> None:
        """Leaves the exact ends of logs as they are whose end is damaged: they do not grow.

        Only a file from a backup can say more.
        """
        damaged = {bucket for bucket, log in self._logs.items() if not log.is_end_exact}
        found = self._ends.found.items()
        self._ends.close({one: end for one, (end, exact) in found if exact and one in damaged})

    def find(self, table: HostedTable, bucket: TableBucket) -> BucketLog:
        """Returns the bucket's log, and creates it at its first use.

        :raises UnknownTableOrBucket: the table has no such bucket.
        :raises LogStorageError: its folder cannot be created.
        """
        log = self._logs.get(bucket)
        if log is not None:
            return log
        with self._lock:
            log = self._logs.get(bucket)
            current = self._tables.find(bucket.table_id)
            if current is None or not current.has_bucket(bucket.partition_id, bucket.bucket):
                raise UnknownTableOrBucket(f"table {table.info.path} has no bucket {bucket}")
            if log is None:
                log = self._open(current, bucket, self._folder(current, bucket))
                self._logs[bucket] = log
            return log

    def opened(self, bucket: TableBucket) -> BucketLog | None:
        """The bucket's log if it was ever written to, else None."""
        return self._logs.get(bucket)

    def highest_writer_id(self) -> int:
        """The highest id of a writer that a log knows, or -1."""
        return max((log.highest_writer_id() for log in list(self._logs.values())), default=-1)

    def beyond(self, bucket: TableBucket, offset: int) -> tuple[int, int | None]:
        """The number of offsets in a bucket's log from ``offset`` on, and the time of the first.

        (0, None) for a log without any writes.
        """
        log = self._logs.get(bucket)
        return (0, None) if log is None else log.beyond(offset)

    def drop_within(self, ends: Mapping[TableBucket, int], drop: Callable[[], object]) -> bool:
        """Calls ``drop`` unless a log has rows at its offset or above; returns whether it did.

        Appends wait meanwhile, and fail once the bucket is dropped: no row comes between the look
        and the drop. If ``drop`` raises an error, the logs stay as they are.

        :param ends: an offset for each bucket of a partition.
        """
        with self._lock, ExitStack() as stack:
            opened = [(self._logs.get(bucket), end) for bucket, end in ends.items()]
            logs = [(log, end) for log, end in opened if log is not None]
            closers = [stack.enter_context(log.held()) for log, _ in logs]
            if any(log.end_offset > max(end, log.start_offset) for log, end in logs):
                return False
            drop()
            for close in closers:
                close()
        return True

    def drop_table(self, info: TableInfo, partition_id: int | None = None) -> None:
        """Deletes the logs of a dropped table or partition.

        After a crash, the next start deletes the rest.
        """
        with self._lock:
            gone = [
                bucket
                for bucket in self._logs
                if bucket.table_id == info.table_id
                and (partition_id is None or bucket.partition_id == partition_id)
            ]
            logs = [self._logs.pop(bucket) for bucket in gone]
        for log in logs:
            log.delete()
        delete_table(self._root, info, partition_id)
        with self._ends_lock:
            self._ends.drop(info.table_id, partition_id)

    def sync(self, buckets: Iterable[TableBucket]) -> None:
        """Syncs these buckets' logs to disk.

        :raises LogStorageError: a sync failed.
        """
        for bucket in buckets:
            log = self._logs.get(bucket)
            if log is None:
                continue  # never written to, or dropped
            try:
                log.sync()
            except OSError as error:
                raise LogStorageError(
                    f"bucket {log.name}: cannot sync the log: {error.strerror or error}"
                ) from error

    def sync_all(self, limit: TimeLimit) -> int:
        """Syncs every log within the limit, for a stop; returns how many were not synced."""
        self._ticker.announce_stop()
        return limit.each(list(self._logs.values()), _sync_at_stop, SYNCS_AT_ONCE)

    def stop(self, limit: TimeLimit) -> int:
        """Syncs and closes every log within the limit; returns how many were not closed."""
        self._ticker.stop(limit.left_s())
        with self._lock:
            logs, self._logs = self._logs, {}
        left = limit.each(list(logs.values()), BucketLog.close, SYNCS_AT_ONCE)
        if not left:
            with self._ends_lock:
                self._ends.close(_exact_ends(logs.items()))
        return left

    def _open(
        self,
        table: HostedTable,
        bucket: TableBucket,
        folder: Path,
        lake_offset: int = 0,
        given: int = 0,
        behind: int | None = None,
    ) -> BucketLog:
        name = f"{table.info.path} {bucket}"
        try:
            return BucketLog(
                name,
                folder,
                self._files,
                self._segment_bytes,
                self._clock,
                lake_offset=lake_offset,
                given=given,
                behind=behind,
                is_same_boot=self._is_same_boot,
                place=f"{table.info.path} {bucket.name}",
            )
        except OSError as error:
            place = error.filename or folder
            raise LogStorageError(f"bucket {name}: {place}: {error.strerror or error}") from error

    def _sync_all(self) -> None:
        for log in list(self._logs.values()):
            if self._ticker.is_stopping:
                return  # the stop syncs the others
            try:
                log.sync()
            except OSError as error:
                _log.error("cannot sync a log", bucket=log.name, error=str(error))
        self._reserve_ends()

    def _folder(self, table: HostedTable, bucket: TableBucket) -> Path:
        name = f"log-{bucket.bucket}"
        return bucket_folder(self._root, table.info, table.partitions, bucket, name)

    def _remove_orphans(self) -> None:
        """Deletes logs of dropped tables; stops the start if an id was never issued."""
        found = list(orphans(self._root, self._tables))
        for folder, is_issued in found:
            if not is_issued:
                raise DataDirError(
                    f"{folder} has an id that metadata.sqlite never issued to a table or partition,"
                    " so the metadata is new or older than the logs. Nothing was deleted: restore"
                    " metadata.sqlite from a backup. If there is none, be sure that no table needs"
                    " its rows, and only then move the folder out of the data directory"
                )
        for folder, _ in found:
            _log.info("deleted the log of a dropped table", folder=str(folder))
            shutil.rmtree(folder, ignore_errors=True)


def _has_offsets(path: Path) -> bool:
    """Whether a log file, by its name or its content, says that its log has given offsets out."""
    return path.stem.lstrip("0") != "" or path.stat().st_size > 0


def _exact_ends(logs: Iterable[tuple[TableBucket, BucketLog]]) -> dict[TableBucket, int]:
    """The ends that the logs themselves tell, of those that have given an offset out."""
    ends = {bucket: log.end_offset for bucket, log in logs if log.is_end_exact}
    return {bucket: end for bucket, end in ends.items() if end}


def _sync_at_stop(log: BucketLog) -> None:
    with suppress(OSError):  # tried again, and logged, when the log is closed
        log.sync(record=False)
