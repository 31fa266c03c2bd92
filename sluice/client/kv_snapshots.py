"""Reads a KV snapshot of one bucket as Arrow, from the files that it consists of."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import pyarrow as pa

from sluice.client.admin import Admin
from sluice.client.connection import Connection
from sluice.client.kv_snapshot_files import SnapshotFiles, download, snapshot_files, with_sizes
from sluice.client.remote_files import RemoteFiles
from sluice.client.rocksdb_values import read_values
from sluice.client.stored_rows import StoredRows
from sluice.errors import NonPrimaryKeyTable, StorageError
from sluice.model import TableBucket, TableInfo, TablePath

_BATCH_BYTES = 8 * 1024 * 1024


class KvSnapshotReader:
    """One snapshot, whose files lie in a folder of their own while a ``with`` block lasts.

    They are brought whole when the block begins, so the disk must hold them; after that nobody's
    deletion matters. Memory is about five times 8 MiB (or a thousand rows, if they are larger),
    whatever the size of the snapshot. Hold the snapshot by a lease until the block has begun.
    """

    def __init__(
        self,
        connection: Connection,
        admin: Admin,
        path: TablePath,
        bucket: TableBucket,
        snapshot_id: int,
        *,
        info: TableInfo | None = None,
        folder: str | None = None,
        files: RemoteFiles | None = None,
    ) -> None:
        """:param info: the table as it was planned with; rows come in its schema.
        :param folder: where the files are put, in a folder of their own; by default the system's
            place for such.
        :raises TableNotExist: :raises NonPrimaryKeyTable: it has no snapshots.
        """
        self.info = info or admin.table_info(path)
        if not self.info.has_primary_key:
            raise NonPrimaryKeyTable(f"table {path} has no primary key, and so no KV snapshots")
        self.info.check_bucket(bucket)
        self.bucket = bucket
        self.snapshot_id = snapshot_id
        self._name = f"KV snapshot {snapshot_id} of bucket {bucket} of {path}"
        self._connection = connection
        self._rows = StoredRows(admin, self.info, self._name)
        self._remote = files or RemoteFiles(connection)
        self._parent = folder
        self._folder: Path | None = None
        self._found: SnapshotFiles | None = None

    def __enter__(self) -> KvSnapshotReader:
        """Brings the files.

        :raises KvSnapshotNotExist: the snapshot, or a file of it, is gone.
        :raises StorageError: a file is cut or cannot be read, or cannot be put here.
        """
        found = snapshot_files(self._connection, self._name, self.bucket, self.snapshot_id)
        found = with_sizes(found, self.snapshot_id, self._remote)
        try:
            self._folder = Path(tempfile.mkdtemp(prefix="sluice-kv-", dir=self._parent))
        except OSError as error:
            raise StorageError(f"{self._name}: no place for its files: {error}") from error
        try:
            download(found, self._folder, self._remote)
        except BaseException:
            self.close()
            raise
        self._found = found
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Removes the files; reading is over."""
        folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def log_offset(self) -> int:
        """The snapshot holds what the bucket's log has below this; known inside the block."""
        return self._inside().log_offset

    @property
    def note(self) -> str:
        """Nothing need be told of rows of a snapshot."""
        return ""

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        self._inside()
        assert self._folder is not None
        return sum(path.stat().st_size for path in self._folder.iterdir())

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows in the order of their keys, in the schema of ``info``.

        :raises CorruptRecord: a file is damaged, or holds what is no row of this table.
        :raises SchemaNotExist: a row is newer than the schema.
        """
        self._inside()
        assert self._folder is not None
        for values in read_values(self._folder, self._name, _BATCH_BYTES):
            yield self._rows.decode(values)
            self._inside()  # its files are gone once the block has ended

    def _inside(self) -> SnapshotFiles:
        if self._folder is None or self._found is None:
            raise RuntimeError(f"{self._name} is read inside a with block")
        return self._found
