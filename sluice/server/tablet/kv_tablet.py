"""One bucket of a table with a primary key: its rows, kept by key, beside its log.

The log comes first. A put works out the changelog, appends it to the log, and then changes the
store, which knows the log offset that it contains. Whatever happens in between, the store is behind
the log and never ahead, and takes the rest from there. The log also knows the writers, so that a
put that is sent again is stored once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import structlog

from sluice.errors import (
    CorruptRecord,
    KvSnapshotNotExist,
    KvStorageError,
    RecordTooLarge,
    UnknownTableOrBucket,
)
from sluice.failpoints import failpoint
from sluice.formats.kv_batch import KvBatch
from sluice.formats.kv_snapshots import KvSnapshot
from sluice.formats.log_batch import (
    LogBatchHeader,
    change_types,
    check_crc,
    decode_log_batch,
    encode_log_batch,
    iter_batches,
    read_header,
)
from sluice.formats.types import arrow_schema
from sluice.model import TableBucket
from sluice.server.tablet.fetch import read_slice
from sluice.server.tablet.files import LogFiles
from sluice.server.tablet.kv_files import KvFolder
from sluice.server.tablet.kv_merge import MergeResult, RowBytesLimit, merge
from sluice.server.tablet.kv_rows import DELETE, UPDATE_BEFORE, KvTable
from sluice.server.tablet.kv_store import KvResources, KvStore, KvStoreCorrupt
from sluice.server.tablet.log import BucketLog
from sluice.server.tablet.ports import HostedTable
from sluice.server.tablet.scan_view import KvView

_REPLAY_BYTES = 4 * 1024 * 1024
_HEADROOM = 64 * 1024  # of an answer, beside the batch in it
_OLD_ROWS_FACTOR = 4  # so often what fits an answer: the changelog that they go to is compressed
_KEYS_AT_ONCE = 256  # so many rows may be read beyond what fits an answer

_log = structlog.get_logger("sluice.kv")


class Snapshots(Protocol):
    """What a tablet asks of the coordinator's record of KV snapshots."""

    def newest(self, bucket: TableBucket) -> KvSnapshot | None:
        """The newest snapshot of a bucket with its files; None if there is none.

        :raises KvSnapshotNotExist: it cannot be read.
        """

    def covered(self, bucket: TableBucket) -> int:
        """The log offset of the newest snapshot; 0 if there is none."""

    def folder(self, bucket: TableBucket) -> Path:
        """Where the bucket's snapshots lie. :raises UnknownTableOrBucket: it was dropped."""

    def next_id(self, bucket: TableBucket) -> int: ...

    def exists(self, bucket: TableBucket, snapshot_id: int) -> bool: ...

    def commit(self, snapshot: KvSnapshot, coordinator_epoch: int, leader_epoch: int) -> None:
        """Registers a snapshot. :raises FlussError: it is refused."""

    def retain(self) -> None:
        """Deletes what is neither among the newest nor leased any more."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What all tablets share."""

    resources: KvResources
    files: LogFiles
    snapshots: Snapshots
    max_bytes: int
    """Largest answer, and so the largest batch of the changelog."""


class KvTablet:
    """A bucket. ``_write_lock`` lets one put happen at a time, ``_open_lock`` one opening.

    Who calls it holds the read side of the bucket's leadership, or the write side to close.
    """

    def __init__(
        self,
        bucket: TableBucket,
        hosted: Callable[[], HostedTable],
        log: BucketLog,
        folder: Path,
        environment: Environment,
    ) -> None:
        self.bucket = bucket
        self.log = log
        self.folder = KvFolder(folder, environment.files)
        self._hosted = hosted
        self._environment = environment
        self._write_lock = threading.Lock()
        self._open_lock = threading.Lock()
        self._store: KvStore | None = None
        self._table: KvTable | None = None

    # -- writing

    def put(self, batch: KvBatch, target_columns: Sequence[int], *, overwrite: bool) -> int:
        """Applies a batch; answers the end offset of the changelog that it made.

        :raises OutOfOrderSequence, DuplicateSequence: see ``WriterStates``.
        :raises KvStorageError, LogStorageError: not stored, or not known to be: send it again.
        :raises RecordTooLarge: its changelog is larger than one answer of a fetch, or the rows
            that it changes are too many to be read at once.
        """
        with self._write_lock:
            store = self._opened()
            self._catch_up(store)  # after a put that failed half way
            if batch.writer_id >= 0:
                stored = self.log.stored_end(batch.writer_id, batch.batch_sequence)
                if stored is not None:
                    return stored
            table = self._current_table()
            limit = RowBytesLimit(self.log.name, self._environment.max_bytes * _OLD_ROWS_FACTOR)
            merged = merge(table, batch, target_columns, store.get, limit, overwrite=overwrite)
            content = self._changelog(table, merged, batch)
            header = read_header(content)
            failpoint("server.put_kv.before_log")
            base = self.log.append(header, content)
            failpoint("server.put_kv.after_log")
            end = base + header.last_offset_delta + 1
            store.write(merged.puts, merged.deletes, end, table.rows_added(merged.change_types))
            failpoint("server.put_kv.after_store")
            return end

    def _changelog(self, table: KvTable, merged: MergeResult, batch: KvBatch) -> bytes:
        """All changes as one batch of the newest schema; nothing changed: an empty one."""
        rows = merged.rows
        if rows is None:
            rows = pa.RecordBatch.from_pylist([], schema=arrow_schema(table.schema))
        content = encode_log_batch(
            rows,
            table.schema_id,
            writer_id=batch.writer_id,
            batch_sequence=batch.batch_sequence,
            compression=table.compression,
            level=table.level,
            change_types=merged.change_types,
        )
        if len(content) > self._environment.max_bytes - _HEADROOM:
            raise RecordTooLarge(
                f"bucket {self.log.name}: the changelog of {len(batch.keys)} records takes"
                f" {len(content)} bytes, more than a reader could fetch"
                f" ({self._environment.max_bytes}): write fewer rows at once"
            )
        return content

    # -- reading

    def lookup(self, keys: list[bytes]) -> list[bytes | None]:
        """The stored values of keys in their order.

        :raises RecordTooLarge: they do not fit one answer.
        """
        store, values = self._opened(), list[bytes | None]()
        left = self._environment.max_bytes - _HEADROOM
        for start in range(0, len(keys), _KEYS_AT_ONCE):
            found = store.get(keys[start : start + _KEYS_AT_ONCE])
            left -= sum(map(len, filter(None, found)))
            if left < 0:
                raise RecordTooLarge(
                    f"bucket {self.log.name}: the rows of {len(keys)} keys take more than the"
                    f" {self._environment.max_bytes} bytes that fit one answer: look up fewer"
                )
            values += found
        return values

    def prefix_lookup(self, prefix: bytes, max_bytes: int) -> list[bytes]:
        """The stored values of all keys with this prefix. :raises RecordTooLarge: too many."""
        return self._opened().prefix(prefix, max_bytes)

    def first(self, limit: int, max_bytes: int) -> list[bytes]:
        """The stored values of the first keys. :raises RecordTooLarge: too many."""
        return self._opened().first(limit, max_bytes)

    def checkpoint(self, folder: Path) -> None:
        """Freezes the store as it is now; puts go on meanwhile."""
        self._opened().checkpoint(folder)

    def open_view(self) -> tuple[KvView, int]:
        """The rows as they are now, whatever is put later, and the log offset that they go up to.

        The view keeps the store open: release it before the store is closed.
        """
        with self._write_lock:  # else a put might be in the rows and not in the offset
            store = self._opened()
            self._catch_up(store)
            return KvView(self.log.name, store.snapshot_iterator()), store.log_offset

    def snapshots_open(self) -> int:
        """How many views there are, by RocksDB's own count; 0 while the store is closed."""
        store = self._store
        return store.snapshots_open() if store is not None else 0

    # -- life

    def close(self) -> None:
        """Gives up the store; the next call opens it again. Nobody may use it meanwhile."""
        store, self._store = self._store, None
        if store is not None:
            self._close(store)

    def _close(self, store: KvStore) -> None:
        try:
            self.log.sync()  # the store may come to hold more than its offset says
        except OSError as error:
            _log.error("log not synced", bucket=self.log.name, error=str(error))
        store.close()

    def delete(self) -> None:
        """Gives up the store and removes it. Nobody may use it meanwhile."""
        store, self._store = self._store, None
        if store is not None:
            store.close()
        self.folder.discard()

    def discard_damaged(self) -> None:
        """Gives up a store in which damage was found; the log makes it anew. Nobody may use it."""
        self.close()
        try:
            self.folder.discard_damaged()
        except OSError as error:
            _log.error("damaged KV store stays", bucket=self.log.name, error=str(error))

    # -- opening

    def _opened(self) -> KvStore:
        store = self._store
        if store is not None:
            return store
        with self._open_lock:
            if self._store is None:
                self._store = self._open()
            return self._store

    def _open(self) -> KvStore:
        """The store as the log says; what is lost or damaged is made anew."""
        try:
            self.folder.make()
        except OSError as error:
            raise KvStorageError(f"{self.folder.path}: {error.strerror or error}") from error
        store = self._open_local() or self._rebuild()
        try:
            self._catch_up(store)
            if self.folder.is_damaged:
                self.folder.mark_rebuilt()
        except OSError as error:
            self._close(store)
            raise KvStorageError(f"{self.folder.path}: {error.strerror or error}") from error
        except BaseException:
            self._close(store)
            raise
        return store

    def _open_local(self) -> KvStore | None:
        """The store that is there, if it can be used."""
        if not self.folder.db.exists():
            return None
        try:
            store = KvStore(self.folder.db, self._environment.resources)
        except KvStoreCorrupt as error:
            _log.warning("damaged KV store made anew", bucket=self.log.name, error=str(error))
            self.folder.discard()
            return None
        if store.log_offset <= self.log.end_offset:
            return store
        # A power loss took the end of the log, which is synced later than RocksDB's files.
        _log.warning(
            "KV store is ahead of its log; made anew",
            bucket=self.log.name,
            log_offset=store.log_offset,
            log_end_offset=self.log.end_offset,
        )
        store.close()
        self.folder.discard()
        return None

    def _rebuild(self) -> KvStore:
        """From the newest snapshot; if there is none that can be read, from the log alone."""
        snapshots, resources = self._environment.snapshots, self._environment.resources
        if self.folder.is_damaged and not self.log.start_offset:
            _log.warning("damaged KV store made anew from the log", bucket=self.log.name)
            return KvStore(self.folder.db, resources)
        try:
            snapshot = snapshots.newest(self.bucket)
            if snapshot is None:
                return KvStore(self.folder.db, resources)
            if snapshot.log_offset > self.log.end_offset:
                raise KvStorageError(
                    f"KV snapshot {snapshot.snapshot_id} goes up to log offset"
                    f" {snapshot.log_offset}, but the log ends at {self.log.end_offset}"
                )
            self.folder.restore(snapshot)
            store = KvStore(self.folder.db, resources)
        except (KvSnapshotNotExist, KvStorageError) as error:
            _log.warning("KV snapshot of no use", bucket=self.log.name, error=str(error))
            self.folder.discard()
            return KvStore(self.folder.db, resources)
        _log.info("KV store restored", bucket=self.log.name, snapshot_id=snapshot.snapshot_id)
        return store

    def _catch_up(self, store: KvStore) -> None:
        """Takes over what the log has and the store has not."""
        if store.log_offset >= self.log.end_offset:
            return
        if store.log_offset < self.log.start_offset:
            raise KvStorageError(
                f"bucket {self.log.name}: the store has what lies below log offset"
                f" {store.log_offset}, but the log begins at {self.log.start_offset} only: restore"
                " the data directory from a backup"
            )
        first, table = store.log_offset, self._current_table()
        for header, view in self._batches(first):
            puts, deletes, kinds = _replayed(table, header, view)
            store.write(puts, deletes, header.next_offset, table.rows_added(kinds))
            failpoint("server.kv_replay.after_batch")
        _log.info("KV store caught up", bucket=self.log.name, start=first, end=store.log_offset)

    def _batches(self, offset: int) -> Iterator[tuple[LogBatchHeader, memoryview]]:
        while offset < self.log.end_offset:
            found = self.log.slice(offset, _REPLAY_BYTES, whole_first=True)
            assert found is not None, "below the end there is a batch"
            buffer = memoryview(bytearray(found.length))
            read_slice(self._environment.files, found, buffer)
            for header, view in iter_batches(buffer):
                yield header, view
                offset = header.next_offset

    def _current_table(self) -> KvTable:
        hosted = self._hosted()
        if self._table is None or self._table.hosted is not hosted:
            self._table = KvTable(hosted)
        return self._table


def _replayed(
    table: KvTable, header: LogBatchHeader, view: memoryview
) -> tuple[list[tuple[bytes, bytes]], list[bytes], bytes]:
    """What a batch of the changelog does to the store: the last change of each key; all kinds."""
    check_crc(view, header)
    kinds = change_types(view, header)
    if not header.record_count:
        return [], [], b""
    if kinds is None:
        raise CorruptRecord(f"the changelog batch at offset {header.base_offset} has no changes")
    schema = table.schema_of(header.schema_id)
    batch = decode_log_batch(view, header, arrow_schema(schema))
    keys = table.keys(batch).to_pylist()
    last = {
        key: at
        for at, (key, kind) in enumerate(zip(keys, kinds, strict=True))
        if kind != UPDATE_BEFORE
    }
    puts = [at for at in last.values() if kinds[at] != DELETE]
    values = table.encode(batch.take(pa.array(puts, pa.int64())), header.schema_id, schema)
    deletes = [key for key, at in last.items() if kinds[at] == DELETE]
    return list(zip([keys[at] for at in puts], values.to_pylist(), strict=True)), deletes, kinds


def require_hosted(found: HostedTable | None, bucket: TableBucket) -> HostedTable:
    """:raises UnknownTableOrBucket: the table was dropped."""
    if found is None or not found.has_bucket(bucket.partition_id, bucket.bucket):
        raise UnknownTableOrBucket(f"there is no bucket {bucket}: was its table dropped?")
    return found
