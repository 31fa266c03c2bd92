"""The files of the model of a lake, and how a split writes them: rows, keys and positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from sluice.errors import LakeNotWritable
from sluice.iceberg_rules.layout import Layout
from sluice.model import LOG_OFFSET
from sluice.rounds.plan.position_lookups import OFF, why_too_much
from sluice.rounds.upkeep.compaction import why_too_long
from sluice.rounds.values.lake_files import (
    NO_COMPACTION,
    NO_DELETES,
    BucketFiles,
    Compaction,
    DataFile,
    FileContent,
    LiveFile,
    LiveFiles,
    PositionLookup,
    RowMarks,
    StoredKeys,
    StoredMarks,
    WrittenCompaction,
    WrittenDeletes,
)
from sluice.rounds.values.limits import TimeLeft
from sluice.rounds.values.types import LogRecords, Split

Row = tuple[tuple[str, ...], int, int]
"""(partition values, bucket, offset) of one row."""

Key = tuple[Any, ...]

BUCKET = "bucket"
"""Where the row of a key has its bucket."""

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
    layout: Layout

    def number_of(self, path: str) -> int:
        """The sequence number of the commit that added a file."""


def live_files_of(
    folder: Folder,
    paths: Set[str],
    snapshot_id: int | None,
    splits: Sequence[Split],
    *,
    as_vectors: bool = False,
) -> LiveFiles:
    """The live files of the buckets of splits, among these files."""
    buckets = {
        split.bucket: _keyed_files(folder, paths, split)
        if split.keyed is not None
        else _log_files(folder, paths, split, splits)
        for split in splits
    }
    described: dict[str, dict[str, Any]] = {
        one.path: {} for bucket in buckets.values() for one in bucket.keys
    }
    return LiveFiles(snapshot_id, buckets, as_vectors, key_descriptions=described)


def _keyed_files(folder: Folder, paths: Set[str], split: Split) -> BucketFiles:
    files, marks, keys = [], [], []
    for path in sorted(paths & folder.keyed.keys()):
        file, number = folder.keyed[path], folder.number_of(path)
        if file.partition != _partition(split):
            continue
        if file.rows:
            size = 8 * len(file.rows)
            files.append(LiveFile(path, len(file.rows), size, size, sequence=number))
        if file.marks:
            count = sum(map(len, file.marks.values()))
            only = next(iter(file.marks)) if len(file.marks) == 1 else None
            marks.append(StoredMarks(path, count, 8, only))
        if file.deletes:
            keys.append(StoredKeys(path, len(file.deletes), 8, number))
    keys.sort(key=lambda one: one.sequence)
    return BucketFiles(tuple(files), tuple(marks), keys=tuple(keys))


def _log_files(
    folder: Folder, paths: Set[str], split: Split, splits: Sequence[Split]
) -> BucketFiles:
    """Of a legacy log table, each file has rows of one bucket.

    Buckets of a clean one share their files. The first split of a partition gets them.
    """
    values, bucket = split.partition_values, split.bucket.bucket
    is_clean = folder.layout is Layout.CLEAN
    if is_clean and bucket != min(
        one.bucket.bucket for one in splits if one.partition_values == values
    ):
        return BucketFiles()
    files = []
    for path in sorted(paths - folder.keyed.keys()):
        rows = folder.files.get(path, [])
        if not rows or rows[0][0] != values:
            continue
        if is_clean:
            files.append(LiveFile(path, len(rows), 8 * len(rows), 0))
        elif rows[0][1] == bucket:
            ends = [end(row[2] for row in rows).to_bytes(8, "little") for end in (min, max)]
            bounds = ((ends[0], ends[1]),)
            files.append(LiveFile(path, len(rows), 8 * len(rows), 0, bounds))
    return BucketFiles(tuple(files))


class MemoryWriter:
    """Implements SplitWriter and KeyedWriter; files appear when it is closed."""

    def __init__(self, folder: Folder, split: Split, path: str) -> None:
        self._folder, self._split, self._path = folder, split, path
        self._rows: list[Row] = []
        self._upserts: list[tuple[Key, dict[str, Any]]] = []
        self._deletes: list[Key] = []
        self._partition = _partition(split)
        self._written: list[str] = []
        self._removed: frozenset[str] = frozenset()

    def write(self, records: LogRecords) -> None:
        key = (self._split.partition_values, self._split.bucket.bucket)
        self._rows += [(*key, records.base_offset + i) for i in range(records.batch.num_rows)]

    def upsert(self, rows: pa.Table) -> None:
        assert self._split.keyed is not None
        bucket = self._split.bucket.bucket
        for row in rows.to_pylist():
            key = tuple(row[name] for name in self._split.keyed.columns)
            self._upserts.append((key, {**row, BUCKET: bucket}))
            self._rows.append((self._split.partition_values, bucket, row[LOG_OFFSET]))

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

    def compact(self, own: Sequence[DataFile], time_left: TimeLeft) -> WrittenCompaction:
        compaction = self._split.compaction
        if compaction is None:
            return NO_COMPACTION
        if why := why_too_long(compaction, time_left.left_s()):
            return WrittenCompaction(why_not=why)
        try:
            compacted = self._rewrite(compaction)
        except LakeNotWritable as gone:
            return WrittenCompaction(why_not=str(gone))
        if time_left.is_over():
            self._forget([file.path for file in compacted])
            return WrittenCompaction(why_not="the round's time limit was reached")
        self._removed = frozenset(file.path for file in compaction.files)
        return WrittenCompaction(
            tuple(sorted(self._removed)),
            compacted,
            tuple(own),
            bytes_read=8 * compaction.rows,
        )

    def _rewrite(self, compaction: Compaction) -> tuple[DataFile, ...]:
        """:raises LakeNotWritable: a file was deleted meanwhile."""
        path = f"{self._path}-compacted"
        if self._split.keyed is None:
            offsets = [row for one in compaction.files for row in self._log_rows(one.path)]
            self._folder.files[path] = offsets
            self._written.append(path)
            return (DataFile(path, len(offsets), 8 * len(offsets), self._partition),)
        marks = [self._read(one.path).marks for one in compaction.bucket.marks]
        changed = set(self._deletes)
        kept = []
        for file in compaction.files:
            dead = frozenset[int]().union(*(one.get(file.path, ()) for one in marks))
            later = [one for one in compaction.bucket.keys if one.sequence > file.sequence]
            gone = changed.union(*(self._read(one.path).deletes for one in later))
            kept += [
                (key, row)
                for place, (key, row) in enumerate(self._read(file.path).rows)
                if place not in dead and key not in gone
            ]
        kept = sorted([*kept, *self._upserts], key=lambda one: one[0])
        if not kept:
            return ()
        written = self._put(
            path, KeyedFile(self._partition, tuple(kept)), len(kept), FileContent.ROWS
        )
        *values, bucket = self._partition
        self._folder.files[path] = [
            (tuple(values), int(bucket), row[LOG_OFFSET]) for _, row in kept
        ]
        return (written,)

    def _log_rows(self, path: str) -> list[Row]:
        """:raises LakeNotWritable: the file was deleted."""
        if path not in self._folder.files:
            raise LakeNotWritable(f"{path} is missing")
        return self._folder.files[path]

    def close_deletes(self) -> WrittenDeletes:
        assert self._split.keyed is not None
        lookup = self._split.keyed.lookup
        if lookup is not None and lookup.keys_of:
            spare = lookup.keys_of
            keys = {key for file in spare for key in self._read(file.path).deletes}
        else:  # the keys are in memory: clean-up may have deleted the file of a dead round
            spare, keys = self._equality(), set(self._deletes)
        if not keys and not self._removed:
            return NO_DELETES
        if lookup is None:
            return WrittenDeletes(len(keys), spare, why_equality=OFF)
        left = [file for file in lookup.files.files if file.path not in self._removed]
        if why := why_too_much(lookup, len(left), sum(file.key_bytes for file in left)):
            return WrittenDeletes(len(keys), spare, why_equality=why)
        try:
            found, replaced = self._find(lookup, keys)
        except LakeNotWritable as gone:
            return WrittenDeletes(len(keys), spare, why_equality=str(gone))
        groups = [{p: m} for p, m in found.items()] if lookup.as_vectors else [found]
        written = [
            self._marks(number, group, lookup) for number, group in enumerate(groups) if group
        ]
        return WrittenDeletes(len(keys), tuple(written), replaced, spare, files_read=len(left))

    def abort(self) -> None:
        self._forget([self._path, *self._written])

    def _forget(self, paths: Sequence[str]) -> None:
        for path in paths:
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
        left = [one for one in lookup.files.files if one.path not in self._removed]
        for one in left:
            if marked := self._marked_in(one, keys):
                found[one.path] = marked
        earlier = lookup.files.marks
        gone = tuple(mark for mark in earlier if mark.data_file in self._removed)
        if lookup.as_vectors:
            merged = earlier if found else ()
            replaced = tuple(mark for mark in earlier if mark.data_file in found)
            wanted = set(found)
        else:
            is_many = len(earlier) >= MERGED_FROM and bool(found)
            merged = replaced = earlier if is_many or self._removed else ()
            wanted = {one.path for one in left}
        for mark in merged:
            for path, positions in self._read(mark.path).marks.items():
                if path in wanted:
                    found[path] = found.get(path, frozenset()) | positions
        return found, tuple(dict.fromkeys((*replaced, *gone)))

    def _marked_in(self, file: LiveFile, keys: Set[Key]) -> frozenset[int]:
        """The positions of a data file's rows with these keys."""
        rows = self._read(file.path).rows
        return frozenset(place for place, (key, _) in enumerate(rows) if key in keys)

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
