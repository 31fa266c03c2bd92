"""The files of the model of a lake, and how a split writes them: rows, keys and positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from sluice.errors import LakeNotWritable
from sluice.rounds.lake_files import (
    NO_DELETES,
    BucketFiles,
    DataFile,
    FileContent,
    LiveFile,
    LiveFiles,
    PositionLookup,
    RowMarks,
    StoredMarks,
    WrittenDeletes,
)
from sluice.rounds.position_lookups import OFF, why_too_much
from sluice.rounds.types import LogRecords, Split

Row = tuple[tuple[str, ...], int, int]
"""(partition values, bucket, offset) of one row."""

Key = tuple[Any, ...]

MERGED_FROM = 3
"""With this number of files of positions in a bucket, the next one contains them, too."""


@dataclass(frozen=True)
class KeyedFile:
    """The content of a primary-key table's file: rows by key, keys to delete, or positions."""

    partition: tuple[str, ...]
    rows: tuple[tuple[Key, dict[str, Any]], ...] = ()
    deletes: frozenset[Key] = frozenset()
    marks: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """Positions of deleted rows by data file."""
    vector: bool = False
    """Whether its marks are a deletion vector: readers ignore all other marks of its data file."""


class Folder(Protocol):
    """Where a table's files are stored."""

    files: dict[str, list[Row]]
    keyed: dict[str, KeyedFile]


def live_files_of(
    folder: Folder,
    paths: Set[str],
    snapshot_id: int | None,
    splits: Sequence[Split],
    *,
    as_vectors: bool = False,
) -> LiveFiles:
    """The live files of the buckets of splits, among these files."""
    found: dict[tuple[str, ...], tuple[list[LiveFile], list[StoredMarks]]] = {}
    for path in sorted(paths & folder.keyed.keys()):
        file = folder.keyed[path]
        files, marks = found.setdefault(file.partition, ([], []))
        if file.rows:
            files.append(LiveFile(path, len(file.rows), 8, 8 * len(file.rows)))
        if file.marks:
            count = sum(map(len, file.marks.values()))
            only = next(iter(file.marks)) if len(file.marks) == 1 else None
            marks.append(StoredMarks(path, count, 8, only))
    buckets = {}
    for split in splits:
        files, marks = found.get(_partition(split), ([], []))
        buckets[split.bucket] = BucketFiles(tuple(files), tuple(marks))
    return LiveFiles(snapshot_id, buckets, as_vectors)


class MemoryWriter:
    """Implements SplitWriter and KeyedWriter; files appear when it is closed."""

    def __init__(self, folder: Folder, split: Split, path: str) -> None:
        self._folder, self._split, self._path = folder, split, path
        self._rows: list[Row] = []
        self._upserts: list[tuple[Key, dict[str, Any]]] = []
        self._deletes: list[Key] = []
        self._partition = _partition(split)
        self._written: list[str] = []

    def write(self, records: LogRecords) -> None:
        key = (self._split.partition_values, self._split.bucket.bucket)
        self._rows += [(*key, records.base_offset + i) for i in range(records.batch.num_rows)]

    def upsert(self, rows: pa.Table) -> None:
        assert self._split.keyed is not None
        bucket = self._split.bucket.bucket
        for row in rows.to_pylist():
            key = tuple(row[name] for name in self._split.keyed.columns)
            self._upserts.append((key, {**row, "__bucket": bucket}))
            self._rows.append((self._split.partition_values, bucket, row["__offset"]))

    def delete(self, keys: pa.Table) -> None:
        assert self._split.keyed is not None
        columns = self._split.keyed.columns
        self._deletes += [tuple(row[name] for name in columns) for row in keys.to_pylist()]

    def close(self) -> tuple[DataFile, ...]:
        partition = self._partition
        files, rows = [], len(self._rows)
        if self._rows:
            self._folder.files[self._path] = self._rows
            files.append(DataFile(self._path, rows, 8 * rows, partition))
        if self._upserts:
            self._folder.keyed[self._path] = KeyedFile(partition, rows=tuple(self._upserts))
        return tuple(files)

    def close_deletes(self) -> WrittenDeletes:
        assert self._split.keyed is not None
        lookup = self._split.keyed.lookup
        if lookup is not None and lookup.keys_of:
            spare = lookup.keys_of
            keys = {key for file in spare for key in self._read(file.path).deletes}
        else:  # the keys are in memory: clean-up may have deleted the file of a dead round
            spare, keys = self._equality(), set(self._deletes)
        if not keys:
            return NO_DELETES
        if lookup is None:
            return WrittenDeletes(len(keys), spare, why_equality=OFF)
        size = sum(file.key_bytes for file in lookup.files.files)
        if why := why_too_much(lookup, len(lookup.files.files), size):
            return WrittenDeletes(len(keys), spare, why_equality=why)
        try:
            found, replaced = self._find(lookup, keys)
        except LakeNotWritable as gone:
            return WrittenDeletes(len(keys), spare, why_equality=str(gone))
        groups = [{p: m} for p, m in found.items()] if lookup.as_vectors else [found]
        written = [
            self._marks(number, group, lookup) for number, group in enumerate(groups) if group
        ]
        read = len(lookup.files.files)
        return WrittenDeletes(len(keys), tuple(written), replaced, spare, files_read=read)

    def abort(self) -> None:
        for path in (self._path, *self._written):
            self._folder.files.pop(path, None)

    def _find(
        self, lookup: PositionLookup, keys: Set[Key]
    ) -> tuple[dict[str, frozenset[int]], tuple[StoredMarks, ...]]:
        """The positions of the keys by data file, and the earlier marks that they contain.

        A deletion vector contains all earlier marks of its data file, because readers of the vector
        ignore them.

        :raises LakeNotWritable: a file was deleted meanwhile.
        """
        found: dict[str, frozenset[int]] = {}
        for one in lookup.files.files:
            rows = self._read(one.path).rows
            if marked := frozenset(p for p, (key, _) in enumerate(rows) if key in keys):
                found[one.path] = marked
        earlier = lookup.files.marks
        if lookup.as_vectors:
            replaced = tuple(mark for mark in earlier if mark.data_file in found)
            merged = earlier
        else:
            replaced = earlier if len(earlier) >= MERGED_FROM and found else ()
            merged = replaced
        live = {one.path for one in lookup.files.files}
        wanted = found.keys() if lookup.as_vectors else live
        for mark in merged if found else ():
            for path, positions in self._read(mark.path).marks.items():
                if path in wanted:
                    found[path] = found.get(path, frozenset()) | positions
        return found, replaced

    def _read(self, path: str) -> KeyedFile:
        """:raises LakeNotWritable: the file was deleted."""
        if path not in self._folder.files:
            raise LakeNotWritable(f"{path} is missing")
        return self._folder.keyed[path]

    def _equality(self) -> tuple[DataFile, ...]:
        if not self._deletes:
            return ()
        path, keys = f"{self._path}-deletes", frozenset(self._deletes)
        content = FileContent.EQUALITY_DELETES
        return (self._put(path, KeyedFile(self._partition, deletes=keys), len(keys), content),)

    def _marks(
        self, number: int, marks: Mapping[str, frozenset[int]], lookup: PositionLookup
    ) -> DataFile:
        vector = lookup.as_vectors
        content = FileContent.DELETION_VECTORS if vector else FileContent.POSITION_DELETES
        rows = [RowMarks(path, len(found), max(found)) for path, found in marks.items()]
        file = KeyedFile(self._partition, marks=dict(marks), vector=vector)
        count = sum(mark.rows for mark in rows)
        return self._put(f"{self._path}-positions{number}", file, count, content, tuple(rows))

    def _put(
        self,
        path: str,
        file: KeyedFile,
        rows: int,
        content: FileContent,
        marks: tuple[RowMarks, ...] = (),
    ) -> DataFile:
        self._folder.files[path], self._folder.keyed[path] = [], file
        self._written.append(path)
        return DataFile(path, rows, 8 * rows, self._partition, content, marks)


def _partition(split: Split) -> tuple[str, ...]:
    """Partition values and bucket, as the files of a primary-key table have them."""
    return (*split.partition_values, str(split.bucket.bucket))
