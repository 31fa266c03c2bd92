"""The files of a KV tablet, and copies of snapshot files between it and remote storage.

<data_dir>/kv/<db>/<table>-<id>[/<partition>-p<id>]/kv-<bucket>/db             RocksDB
<data_dir>/kv/.../kv-<bucket>/snapshot.json    the last snapshot of that RocksDB
<data_dir>/kv/.../kv-<bucket>/checkpoint       a snapshot in progress
<data_dir>/kv/.../kv-<bucket>/db.damaged       a damaged RocksDB, until another one replaces it
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from sluice.errors import KvStorageError
from sluice.formats.kv.snapshot_metadata import KvSnapshot
from sluice.json_text import json_of
from sluice.server.data_dir import local_path, write_durably
from sluice.server.tablet.buckets.files import LogFiles
from sluice.server.tablet.kv.sst_check import check_sst


class KvSnapshotDamaged(KvStorageError):
    """A file of a KV snapshot is missing or damaged, so no store can be made from it."""


class KvFolder:
    """The folder of one bucket."""

    DAMAGED = "db.damaged"
    _HALF = "db.tmp"

    def __init__(self, path: Path, files: LogFiles) -> None:
        self.path = path
        self._files = files
        self.db = path / "db"
        self.checkpoint = path / "checkpoint"
        self._snapshot = path / "snapshot.json"
        self.damaged = path / self.DAMAGED

    def snapshot_id(self) -> int | None:
        """The snapshot whose SST files equal this store's files of the same name, if known.

        RocksDB never changes an SST file and never reuses its number, so names identify files for
        as long as the store exists.
        """
        try:
            return int(json_of(self._snapshot.read_bytes())["snapshot_id"])
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def store_snapshot_id(self, snapshot_id: int) -> None:
        """Stores the id of the last snapshot.

        :raises OSError: it is not stored, and the next snapshot copies all files again.
        """
        write_durably(self._snapshot, json.dumps({"snapshot_id": snapshot_id}).encode())

    def make(self) -> None:
        """Creates the folder.

        :raises OSError: it cannot be created.
        """
        self.path.mkdir(parents=True, exist_ok=True)

    def discard(self) -> None:
        """Deletes the store, which can be rebuilt from a snapshot and the log."""
        self._snapshot.unlink(missing_ok=True)
        for path in (self.db, self.checkpoint):
            shutil.rmtree(path, ignore_errors=True)

    def set_aside(self) -> None:
        """Moves a damaged store away: if nothing can replace it, it is the last copy of its rows.

        One that was moved before, and that nothing has replaced since, is kept instead.

        :raises OSError: the store is unchanged.
        """
        if self.db.exists() and not self.damaged.exists():
            self.db.rename(self.damaged)
        self.discard()

    def mark_rebuilt(self) -> None:
        """Deletes the damaged store, which another one has replaced."""
        shutil.rmtree(self.damaged, ignore_errors=True)

    def bring(self, snapshot: KvSnapshot) -> Path:
        """Copies a snapshot into a folder beside the store, for :meth:`take`; the folder.

        :raises KvSnapshotDamaged: a file of the snapshot is missing or damaged.
        :raises KvStorageError: a file cannot be written.
        """
        half = self.path / self._HALF
        self.discard_brought()
        try:
            half.mkdir(parents=True)
            for file in snapshot.files:
                source, target = local_path(file.path), half / Path(file.local_name).name
                _check(source, file.size, is_sst=file in snapshot.shared)
                self._files.copy(source, target)
        except OSError as error:
            raise self._not_restored(snapshot, error) from error
        return half

    def take(self, half: Path, snapshot: KvSnapshot) -> None:
        """Makes the folder of a snapshot the store, atomically; the one that is there is set aside.

        :raises KvStorageError: that failed.
        """
        try:
            self.set_aside()
            half.rename(self.db)
            self.store_snapshot_id(snapshot.snapshot_id)
        except OSError as error:
            raise self._not_restored(snapshot, error) from error

    def discard_brought(self) -> None:
        """Deletes what :meth:`bring` has copied, and maybe not completely."""
        shutil.rmtree(self.path / self._HALF, ignore_errors=True)

    def _not_restored(self, snapshot: KvSnapshot, error: OSError) -> KvStorageError:
        return KvStorageError(
            f"bucket {snapshot.bucket}: KV snapshot {snapshot.snapshot_id} cannot be restored"
            f" to {self.path}: {error}"
        )


def _check(path: Path, size: int, *, is_sst: bool) -> None:
    """:raises KvSnapshotDamaged: a file of a snapshot is not as it was written."""
    try:
        found = path.stat().st_size
        if found != size:
            raise ValueError(f"it has {found} bytes instead of {size}")
        if is_sst:
            check_sst(path)
    except OSError as error:
        raise KvSnapshotDamaged(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise KvSnapshotDamaged(f"{path} is damaged: {error}") from error
