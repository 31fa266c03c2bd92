"""One bucket of a primary-key table: its key-value store and its log.

The log comes first. A put computes the changelog, appends it to the log, and then changes the
store, which records its log offset. So the store is never ahead of the log, and catches up from it
after a failure. The log also tracks the writers, so that a repeated put is stored once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import structlog

from sluice.clock import Clock
from sluice.errors import (
    CorruptRecord,
    KvSnapshotNotExist,
    KvStorageError,
    RecordTooLarge,
    UnknownTableOrBucket,
)
from sluice.failpoints import failpoint
from sluice.formats.kv.kv_batch import KvBatch
from sluice.formats.log.batch import LogBatchHeader, check_crc, iter_batches, read_header
from sluice.formats.types.types import arrow_schema
from sluice.model import TableBucket
from sluice.server.data_dir import local_path
from sluice.server.tablet.buckets.files import LogFiles
from sluice.server.tablet.buckets.ports import HostedTable, Snapshots
from sluice.server.tablet.kv.auto_increment import AutoIncrement
from sluice.server.tablet.kv.files import KvFolder, KvSnapshotDamaged
from sluice.server.tablet.kv.merge import MergeResult, RowBytesLimit, merge
from sluice.server.tablet.kv.rows import DELETE, UPDATE_BEFORE, KvTable
from sluice.server.tablet.kv.scan_view import KvView
from sluice.server.tablet.kv.store import KvResources, KvStore, KvStoreCorrupt
from sluice.server.tablet.logs.log import BucketLog

_REPLAY_BYTES = 4 * 1024 * 1024
_HEADROOM = 64 * 1024  # bytes of a response in addition to its batch
_OLD_ROWS_FACTOR = 4  # times a response, as the changelog is compressed
_KEYS_AT_ONCE = 256  # rows that may be read beyond what fits

REFUSED_S = 30.0
"""How long calls are refused at once after the store could not be opened, at least."""
_REFUSED_TIMES = 10  # as long as the attempt took: the next one is seldom more lucky

_log = structlog.get_logger("sluice.kv")


@dataclass(frozen=True, slots=True)
class Environment:
    """Resources that all tablets share."""

    resources: KvResources
    files: LogFiles
    snapshots: Snapshots
    max_bytes: int
    """Maximum size of a response, and so of a changelog batch."""
    auto_increment: AutoIncrement
    clock: Clock


@dataclass(frozen=True, slots=True)
class _Refused:
    """Why a store could not be opened, and until when nobody tries it again."""

    problem: str
    until_s: float

    def error(self) -> CorruptRecord:
        """A new error, as the frames of the first one keep files open."""
        return CorruptRecord(self.problem)


class KvTablet:
    """A bucket. ``_write_lock`` serializes puts, ``_open_lock`` the opening of the store.

    Callers hold the read lock of the bucket (``Replicas``), or the write lock to close.
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
        self._refused: _Refused | None = None

    @property
    def refusal(self) -> CorruptRecord | None:
        """Why the store could not be opened when it was last tried, for a reason that stays."""
        refused = self._refused
        return None if refused is None else refused.error()

    # -- writing

    def put(self, batch: KvBatch, target_columns: Sequence[int], *, overwrite: bool) -> int:
        """Applies a batch; returns the end offset of its changelog.

        :raises OutOfOrderSequence, DuplicateSequence: see ``WriterStates``. The first also for a
            repeated batch whose changes a user has given up.
        :raises CorruptRecord: the log is damaged, or the store is lost.
        :raises KvStorageError, LogStorageError: the batch may not be stored; send it again.
        :raises RecordTooLarge: its changelog exceeds one fetch response, or the stored rows that it
            changes exceed the read limit.
        """
        with self._write_lock:
            store = self._opened()
            self._catch_up(store)  # after a put that failed between log and store
            if batch.writer_id >= 0:
                found = self.log.stored(batch.writer_id, batch.batch_sequence)
                if found is not None:
                    return found[1]
            table = self._current_table()
            limit = RowBytesLimit(self.log.name, self._environment.max_bytes * _OLD_ROWS_FACTOR)
            merged = merge(
                table, batch, target_columns, store.get, limit, self._numbers, overwrite=overwrite
            )
            content = self._changelog(table, merged, batch)
            header = read_header(content)
            failpoint("server.put_kv.before_log")
            base = self.log.append(header, content)
            failpoint("server.put_kv.after_log")
            end = base + header.last_offset_delta + 1
            store.write(merged.puts, merged.deletes, end, table.rows_added(merged.change_types))
            failpoint("server.put_kv.after_store")
            return end

    def _numbers(self, count: int) -> np.ndarray:
        info = self._current_table().hosted.info
        return self._environment.auto_increment.take(self.bucket, info, count)

    def _changelog(self, table: KvTable, merged: MergeResult, batch: KvBatch) -> bytes:
        """Encodes all changes as one batch of the newest schema; empty without changes."""
        rows = merged.rows
        if rows is None:
            rows = pa.RecordBatch.from_pylist([], schema=arrow_schema(table.schema))
        content = table.log_format.encode(
            table.log_format.rows(rows, table.schema),
            table.schema_id,
            writer_id=batch.writer_id,
            batch_sequence=batch.batch_sequence,
            change_types=merged.change_types,
        )
        if len(content) > self._environment.max_bytes - _HEADROOM:
            raise RecordTooLarge(
                f"bucket {self.log.name}: the changelog of {len(batch.keys)} records has"
                f" {len(content)} bytes, more than a fetch can return"
                f" ({self._environment.max_bytes}): write fewer rows at once"
            )
        return content

    # -- reading

    def lookup(self, keys: list[bytes]) -> list[bytes | None]:
        """Returns the stored values of keys in order.

        :raises RecordTooLarge: they do not fit in one response.
        """
        store, values = self._opened(), list[bytes | None]()
        left = self._environment.max_bytes - _HEADROOM
        for start in range(0, len(keys), _KEYS_AT_ONCE):
            found = store.get(keys[start : start + _KEYS_AT_ONCE])
            left -= sum(map(len, filter(None, found)))
            if left < 0:
                raise RecordTooLarge(
                    f"bucket {self.log.name}: the rows of {len(keys)} keys exceed the response"
                    f" limit of {self._environment.max_bytes} bytes: look up fewer keys at once"
                )
            values += found
        return values

    def row_count(self) -> int | None:
        """The number of rows, or None if it is not known, as with the changelog image WAL."""
        return self._opened().row_count

    def lookup_or_insert(self, keys: list[bytes]) -> list[bytes | None]:
        """As ``lookup``, but inserts missing rows: their keys, with nulls elsewhere.

        A row that another caller inserts at the same time stays as it is.

        :raises CorruptRecord: a key is not one of this table.
        :raises InvalidTargetColumn: the table does not allow such rows.
        :raises FlussError: as ``put`` and ``lookup``.
        """
        values = self.lookup(keys)
        missing = [key for key, value in zip(keys, values, strict=True) if value is None]
        if not missing:
            return values
        table = self._current_table()
        batch = table.rows_of_keys(pa.array(missing, pa.binary()))
        self.put(batch, table.key_positions, overwrite=False)
        return self.lookup(keys)

    def prefix_lookup(self, prefix: bytes, max_bytes: int) -> list[bytes]:
        """Returns the values of all keys with this prefix. :raises RecordTooLarge: too many."""
        return self._opened().prefix(prefix, max_bytes)

    def first(self, limit: int, max_bytes: int) -> list[bytes]:
        """Returns the values of the first keys. :raises RecordTooLarge: too many."""
        return self._opened().first(limit, max_bytes)

    def checkpoint(self, folder: Path) -> None:
        """Copies the store's current state by hard links, while puts continue."""
        self._opened().checkpoint(folder)

    def open_view(self) -> tuple[KvView, int]:
        """Returns a view of the current rows, and the log offset that they have reached.

        Later puts do not change the view. It keeps the store open: release it before the store is
        closed.
        """
        with self._write_lock:  # so that rows and offset match
            store = self._opened()
            self._catch_up(store)
            return KvView(self.log.name, store.snapshot_iterator()), store.log_offset

    def snapshots_open(self) -> int:
        """The number of open views, by RocksDB's own count; 0 while the store is closed."""
        store = self._store
        return store.snapshots_open() if store is not None else 0

    # -- life

    def close(self) -> None:
        """Closes the store; the next call opens it again. No other call may run."""
        store, self._store = self._store, None
        if store is not None:
            self._close(store)

    def _close(self, store: KvStore) -> None:
        try:
            self.log.sync()  # the store may contain changes after its offset
        except OSError as error:
            _log.error("cannot sync the log", bucket=self.log.name, error=str(error))
        store.close()

    def discard_damaged(self) -> None:
        """Sets a damaged store aside; the next call rebuilds it. No other call may run."""
        self.close()
        try:
            self.folder.set_aside()
        except OSError as error:
            _log.error("cannot move a damaged KV store", bucket=self.log.name, error=str(error))

    # -- opening

    def _opened(self) -> KvStore:
        """:raises CorruptRecord: the log is damaged, or the store is lost."""
        self.log.check_intact()
        store = self._store
        if store is not None:
            return store
        refused = self._refuse_at_once()
        # Else callers of a store that is refused wait for each attempt, on all of the workers.
        if not self._open_lock.acquire(blocking=refused is None):
            assert refused is not None
            raise refused.error()
        try:
            if self._store is None:
                self._refuse_at_once()  # if the caller before has just failed
                self._store = self._tried()
            return self._store
        finally:
            self._open_lock.release()

    def _refuse_at_once(self) -> _Refused | None:
        """:raises CorruptRecord: the store could not be opened a short time ago."""
        refused = self._refused
        if refused is not None and self._environment.clock.monotonic_s() < refused.until_s:
            raise refused.error()
        return refused

    def _tried(self) -> KvStore:
        now_s = self._environment.clock.monotonic_s
        began_s = now_s()
        try:
            store = self._open()
        except CorruptRecord as error:
            if not self.log.damage():  # which refuses calls by itself
                wait_s = max(REFUSED_S, (now_s() - began_s) * _REFUSED_TIMES)
                self._refused = _Refused(str(error), now_s() + wait_s)
            raise
        self._refused = None
        return store

    def _open(self) -> KvStore:
        """Opens the store and catches up with the log; rebuilds a lost or damaged store."""
        try:
            self.folder.make()
        except OSError as error:
            raise KvStorageError(f"{self.folder.path}: {error.strerror or error}") from error
        store = self._open_local() or self._rebuild()
        try:
            self._catch_up(store)
            self.folder.mark_rebuilt()
        except OSError as error:
            self._close(store)
            raise KvStorageError(f"{self.folder.path}: {error.strerror or error}") from error
        except BaseException:
            self._close(store)
            raise
        return store

    def _open_local(self) -> KvStore | None:
        """Opens the existing store; None if it cannot be used."""
        if not self.folder.db.exists():
            return None
        try:
            store = KvStore(self.folder.db, self._environment.resources)
        except KvStoreCorrupt as error:
            _log.warning("rebuilding a damaged KV store", bucket=self.log.name, error=str(error))
            self.discard_damaged()
            return None
        start, end = self.log.start_offset, self.log.end_offset
        if start <= store.log_offset <= end:
            return store
        # The log lost its end in a power loss, because it is synced after RocksDB's files. Or old
        # segments were deleted, which a newer KV snapshot made unnecessary.
        _log.warning(
            "rebuilding a KV store, because its log has not the offset that it has reached",
            bucket=self.log.name,
            log_offset=store.log_offset,
            log_start_offset=start,
            log_end_offset=end,
        )
        store.close()
        self.folder.discard()
        return None

    def _rebuild(self) -> KvStore:
        """Rebuilds the store from the newest usable snapshot and the log, or from the log alone.

        :raises CorruptRecord: neither is left.
        """
        problems: list[str] = []
        store = self._from_snapshot(problems)
        if store is not None:
            return store
        self.folder.discard()
        if self.log.start_offset:
            raise self._lost(problems or ["it has no KV snapshot"])
        if self.log.end_offset:
            _log.warning("rebuilding a KV store from its log alone", bucket=self.log.name)
        return KvStore(self.folder.db, self._environment.resources)

    def _from_snapshot(self, problems: list[str]) -> KvStore | None:
        """The store of the newest usable snapshot; None if there is none.

        :param problems: gets why others cannot be used.
        """
        for snapshot_id in self._environment.snapshots.ids(self.bucket):
            try:
                store = self._restored(snapshot_id)
            except (KvSnapshotNotExist, KvSnapshotDamaged, KvStoreCorrupt) as error:
                problem = f"KV snapshot {snapshot_id} cannot be used: {error}"
                _log.error("a KV snapshot is damaged", bucket=self.log.name, problem=problem)
                problems.append(problem)
                self.folder.discard_brought()
                continue
            _log.info("KV store restored", bucket=self.log.name, snapshot_id=snapshot_id)
            return store
        return None

    def _restored(self, snapshot_id: int) -> KvStore:
        """The store of a snapshot; the one that is there stays until that has been opened.

        :raises KvSnapshotNotExist, KvSnapshotDamaged: it cannot be used.
        """
        snapshot = self._environment.snapshots.metadata(self.bucket, snapshot_id)
        start, end = self.log.start_offset, self.log.end_offset
        if not start <= snapshot.log_offset <= end:
            raise KvSnapshotDamaged(
                f"it ends at log offset {snapshot.log_offset}, but the log has only the offsets"
                f" {start} to {end}"
            )
        half = self.folder.bring(snapshot)
        try:
            KvStore(half, self._environment.resources).close()
        except KvStoreCorrupt as error:
            raise KvSnapshotDamaged(f"{local_path(snapshot.location)}: {error}") from error
        self.folder.take(half, snapshot)
        return KvStore(self.folder.db, self._environment.resources)

    def _lost(self, problems: Sequence[str]) -> CorruptRecord:
        return CorruptRecord(
            f"bucket {self.log.name}: its key-value store is lost or damaged, and cannot be"
            f" rebuilt. The log begins only at offset {self.log.start_offset}, and"
            f" {'; '.join(problems)}. Restore what is named here from a backup while the server is"
            " stopped, or drop the table and create it again"
        )

    def _catch_up(self, store: KvStore) -> None:
        """Applies the changes of the log that the store lacks."""
        if store.log_offset >= self.log.end_offset:
            return
        if store.log_offset < self.log.start_offset:
            raise self._lost([f"the store ends at offset {store.log_offset}"])
        first = store.log_offset
        while store.log_offset < self.log.end_offset:
            try:
                self._replay(store)
            except CorruptRecord as error:
                stop = error.details.get("next_offset")
                if stop is None:  # nobody has given these changes up
                    raise
                store.write([], [], stop)
                _log.warning(
                    "a KV store goes on without damaged changes, as a user has decided",
                    bucket=self.log.name,
                    offsets=f"{error.details['base_offset']} to {stop - 1}",
                )
        _log.info(
            "KV store caught up with its log",
            bucket=self.log.name,
            start=first,
            end=store.log_offset,
        )

    def _replay(self, store: KvStore) -> None:
        """Applies batches up to the end of the log.

        :raises CorruptRecord: a batch is damaged; if a user has given it up, the details have its
            offsets.
        """
        table = self._current_table()
        for header, view in self._batches(store.log_offset):
            try:
                puts, deletes, kinds = _replayed(table, header, view)
            except CorruptRecord as error:
                raise self.log.refuse(header.base_offset, str(error)) from error
            store.write(puts, deletes, header.next_offset, table.rows_added(kinds))
            failpoint("server.kv_replay.after_batch")

    def _batches(self, offset: int) -> Iterator[tuple[LogBatchHeader, memoryview]]:
        while offset < self.log.end_offset:
            found = self.log.slice(offset, _REPLAY_BYTES, min_one_batch=True)
            assert found is not None, "below the end there is a batch"
            buffer = memoryview(bytearray(found.length))
            self.log.read(found, buffer)
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
    """Decodes a changelog batch: the last change of each key, and all change types."""
    check_crc(view, header)
    if not header.record_count:
        return [], [], b""
    schema = table.schema_of(header.schema_id)
    batch, kinds = table.log_format.decode(view, header, schema)
    if kinds is None:
        raise CorruptRecord(
            f"the changelog batch at offset {header.base_offset} contains no changes"
        )
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
    """Returns the table.

    :raises UnknownTableOrBucket: it was dropped.
    """
    if found is None or not found.has_bucket(bucket.partition_id, bucket.bucket):
        raise UnknownTableOrBucket(f"bucket {bucket} does not exist: was its table dropped?")
    return found
