"""Files of KV tablets: a bucket's own folder, and what a snapshot moves between it and the remote.

<data_dir>/kv/<db>/<table>-<id>[/<partition>-p<id>]/kv-<bucket>/db             RocksDB
<data_dir>/kv/.../kv-<bucket>/snapshot.json    the last snapshot that was taken of that RocksDB
<data_dir>/kv/.../kv-<bucket>/checkpoint       a snapshot on its way
<data_dir>/kv/.../kv-<bucket>/damaged          until the log has made a damaged RocksDB anew
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from sluice.errors import KvStorageError
from sluice.formats.kv_snapshots import KvSnapshot
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
        """The snapshot whose SST files this store's of the same name are; None if not known.

        RocksDB never changes an SST file and never gives its number again, so that names are enough
        for as long as the store lives.
        """
        try:
            return int(json.loads(self._snapshot.read_bytes())["snapshot_id"])
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def store_snapshot_id(self, snapshot_id: int) -> None:
        """:raises OSError: it is not stored; the next snapshot brings all files again."""
        write_durably(self._snapshot, json.dumps({"snapshot_id": snapshot_id}).encode())

    def make(self) -> None:
        """:raises OSError: it cannot be made."""
        self.path.mkdir(parents=True, exist_ok=True)

    def discard(self) -> None:
        """Removes the store and what is known of it; a snapshot and the log make it anew."""
        self._snapshot.unlink(missing_ok=True)
        for path in (self.db, self.checkpoint):
            shutil.rmtree(path, ignore_errors=True)

    @property
    def is_damaged(self) -> bool:
        """Whether the last store was damaged: snapshots share its files, so they may be too."""
        return self._damaged.exists()

    def discard_damaged(self) -> None:
        """Removes a store whose rows cannot be read. :raises OSError: it stays as it is."""
        self._damaged.touch()
        self.discard()

    def mark_rebuilt(self) -> None:
        """:raises OSError: it counts as damaged once more, when it is lost the next time."""
        self._damaged.unlink(missing_ok=True)

    def restore(self, snapshot: KvSnapshot) -> None:
        """Makes the store that a snapshot holds; it appears whole under its name.

        :raises KvStorageError: a file of the snapshot is missing, cut, or cannot be written here.
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
                    raise KvStorageError(f"{source} has {size} bytes, not {file.size}")
            half.rename(self.db)
            self.store_snapshot_id(snapshot.snapshot_id)
        except OSError as error:
            raise KvStorageError(
                f"bucket {snapshot.bucket}: KV snapshot {snapshot.snapshot_id} cannot be restored"
                f" to {self.path}: {error}"
            ) from error
