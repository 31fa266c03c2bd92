"""Reads a KV snapshot of one bucket as Arrow from the snapshot's files."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from sluice.client.admin.admin import Admin
from sluice.client.connection.connection import Connection
from sluice.client.connection.remote_files import RemoteFiles
from sluice.client.kv.snapshot_files import SnapshotFiles, download, snapshot_files, with_sizes
from sluice.client.kv.sst_values import read_values
from sluice.client.kv.stored_rows import StoredRows
from sluice.errors import CorruptRecord, NonPrimaryKeyTable, StorageError
from sluice.model import TableBucket, TableInfo, TablePath

_BATCH_BYTES = 8 * 1024 * 1024


class KvSnapshotReader:
    """Reads one KV snapshot, whose files are kept in a local folder during a ``with`` block.

    All files are downloaded when the block begins, so the disk needs room for them. After that, the
    cluster may delete the snapshot; until then, protect it with a lease. Memory is about five times
    8 MiB (or a thousand rows, if they are larger), regardless of the size of the snapshot.
    """

    note = ""
    """A note for the user about these rows; none for a snapshot."""

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
        """:param info: the table as planned, whose schema the rows get; by default the current one.
        :param folder: the parent of the download folder; the system's temporary folder by default.
        :raises TableNotExist: the table does not exist.
        :raises InvalidConfig: its values have a layout that Sluice does not know.
        :raises NonPrimaryKeyTable: the table is a log table, which has no KV snapshots.
        """
        self.info = info or admin.table_info(path)
        if not self.info.has_primary_key:
            raise NonPrimaryKeyTable(f"table {path} has no primary key, so it has no KV snapshots")
        self.info.check_bucket(bucket)
        self.bucket = bucket
        self.snapshot_id = snapshot_id
        self._name = f"KV snapshot {snapshot_id} of bucket {bucket} of {path}"
        self._connection = connection
        self._rows = StoredRows(admin, self.info, self._name, self.info.value_tag_size)
        self._remote = files or RemoteFiles(connection)
        self._parent = folder
        self._folder: Path | None = None
        self._found: SnapshotFiles | None = None

    def __enter__(self) -> KvSnapshotReader:
        """Downloads the files.

        :raises KvSnapshotNotExist: the snapshot, or one of its files, does not exist.
        :raises StorageError: a file is truncated, cannot be read, or cannot be stored here.
        """
        found = snapshot_files(self._connection, self._name, self.bucket, self.snapshot_id)
        found = with_sizes(found, self.snapshot_id, self._remote)
        try:
            self._folder = Path(tempfile.mkdtemp(prefix="sluice-kv-", dir=self._parent))
        except OSError as error:
            raise StorageError(
                f"{self._name}: cannot create a folder for its files: {error}"
            ) from error
        try:
            download(found, self._folder, self._remote)
        except BaseException:
            self.close()
            raise
        self._found = found
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Deletes the downloaded files and ends the reading."""
        folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def log_offset(self) -> int:
        """The snapshot contains all changes of the bucket's log below this offset; in the block."""
        return self._inside().log_offset

    @property
    def size_bytes(self) -> int:
        """The total size of all files in bytes."""
        self._inside()
        assert self._folder is not None
        return sum(path.stat().st_size for path in self._folder.iterdir())

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields all rows in key order, in the schema of ``info``.

        :raises CorruptRecord: a file is damaged, or has a value that is no row of this table.
        :raises SchemaNotExist: a row was written with a newer schema.
        """
        self._inside()
        assert self._folder is not None
        folder = self._folder
        try:
            for values in read_values(folder, self._name, _BATCH_BYTES):
                yield self._rows.decode(values)
                self._inside()  # raises once the block has ended and its files are deleted
        except CorruptRecord as error:
            raise self._with_remote_names(error, folder) from error

    def _with_remote_names(self, error: CorruptRecord, folder: Path) -> CorruptRecord:
        """The error with remote files in place of their downloaded copies, and what to do."""
        text = str(error)
        for file in self._inside().files:
            text = text.replace(str(folder / file.local_name), file.uri)
        advice = "restore the file from a backup, or use a later KV snapshot"
        return CorruptRecord(f"{text}; {advice}", **error.details)

    def _inside(self) -> SnapshotFiles:
        if self._folder is None or self._found is None:
            raise RuntimeError(f"{self._name}: use the reader inside a with block")
        return self._found
