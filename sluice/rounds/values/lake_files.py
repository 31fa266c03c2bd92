"""The files of a lake table in a round: those it writes, and those whose rows it deletes.

Frozen and picklable, because executors use them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from sluice.model import TableBucket

TARGET_FILE_BYTES = 512 * 1024 * 1024
"""Iceberg's default of write.target-file-size-bytes."""


class FileContent(Enum):
    """What a file of a round contains."""

    ROWS = "rows"
    EQUALITY_DELETES = "keys: the commit deletes all earlier rows with these keys"
    POSITION_DELETES = "data files and positions of the rows in them that the commit deletes"
    DELETION_VECTORS = "the same, as one bitmap for each data file"


@dataclass(frozen=True, slots=True)
class RowMarks:
    """The rows of one data file that a new file marks as deleted."""

    data_file: str
    rows: int
    last: int
    """The highest position."""
    blob: tuple[int, int] | None = None
    """For a deletion vector: its first byte in the new file, and its length."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A complete file that an executor has written."""

    path: str
    rows: int
    """Rows, keys or positions."""
    size_bytes: int
    partition: tuple[str | None, ...]
    """One text for each field of the lake's partition spec, as Iceberg reads it; None is null."""
    content: FileContent = FileContent.ROWS
    marks: tuple[RowMarks, ...] = ()
    """The rows that it marks, for the contents with positions."""

    @property
    def deletes(self) -> bool:
        """Whether it deletes rows of earlier commits."""
        return self.content is not FileContent.ROWS


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A data file of a bucket that a lake snapshot references."""

    path: str
    """Spelled as in the lake's metadata: another spelling of it would mark no row."""
    rows: int
    size_bytes: int
    key_bytes: int
    """Bytes of its key columns; all of its bytes if the metadata does not say."""
    bounds: tuple[tuple[bytes | None, bytes | None], ...] = ()
    """Lower and upper bound of each key column, as the lake stores them; None: not known. Of a log
    table, those of its offsets, if the lake stores them."""
    sequence: int = 0
    """Its data sequence number: newer equality deletes apply to it. Only read if there are any, or
    if rows have ids."""
    first_row_id: int | None = None
    """The id of its first row, in a table of Iceberg's format version 3; None: its rows have no ids
    yet."""


@dataclass(frozen=True, slots=True)
class StoredMarks:
    """A file that marks rows of data files as deleted by their position, or a part of one."""

    path: str
    rows: int
    """How many positions it has."""
    size_bytes: int
    data_file: str | None = None
    """The only data file whose rows it marks; None: it may be several."""
    blob: tuple[int, int] | None = None
    """For a deletion vector: its first byte in the file, and its length. None: a Parquet file."""


@dataclass(frozen=True, slots=True)
class StoredKeys:
    """A file of equality deletes that may apply to live data files."""

    path: str
    rows: int
    """How many keys it has."""
    size_bytes: int
    sequence: int
    """It deletes rows of data files with a smaller sequence number."""


@dataclass(frozen=True, slots=True)
class BucketFiles:
    """The live data files of one bucket, and what deletes rows of them."""

    files: tuple[LiveFile, ...] = ()
    """In the order of their paths."""
    marks: tuple[StoredMarks, ...] = ()
    """What deletes rows by their position."""
    unusable: str = ""
    """Why rows cannot be deleted by position here; empty: they can."""
    keys: tuple[StoredKeys, ...] = ()
    """What deletes rows by their key."""
    not_rewritable: str = ""
    """Why its files cannot be compacted, besides ``unusable``; empty: they can."""


@dataclass(frozen=True, slots=True)
class LiveFiles:
    """The live files of some buckets as of one snapshot. It stays on the driver."""

    snapshot_id: int | None
    """The current snapshot of main; None: the table has none."""
    buckets: Mapping[TableBucket, BucketFiles]
    as_vectors: bool = False
    """Whether the table has deletion vectors: Iceberg's format version 3 has no other form."""
    descriptions: Mapping[StoredMarks, dict[str, Any]] = field(default_factory=dict, compare=False)
    """The lake's own description of all marks, with which a commit removes them."""
    data_descriptions: Mapping[str, dict[str, Any]] = field(default_factory=dict, compare=False)
    """The same of the data files, by their path."""
    key_descriptions: Mapping[str, dict[str, Any]] = field(default_factory=dict, compare=False)
    """The same of equality deletes, by their path."""
    target_file_bytes: int = TARGET_FILE_BYTES
    """The size at which the table's data files end."""
    leaves_out: bool = False
    """Whether there are files of earlier partition specs, in which nothing is looked up."""


@dataclass(frozen=True, slots=True)
class PlannedCommit:
    """What a commit with positions or compacted files relies on, and what it removes."""

    planned: LiveFiles
    """Positions and rows are of these files. The commit is refused if others have replaced one."""
    replaced: tuple[StoredMarks, ...] = ()
    """Earlier marks that the new files contain, too."""
    removed: tuple[str, ...] = ()
    """Data files whose live rows the new files contain."""

    def outdated_keys(self) -> tuple[StoredKeys, ...]:
        """Equality deletes that apply to removed data files only. PyIceberg and polars refuse a
        table that has any.
        """
        removed = set(self.removed)
        found = []
        for bucket in self.planned.buckets.values():
            left = [file.sequence for file in bucket.files if file.path not in removed]
            if len(left) < len(bucket.files):
                found += [one for one in bucket.keys if one.sequence <= min(left, default=1 << 62)]
        return tuple(one for one in found if one.path in self.planned.key_descriptions)


@dataclass(frozen=True, slots=True)
class PositionLookup:
    """Where a split looks up the rows of its deleted keys, and how much it may read for that."""

    files: BucketFiles
    bytes_max: int
    """Bytes of key columns. A bucket that needs more gets equality deletes."""
    files_max: int
    """Data files. A bucket that needs more gets equality deletes."""
    as_vectors: bool = False
    """Whether the table has deletion vectors: Iceberg's format version 3 has no other form."""
    keys_of: tuple[DataFile, ...] = ()
    """Equality deletes whose keys are looked up again; the split copies nothing."""
    number: int = 0
    """How many look-ups of this split came before; file names contain it."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """Which data files of its bucket a split rewrites, with its own rows, sorted by key."""

    files: tuple[LiveFile, ...]
    bucket: BucketFiles
    """All files of the bucket, and what deletes rows of them."""
    file_bytes: int
    """The size at which a new file ends."""
    as_vectors: bool = False
    """Whether the table has deletion vectors: Iceberg's format version 3 has no other form."""
    memory_bytes: int = 256 * 1024 * 1024
    """Memory for rows while they are sorted; more are spilled to disk."""
    spill_dir: str = ""
    """Folder for spill files on an executor; empty: the system's temporary folder."""
    since: int = 0
    """Of a log table: the sequence number of the base of the oldest round whose rows it has. It is
    in the names of the new files, which keep their place in the order of the rows."""

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


@dataclass(frozen=True, slots=True)
class WrittenCompaction:
    """What a split has rewritten, or why it has not."""

    removed: tuple[str, ...] = ()
    """The data files whose live rows ``files`` contain."""
    files: tuple[DataFile, ...] = ()
    spare: tuple[DataFile, ...] = ()
    """The split's own rows alone, for a commit without the compaction."""
    why_not: str = ""
    """Why nothing was rewritten; empty: it was."""
    bytes_read: int = 0
    """Bytes of data files, and of what deletes their rows."""
    dead_rows: int = 0
    """Rows of the removed files that the new files do not have."""
    spilled_bytes: int = 0
    memory_bytes: int = 0
    """The most memory for rows at one time."""
    seconds: float = 0.0
    """Seconds by which the compaction made the split longer."""
    cpu_seconds: float = 0.0

    @property
    def bytes_written(self) -> int:
        return sum(file.size_bytes for file in self.files)


NO_COMPACTION = WrittenCompaction()
"""Nothing was planned."""


@dataclass(frozen=True, slots=True)
class WrittenDeletes:
    """How one split deletes the earlier rows of its keys."""

    keys: int = 0
    files: tuple[DataFile, ...] = ()
    """The files for the commit."""
    replaced: tuple[StoredMarks, ...] = ()
    """Earlier marks that these files contain too, which the commit therefore removes."""
    spare: tuple[DataFile, ...] = ()
    """If ``files`` have positions: equality deletes of the same keys, for the case that others
    rewrite the data files before the commit."""
    why_equality: str = ""
    """Why the keys were not looked up; empty: they were."""
    files_read: int = 0
    """Data files whose keys were read."""
    bytes_read: int = 0
    """Bytes of their key columns, and of earlier marks."""
    seconds: float = 0.0
    """CPU seconds of the look-up, and of writing the positions."""


NO_DELETES = WrittenDeletes()
