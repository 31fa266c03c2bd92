"""Registers completed KV snapshots, and deletes old ones.

See docs/fluss/leases.md#snapshot-retention and docs/fluss/remote-storage.md#kv-snapshots

A snapshot exists exactly while its record is in the metadata file. Its files are written before the
record, and deleted after it.
"""

from __future__ import annotations

import re
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from sqlite3 import Connection

import structlog

from sluice.errors import (
    CorruptMessage,
    InvalidUpdateVersion,
    KvSnapshotNotExist,
    StorageError,
    UnknownTableOrBucket,
)
from sluice.failpoints import failpoint
from sluice.formats.kv.snapshot_metadata import (
    METADATA_FILE,
    KvFile,
    KvSnapshot,
    kv_snapshot_from_json,
)
from sluice.leases import BucketKey, bucket_of, key_of
from sluice.model import TableBucket, TableInfo
from sluice.server.coordinator.catalog.catalog import Catalog
from sluice.server.data_dir import bucket_folder, delete_orphans, delete_table, file_uri, local_path
from sluice.server.storage.database import Database

SHARED = "shared"
_SNAPSHOT_FOLDER = re.compile(r"snap-(\d+)")

_log = structlog.get_logger("sluice.kv_snapshots")

IsLeased = Callable[[TableBucket, int], bool]
"""Whether a lease holds the bucket's snapshot. Called under ``KvSnapshots.lock``."""


@dataclass(frozen=True, slots=True)
class Completed:
    """A registered snapshot, which contains the log's changes below ``log_offset``."""

    snapshot_id: int
    log_offset: int
    size_bytes: int | None = field(default=None, compare=False)
    """Stored bytes of its files. None: not read since the start, or not readable."""
    own_bytes: int | None = field(default=0, compare=False)
    """Those that its deletion would free, if it is none of the newest. None: as above."""


class KvSnapshots:
    """The snapshots of all buckets.

    ``lock`` guards the snapshots and their deletion. To grant a lease, hold it from the call of
    :meth:`exists` until :data:`IsLeased` knows the lease, so that the snapshot is not deleted.
    """

    def __init__(
        self,
        root: Path,
        database: Database,
        catalog: Catalog,
        *,
        num_retained: int,
        is_leased: IsLeased = lambda _bucket, _snapshot_id: False,
    ) -> None:
        """:param root: the folder ``kv`` of the remote storage."""
        assert num_retained >= 1, "a recovery starts from the newest snapshot"
        self._root = root
        self._database = database
        self._catalog = catalog
        self._num_retained = num_retained
        self._is_leased = is_leased
        self.lock = threading.RLock()
        self._completed: dict[TableBucket, dict[int, Completed]] = {}  # ids rise
        # The same dictionaries of each bucket, by table: lists of leases look 100,000 of them up.
        self._by_table: dict[int, dict[BucketKey, dict[int, Completed]]] = {}
        # The snapshots for which own_bytes of the older ones was found.
        self._compared: dict[TableBucket, tuple[int, ...]] = {}
        self._load()

    # -- reading

    def exists(self, bucket: TableBucket, snapshot_id: int) -> bool:
        """Whether the snapshot exists."""
        with self.lock:
            return snapshot_id in self._completed.get(bucket, ())

    def latest(self, bucket: TableBucket) -> Completed | None:
        """The newest snapshot of a bucket, or None."""
        found = self.all(bucket)
        return found[-1] if found else None

    def all(self, bucket: TableBucket) -> list[Completed]:
        """The snapshots of a bucket, oldest first."""
        with self.lock:
            return list(self._completed.get(bucket, {}).values())

    def ids(self, bucket: TableBucket) -> list[int]:
        """The ids of the snapshots of a bucket, newest first."""
        return [one.snapshot_id for one in reversed(self.all(bucket))]

    def metadata(self, bucket: TableBucket, snapshot_id: int) -> KvSnapshot:
        """The ``_METADATA`` of a snapshot, with the current locations of its files.

        :raises KvSnapshotNotExist: the snapshot does not exist, or its file cannot be read.
        """
        if not self.exists(bucket, snapshot_id):
            raise KvSnapshotNotExist(
                f"bucket {bucket} has no KV snapshot {snapshot_id}: use a newer one"
            )
        try:
            return self._read(self.folder(bucket), bucket, snapshot_id)
        except (OSError, CorruptMessage, UnknownTableOrBucket) as error:
            raise KvSnapshotNotExist(
                f"bucket {bucket}: KV snapshot {snapshot_id} cannot be read: {error}"
            ) from error

    def newest(self, bucket: TableBucket) -> KvSnapshot | None:
        """The newest snapshot with its files. :raises KvSnapshotNotExist: it cannot be read."""
        with self.lock:
            latest = self.latest(bucket)
            return None if latest is None else self.metadata(bucket, latest.snapshot_id)

    def covered(self, bucket: TableBucket) -> int:
        """The log offset of the newest snapshot; 0 if there is none."""
        latest = self.latest(bucket)
        return 0 if latest is None else latest.log_offset

    def oldest_offset(self, bucket: TableBucket) -> int:
        """The log offset of the oldest snapshot that exists; 0 if there is none."""
        return min((one.log_offset for one in self.all(bucket)), default=0)

    def of_table(self, table_id: int) -> Mapping[BucketKey, Mapping[int, Completed]]:
        """The present snapshots of a table by bucket and id. For look-ups only; needs no lock."""
        return self._by_table.get(table_id, {})

    def folder(self, bucket: TableBucket) -> Path:
        """The folder of a bucket's snapshots.

        :raises UnknownTableOrBucket: the bucket does not exist.
        """
        entry = self._catalog.find(bucket.table_id)
        if entry is None or not entry.has_bucket(bucket.partition_id, bucket.bucket):
            raise UnknownTableOrBucket(f"bucket {bucket} does not exist: was its table dropped?")
        return bucket_folder(self._root, entry.info, entry.partitions, bucket, str(bucket.bucket))

    # -- changes

    def next_id(self, bucket: TableBucket) -> int:
        """The id of the bucket's next snapshot. Ids rise, as the newest is never deleted."""
        latest = self.latest(bucket)
        return 0 if latest is None else latest.snapshot_id + 1

    def complete(self, snapshot: KvSnapshot) -> None:
        """Registers a snapshot whose files are complete, and may delete older ones.

        A repeated call changes nothing.

        :raises InvalidUpdateVersion: its id or log offset is not above those of the latest.
        :raises UnknownTableOrBucket: the table or partition was dropped.
        :raises StorageError: a file is missing, or the record cannot be written.
        """
        bucket, size_bytes = snapshot.bucket, _bytes(snapshot.files)
        new = Completed(snapshot.snapshot_id, snapshot.log_offset, size_bytes)
        with self.lock:
            known = self._completed.get(bucket, {})
            if known.get(new.snapshot_id) == new:
                return
            latest = self.latest(bucket)
            if latest is not None and (
                new.snapshot_id <= latest.snapshot_id or new.log_offset < latest.log_offset
            ):
                raise InvalidUpdateVersion(
                    f"bucket {bucket}: KV snapshot {new.snapshot_id} at log offset"
                    f" {new.log_offset} is not newer than {latest.snapshot_id} at"
                    f" {latest.log_offset}"
                )
            self._check_files(snapshot)
            failpoint("server.kv_snapshot.before_record")
            with self._database.transaction() as connection:
                _check_living(connection, bucket)
                connection.execute(
                    "INSERT INTO kv_snapshots VALUES (?, ?, ?, ?, ?)",
                    (bucket.table_id, *key_of(bucket), new.snapshot_id, new.log_offset),
                )
            if bucket not in self._completed:
                self._add(bucket, {})
            self._completed[bucket][new.snapshot_id] = new
            failpoint("server.kv_snapshot.after_record")
            try:
                self._retain(bucket)
            except StorageError as error:  # the next snapshot or retention retries
                _log.error(
                    "old KV snapshots were not deleted", bucket=str(bucket), error=str(error)
                )

    def retain(self) -> None:
        """Deletes snapshots that are neither among the newest nor leased.

        :raises StorageError: a record cannot be removed.
        """
        with self.lock:
            for bucket in list(self._completed):
                with suppress(UnknownTableOrBucket):  # being dropped right now
                    self._retain(bucket)

    def drop_table(self, info: TableInfo, partition_id: int | None = None) -> None:
        """Deletes the snapshots of a table or of one partition, leased or not.

        After a crash, the next start deletes the rest.
        """
        with self.lock:
            for bucket in list(self._completed):
                if bucket.table_id == info.table_id and partition_id in (None, bucket.partition_id):
                    del self._completed[bucket]
                    self._compared.pop(bucket, None)
                    self._by_table[bucket.table_id].pop(key_of(bucket), None)
            if partition_id is None:
                self._by_table.pop(info.table_id, None)
            if partition_id is not None:  # those of a table are deleted by cascade
                with self._database.transaction() as connection:
                    connection.execute(
                        "DELETE FROM kv_snapshots WHERE table_id = ? AND partition_id = ?",
                        (info.table_id, partition_id),
                    )
        delete_table(self._root, info, partition_id)

    # -- start

    def tidy_up(self, is_stopping: Callable[[], bool] = lambda: False) -> None:
        """Deletes files without a record and files of dropped tables, which a crash may leave.

        Other operations may run at the same time, except taking new snapshots, whose files have no
        record yet either.

        :param is_stopping: checked between buckets; if true, the next start does the rest.
        :raises StorageError: a record cannot be removed.
        """
        delete_orphans(self._root, self._catalog)
        for entry in self._catalog.tables():
            for bucket in entry.buckets():
                if is_stopping():
                    return
                with self.lock:
                    self._tidy(bucket)
        self.retain()

    def _tidy(self, bucket: TableBucket) -> None:
        there = self._completed.get(bucket, {})
        try:
            folder = self.folder(bucket)
            if not folder.is_dir():
                return
            for path in folder.glob("snap-*"):
                found = _SNAPSHOT_FOLDER.fullmatch(path.name)
                if found is not None and int(found[1]) not in there:
                    shutil.rmtree(path, ignore_errors=True)
            snapshots = self._read_all(bucket, there)
        except (OSError, CorruptMessage) as error:
            _log.error(
                "cannot read a KV snapshot; its unused files are not deleted",
                bucket=str(bucket),
                why=error,
            )
            return
        except UnknownTableOrBucket:  # being dropped right now
            return
        for one in snapshots:
            known = there[one.snapshot_id]
            there[one.snapshot_id] = replace(known, size_bytes=_bytes(one.files))
        self._compare(bucket, snapshots)
        used = _shared_names(snapshots)
        for path in folder.glob(f"{SHARED}/*"):
            if path.name not in used:
                _remove(path)

    def _load(self) -> None:
        rows = self._database.query(
            "SELECT table_id, partition_id, bucket, snapshot_id, log_offset FROM kv_snapshots"
            " ORDER BY table_id, partition_id, bucket, snapshot_id"
        )
        # One look-up for each bucket, not for each snapshot: there may be 100,000 buckets.
        for (table_id, partition_id, number), found in groupby(rows, itemgetter(0, 1, 2)):
            bucket = bucket_of(table_id, (partition_id, number))
            entry = self._catalog.find(table_id)
            if entry is not None and entry.has_bucket(bucket.partition_id, number):  # else dropped
                known = {row[3]: Completed(row[3], row[4]) for row in found}
                for snapshot_id in list(known)[: -self._num_retained]:
                    known[snapshot_id] = replace(known[snapshot_id], own_bytes=None)
                self._add(bucket, known)

    def _add(self, bucket: TableBucket, known: dict[int, Completed]) -> None:
        self._completed[bucket] = known
        self._by_table.setdefault(bucket.table_id, {})[key_of(bucket)] = known

    # -- deletion

    def _retain(self, bucket: TableBucket) -> None:
        self._delete_old(bucket)
        ids = tuple(self._completed[bucket])
        if len(ids) <= self._num_retained:
            self._compared.pop(bucket, None)
        elif self._compared.get(bucket) != ids:
            try:
                self._compare(bucket, self._read_all(bucket, ids))
            except (OSError, CorruptMessage):
                self._compare(bucket, [])

    def _compare(self, bucket: TableBucket, snapshots: Sequence[KvSnapshot]) -> None:
        """Finds what the deletion of each older snapshot would free.

        :param snapshots: all of the bucket, the oldest first; none if one cannot be read.
        """
        known = self._completed.get(bucket, {})
        if len(known) <= self._num_retained:
            return
        uses = Counter(file.path for one in snapshots for file in one.shared)
        own_bytes = {
            one.snapshot_id: _bytes(one.private)
            + _bytes(file for file in one.shared if uses[file.path] == 1)
            for one in snapshots
        }
        for snapshot_id in list(known)[: -self._num_retained]:
            found = own_bytes.get(snapshot_id)
            known[snapshot_id] = replace(known[snapshot_id], own_bytes=found)
        self._compared[bucket] = tuple(known)

    def _delete_old(self, bucket: TableBucket) -> None:
        known = self._completed[bucket]
        gone = [
            snapshot_id
            for snapshot_id in list(known)[: -self._num_retained]
            if not self._is_leased(bucket, snapshot_id)
        ]
        if not gone:
            return
        folder = self.folder(bucket)
        paths = [folder / f"snap-{snapshot_id}" for snapshot_id in gone]
        kept = [snapshot_id for snapshot_id in known if snapshot_id not in gone]
        try:
            unused = self._shared(bucket, gone) - self._shared(bucket, kept)
            paths += [folder / SHARED / name for name in unused]
        except (OSError, CorruptMessage) as error:  # keeps too many files rather than too few
            _log.error(
                "cannot read an old KV snapshot; its shared files are not deleted",
                bucket=str(bucket),
                why=error,
            )
        with self._database.transaction() as connection:
            connection.executemany(
                "DELETE FROM kv_snapshots"
                " WHERE table_id = ? AND partition_id = ? AND bucket = ? AND snapshot_id = ?",
                [(bucket.table_id, *key_of(bucket), snapshot_id) for snapshot_id in gone],
            )
        for snapshot_id in gone:
            del known[snapshot_id]
        failpoint("server.kv_snapshot.before_delete")
        for path in paths:
            _remove(path)
        _log.info("KV snapshots deleted", bucket=str(bucket), snapshot_ids=gone)

    # -- files

    def _shared(self, bucket: TableBucket, snapshot_ids: Iterable[int]) -> set[str]:
        """Names of the shared files that these snapshots use."""
        return _shared_names(self._read_all(bucket, snapshot_ids))

    def _read_all(self, bucket: TableBucket, snapshot_ids: Iterable[int]) -> list[KvSnapshot]:
        folder = self.folder(bucket)
        return [self._read(folder, bucket, snapshot_id) for snapshot_id in snapshot_ids]

    def _check_files(self, snapshot: KvSnapshot) -> None:
        folder = self.folder(snapshot.bucket)
        moved = _moved(snapshot, folder)
        try:
            written = self._read(folder, snapshot.bucket, snapshot.snapshot_id)
        except (OSError, CorruptMessage) as error:
            raise StorageError(f"KV snapshot of bucket {snapshot.bucket}: {error}") from error
        if written != moved:
            raise StorageError(f"{moved.location}/{METADATA_FILE} describes another snapshot")
        for file in moved.files:
            path = local_path(file.path)
            try:
                size = path.stat().st_size
            except OSError as error:
                raise StorageError(f"KV snapshot file {path}: {error.strerror}") from error
            if size != file.size:
                raise StorageError(f"KV snapshot file {path} has {size} bytes, not {file.size}")

    def _read(self, folder: Path, bucket: TableBucket, snapshot_id: int) -> KvSnapshot:
        """Reads the metadata file of a snapshot.

        :raises OSError, CorruptMessage: the file is missing, or belongs to another snapshot.
        """
        path = folder / f"snap-{snapshot_id}" / METADATA_FILE
        snapshot = kv_snapshot_from_json(path.read_bytes())
        if (snapshot.bucket, snapshot.snapshot_id) != (bucket, snapshot_id):
            raise CorruptMessage(
                f"{path} belongs to bucket {snapshot.bucket}, snapshot {snapshot.snapshot_id}"
            )
        return _moved(snapshot, folder)


def _moved(snapshot: KvSnapshot, folder: Path) -> KvSnapshot:
    """The snapshot with file paths in the current data directory, which may have been moved.

    Paths never leave the bucket's own folder.
    """
    own = folder / f"snap-{snapshot.snapshot_id}"

    def here(parent: Path, file: KvFile) -> KvFile:
        return replace(file, path=file_uri(parent / local_path(file.path).name))

    return replace(
        snapshot,
        location=file_uri(own),
        shared=tuple(here(folder / SHARED, file) for file in snapshot.shared),
        private=tuple(here(own, file) for file in snapshot.private),
    )


def _bytes(files: Iterable[KvFile]) -> int:
    return sum(file.size for file in files)


def _shared_names(snapshots: Iterable[KvSnapshot]) -> set[str]:
    return {Path(file.path).name for one in snapshots for file in one.shared}


def _remove(path: Path) -> None:
    """Deletes a file or folder that no record names; the next start retries failures."""
    if path.parent.name != SHARED:
        shutil.rmtree(path, ignore_errors=True)
        return
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        _log.error("cannot delete an unused KV snapshot file", path=str(path), error=str(error))


def _check_living(connection: Connection, bucket: TableBucket) -> None:
    sql, owner = "SELECT 1 FROM tables WHERE table_id = ?", bucket.table_id
    if bucket.partition_id is not None:
        sql, owner = "SELECT 1 FROM partitions WHERE partition_id = ?", bucket.partition_id
    if connection.execute(sql, (owner,)).fetchone() is None:
        raise UnknownTableOrBucket(f"bucket {bucket}: its table or partition was dropped")
