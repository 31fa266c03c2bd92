"""Takes KV snapshots in the background: uploads new files, then registers the snapshot.

A checkpoint copies the store by hard links while puts continue. SST files are uploaded once for all
snapshots that share them; the few other files belong to one snapshot (see
docs/fluss/remote-storage.md#kv-snapshots). An uploaded file is a copy, and is checked: a snapshot
must not have the damage of the store that it may have to replace.
"""

from __future__ import annotations

import shutil
import threading
import uuid
from pathlib import Path

import structlog

from sluice.errors import FlussError, KvSnapshotNotExist, StorageError
from sluice.failpoints import failpoint
from sluice.formats.kv.snapshot_metadata import (
    METADATA_FILE,
    KvFile,
    KvSnapshot,
    kv_snapshot_to_json,
)
from sluice.model import TableBucket
from sluice.server.data_dir import file_uri, local_path, sync_folder, write_durably
from sluice.server.tablet.buckets.files import LogFiles
from sluice.server.tablet.buckets.ports import Snapshots, Tables
from sluice.server.tablet.kv.manager import KvManager
from sluice.server.tablet.kv.sst_check import check_sst
from sluice.server.tablet.kv.store import (
    CONFIG_FILE,
    KvResources,
    KvStoreCorrupt,
    StoreProgress,
    checkpoint_progress,
)
from sluice.server.tablet.kv.tablet import KvTablet
from sluice.server.ticker import Ticker

_SHARED = "shared"

_log = structlog.get_logger("sluice.kv_snapshots")


class KvSnapshotter:
    """Takes KV snapshots of changed buckets. ``_lock`` lets one snapshot be taken at a time."""

    def __init__(
        self,
        tables: Tables,
        tablets: KvManager,
        snapshots: Snapshots,
        resources: KvResources,
        files: LogFiles,
    ) -> None:
        self._tables = tables
        self._tablets = tablets
        self._snapshots = snapshots
        self._resources = resources
        self._files = files
        self._lock = threading.Lock()
        self._ticker = Ticker("kv-snapshots", self.take_all)

    def start(self, interval_ms: int) -> None:
        """Takes snapshots of changed buckets every ``interval_ms``; 0: never."""
        self._ticker.start(interval_ms)

    def stop(self) -> None:
        """Waits for the snapshot in progress, and takes no other."""
        self._ticker.stop()

    def take_all(self) -> None:
        """Takes a snapshot of each changed bucket; a failure does not stop the others."""
        for table in self._tables.tables():
            if not table.info.has_primary_key:
                continue
            for bucket in table.buckets():
                if self._ticker.is_stopping:
                    return
                try:
                    self.take(bucket)
                except FlussError as error:
                    _log.warning("KV snapshot failed", bucket=str(bucket), error=str(error))
        self._snapshots.retain()

    def take(self, bucket: TableBucket) -> int | None:
        """Takes a snapshot of a bucket; returns its id, or None if the bucket has not changed.

        :raises UnknownTableOrBucket, NonPrimaryKeyTable: the bucket does not exist, or has no
            key-value store.
        :raises StorageError, KvStorageError: a file cannot be written; no file is left.
        :raises KvStoreCorrupt: a file of the store is damaged; the store is rebuilt when next used.
        """
        with self._lock:
            known = self._snapshots.covered(bucket)
            # Checked first, so that an unchanged bucket does not evict other open stores.
            if self._tablets.log_end(bucket) <= known:
                return None
            newest = self._newest(bucket)
            with self._tablets.leading(bucket) as tablet:
                folder, log = tablet.folder, tablet.log
                shutil.rmtree(folder.checkpoint, ignore_errors=True)
                tablet.checkpoint(folder.checkpoint)
            failpoint("server.kv_snapshot.after_checkpoint")
            try:
                reached = checkpoint_progress(folder.checkpoint, self._resources)
                if reached.log_offset <= known:
                    return None
                # The log must not lose rows of the snapshot in a power loss.
                log.sync()
                return self._upload(bucket, tablet, reached, newest)
            except KvStoreCorrupt as error:
                with self._tablets.leading(bucket) as now:
                    if now is tablet:
                        raise  # rebuilds the store, while the log may still have its rows
                raise error
            except OSError as error:
                raise StorageError(f"bucket {bucket}: KV snapshot failed: {error}") from error
            finally:
                shutil.rmtree(folder.checkpoint, ignore_errors=True)

    def _newest(self, bucket: TableBucket) -> KvSnapshot | None:
        try:
            return self._snapshots.newest(bucket)
        except KvSnapshotNotExist as error:  # the next snapshot does not build on it
            _log.error("cannot read the newest KV snapshot", bucket=str(bucket), error=str(error))
            return None

    def _upload(
        self,
        bucket: TableBucket,
        tablet: KvTablet,
        reached: StoreProgress,
        newest: KvSnapshot | None,
    ) -> int:
        """Uploads the checkpoint's files and registers the snapshot."""
        snapshot_id, folder = self._snapshots.next_id(bucket), tablet.folder
        there: dict[str, KvFile] = {}
        if newest is not None and folder.snapshot_id() == newest.snapshot_id:
            there = {file.local_name: file for file in newest.shared}
        upload = _Upload(self._files, self._snapshots.folder(bucket), snapshot_id, tablet.log.name)
        try:
            snapshot = upload.run(bucket, folder.checkpoint, there, reached)
            self._snapshots.complete(snapshot)
        except BaseException:
            if not self._snapshots.exists(bucket, snapshot_id):
                upload.undo()
            raise
        failpoint("server.kv_snapshot.after_commit")
        with self._tablets.leading(bucket) as now:
            if now is tablet:  # else the store may have been rebuilt, with the same file names
                folder.store_snapshot_id(snapshot_id)
        _log.info(
            "KV snapshot taken",
            bucket=str(bucket),
            snapshot_id=snapshot_id,
            log_offset=reached.log_offset,
            bytes_added=snapshot.incremental_size,
        )
        return snapshot_id


class _Upload:
    """The upload of one snapshot's files; ``undo`` deletes those that it has uploaded."""

    def __init__(self, files: LogFiles, remote: Path, snapshot_id: int, name: str) -> None:
        """:param name: the bucket and its table in words."""
        self._files = files
        self._name = name
        self._shared = remote / _SHARED
        self._own = remote / f"snap-{snapshot_id}"
        self._snapshot_id = snapshot_id
        self._brought: list[Path] = []

    def run(
        self,
        bucket: TableBucket,
        checkpoint: Path,
        there: dict[str, KvFile],
        reached: StoreProgress,
    ) -> KvSnapshot:
        """:param there: SST files, by name, that are already in remote storage.

        :raises OSError: a file cannot be uploaded.
        :raises KvStoreCorrupt: an SST file of the store is damaged.
        """
        shutil.rmtree(self._own, ignore_errors=True)  # left by a failed attempt
        self._own.mkdir(parents=True)
        self._shared.mkdir(exist_ok=True)
        shared: list[KvFile] = []
        private: list[KvFile] = []
        added = 0
        there = self._without_a_damaged_one(bucket, there)
        for path in sorted(checkpoint.iterdir()):
            if path.name == CONFIG_FILE:
                continue
            size, is_sst = path.stat().st_size, path.suffix == ".sst"
            known = there.get(path.name)
            if is_sst and known is not None and _is_copy(known, path):
                shared.append(known)
                continue
            target = (self._shared if is_sst else self._own) / str(uuid.uuid4())
            self._brought.append(target)
            failpoint("server.kv_snapshot.before_file")
            self._files.copy(path, target)
            if is_sst:
                _check_copy(target, path.name, self._name)
            added += size
            (shared if is_sst else private).append(KvFile(file_uri(target), size, path.name))
        snapshot = KvSnapshot(
            bucket,
            self._snapshot_id,
            file_uri(self._own),
            tuple(shared),
            tuple(private),
            added,
            reached.log_offset,
            reached.row_count,
        )
        for folder in (self._shared, self._own.parent, self._own.parent.parent):
            sync_folder(folder)
        failpoint("server.kv_snapshot.before_metadata")
        write_durably(self._own / METADATA_FILE, kv_snapshot_to_json(snapshot))
        failpoint("server.kv_snapshot.after_metadata")
        return snapshot

    def _without_a_damaged_one(
        self, bucket: TableBucket, there: dict[str, KvFile]
    ) -> dict[str, KvFile]:
        """Checks one of the files that earlier snapshots brought: each snapshot another one.

        A damaged one is not used any more, so the store's file is brought again.
        """
        if not there:
            return there
        name = sorted(there)[self._snapshot_id % len(there)]
        try:
            check_sst(local_path(there[name].path))
        except (OSError, ValueError) as error:
            _log.error(
                "a file of a KV snapshot is damaged; the new snapshot gets another copy",
                bucket=str(bucket),
                path=there[name].path,
                error=str(error),
            )
            return {other: file for other, file in there.items() if other != name}
        return there

    def undo(self) -> None:
        for path in self._brought:
            path.unlink(missing_ok=True)
        shutil.rmtree(self._own, ignore_errors=True)


def _is_copy(known: KvFile, path: Path) -> bool:
    """Whether the remote file has this content, and is no hard link of an earlier version."""
    try:
        there = local_path(known.path).stat()
    except OSError:
        return False
    own = path.stat()
    return there.st_size == known.size == own.st_size and there.st_ino != own.st_ino


def _check_copy(target: Path, name: str, bucket: str) -> None:
    try:
        check_sst(target)
    except ValueError as error:
        raise KvStoreCorrupt(
            f"bucket {bucket}: file {name} of its KV store is damaged: {error}"
        ) from error
