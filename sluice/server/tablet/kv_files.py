"""The files of a KV tablet, and copies of snapshot files between it and remote storage.

<data_dir>/kv/<db>/<table>-<id>[/<partition>-p<id>]/kv-<bucket>/db             RocksDB
<data_dir>/kv/.../kv-<bucket>/snapshot.json    the last snapshot of that RocksDB
<data_dir>/kv/.../kv-<bucket>/checkpoint       a snapshot in progress
<data_dir>/kv/.../kv-<bucket>/damaged          until a damaged RocksDB is rebuilt from the log
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from sluice.errors import KvStorageError
from sluice.formats.kv_snapshots import KvSnapshot
from sluice.json_text import json_of
from sluice.server.data_dir import local_path, write_durably
from sluice.server.tablet.files import LogFiles


class KvFolder:
    """The folder of one bucket."""

    DAMAGED = "damaged"

    def __init__(self, path: Path, files: LogFiles) -> None:
        self.path = path
        self._files = files
        self.db = path / "db"
        self.checkpoint = path / "checkpoint"
        self._snapshot = path / "snapshot.json"
        self._damaged = path / self.DAMAGED

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

    @property
    def is_damaged(self) -> bool:
        """Whether the last store was damaged; then so may be snapshots, which share its files."""
        return self._damaged.exists()

    def discard_damaged(self) -> None:
        """Deletes a store whose rows cannot be read. :raises OSError: the store is unchanged."""
        self._damaged.touch()
        self.discard()

    def mark_rebuilt(self) -> None:
        """Records that a damaged store was rebuilt.

        :raises OSError: the folder still counts as damaged when the store is next rebuilt.
        """
        self._damaged.unlink(missing_ok=True)

    def restore(self, snapshot: KvSnapshot) -> None:
        """Restores the store of a snapshot atomically.

        :raises KvStorageError: a file of the snapshot is missing, truncated, or cannot be written.
        """
        self.discard()
        half = self.path / "db.tmp"
        shutil.rmtree(half, ignore_errors=True)
        try:
            half.mkdir(parents=True)
            for file in snapshot.files:
                source, target = local_path(file.path), half / Path(file.local_name).name
                # SST files are never changed, so both sides can share them; others may be.
                self._files.place(source, target, share=file in snapshot.shared)
                size = target.stat().st_size
                if size != file.size:
                    raise KvStorageError(f"{source} has {size} bytes instead of {file.size}")
            half.rename(self.db)
            self.store_snapshot_id(snapshot.snapshot_id)
        except OSError as error:
            raise KvStorageError(
                f"bucket {snapshot.bucket}: KV snapshot {snapshot.snapshot_id} cannot be restored"
                f" to {self.path}: {error}"
            ) from error
