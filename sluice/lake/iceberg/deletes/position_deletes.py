"""Writes the positions of deleted rows: a position delete file, or deletion vectors.

Iceberg's format version 2 has position delete files. In a bucket of few data files a round writes
one for each data file that it deletes rows of, in others one for all. The next one contains the
smaller of the earlier ones, and the commit removes these. Format version 3 has one deletion vector
for each data file: a round writes the vectors of all data files that it deletes rows of, with the
positions of the vectors before, into one Puffin file for each bucket.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from sluice.failpoints import failpoint
from sluice.lake.iceberg.deletes.earlier_marks import (
    FILE_PATH,
    POS,
    Positions,
    marks_by_file,
    read_earlier_marks,
    united,
)
from sluice.lake.parquet.reader import LakeReader
from sluice.lake.parquet.writer import FileTarget, ParquetFiles, WriteOptions
from sluice.lake.storage.small_files import write_file
from sluice.rounds.values.lake_files import (
    BucketFiles,
    DataFile,
    FileContent,
    RowMarks,
    StoredMarks,
)

MERGED_FROM = 8
"""With so many position delete files in a bucket, the next one contains the smaller of them."""
MERGE_FACTOR = 4
"""A file is merged if it has at most so many times the positions of all smaller ones together."""
APART_MAX = 8
"""In a bucket with at most so many data files, each position file is about one of them."""
APART_FACTOR = 8
"""There, a file is merged if it has at most so many times the positions of all smaller ones."""
_REPEATED_FACTOR = 2
"""If a look-up found more than so many rows for each key, most of them are deleted already."""
_SCHEMA = pa.schema(
    [
        pa.field(FILE_PATH, pa.string(), False, {"PARQUET:field_id": "2147483546"}),
        pa.field(POS, pa.int64(), False, {"PARQUET:field_id": "2147483545"}),
    ]
)
"""Names and reserved field ids of Iceberg's table specification."""
_ENCODED = pa.dictionary(pa.int32(), pa.string())


@dataclass(frozen=True, slots=True)
class WrittenPositions:
    """The files with the positions of one bucket."""

    files: tuple[DataFile, ...] = ()
    replaced: tuple[StoredMarks, ...] = ()
    """Earlier marks that they contain, too."""
    bytes_read: int = 0
    """Bytes of earlier marks."""


def new_positions(
    found: Positions, keys: int, bucket: BucketFiles, reader: LakeReader, count_max: int
) -> tuple[Positions, int]:
    """The positions that are not deleted yet, and the bytes that were read to know.

    A row that is deleted already may be deleted again. So earlier positions are read only if many
    rows were found for each key: a key that changes in every round leaves a row in every file.

    :param count_max: positions that fit into memory. Earlier ones that do not fit are not read.
    :raises OSError, ValueError, ImportError: a file cannot be opened.
    :raises LakeFileUnreadable: an earlier file is damaged.
    """
    count = sum(len(positions) for positions in found.values())
    if count <= _REPEATED_FACTOR * keys or not bucket.marks:
        return found, 0
    if count + earlier_count(bucket.marks, found.keys()) > count_max:
        return found, 0
    earlier = read_earlier_marks(bucket.marks, found.keys(), reader)
    left = {
        path: np.setdiff1d(positions, earlier[path], assume_unique=True)
        if path in earlier
        else positions
        for path, positions in found.items()
    }
    size_bytes = sum(one.size_bytes if one.blob is None else one.blob[1] for one in bucket.marks)
    return {path: positions for path, positions in left.items() if len(positions)}, size_bytes


def earlier_count(marks: Sequence[StoredMarks], data_files: Set[str]) -> int:
    """At most how many positions :func:`read_earlier_marks` finds."""
    return sum(one.rows for one in marks if one.data_file is None or one.data_file in data_files)


def write_position_files(
    positions: Positions,
    bucket: BucketFiles,
    reader: LakeReader,
    target: FileTarget,
    options: WriteOptions,
    count_max: int,
    removed: Set[str] = frozenset(),
) -> WrittenPositions:
    """Writes position delete files, with the positions of the small ones among the earlier files.

    In a bucket of few data files each gets a file of its own: polars reads the table itself only if
    each position file is about one data file. In others there is one file for all.

    :param positions: what the commit deletes; not empty if no data file is removed.
    :param count_max: positions that fit into memory, which limits what is merged.
    :param removed: data files that the commit removes. Then all earlier files are merged that fit,
        without the positions in these.
    :raises LakeNotWritable: the storage refuses, or is full.
    :raises OSError, ValueError, ImportError: a file cannot be opened.
    :raises LakeFileUnreadable: an earlier file is damaged.
    """
    living = {file.path for file in bucket.files} - removed
    gone = tuple(one for one in bucket.marks if one.data_file in removed)
    left = [one for one in bucket.marks if one.data_file not in removed]
    apart = len(living) <= APART_MAX
    count = sum(len(one) for one in positions.values())
    several = [one for one in left if one.data_file is None] if apart else left
    merged = _to_merge(several, count, count_max, everything=bool(removed) or apart)
    size_bytes = sum(one.size_bytes for one in merged)
    whole = _union(positions, read_earlier_marks(merged, living, reader))
    if not apart:
        files = [_written(whole, target, options)] if whole else []
        return WrittenPositions(tuple(files), (*merged, *gone), size_bytes)
    singles = marks_by_file(left)
    written: list[DataFile] = []
    try:
        for number, (path, found) in enumerate(whole.items()):
            mine = _to_merge_apart(singles.get(path, ()), len(found), count_max)
            if mine:
                found = united([found, read_earlier_marks(mine, {path}, reader)[path]])
            merged, size_bytes = (*merged, *mine), size_bytes + sum(m.size_bytes for m in mine)
            aside = replace(target, prefix=f"{target.prefix}-of{number}") if number else target
            written.append(_written({path: found}, aside, options))
    except BaseException:
        target.files.try_to_delete(file.path for file in written)
        raise
    return WrittenPositions(tuple(written), (*merged, *gone), size_bytes)


def _written(positions: Positions, target: FileTarget, options: WriteOptions) -> DataFile:
    """One file with these positions."""
    files = ParquetFiles(
        target,
        replace(options, target_file_bytes=sys.maxsize),  # its marks are known for one file
        FileContent.POSITION_DELETES,
    )
    try:
        for rows in _tables(positions, options.row_group_rows):
            files.write_group(rows)
        [file] = files.close()
    except BaseException:
        files.abort()
        raise
    marks = tuple(RowMarks(path, len(p), int(p[-1])) for path, p in positions.items())
    return replace(file, marks=marks)


def write_vector_file(
    positions: Positions,
    bucket: BucketFiles,
    reader: LakeReader,
    target: FileTarget,
    removed: Set[str] = frozenset(),
) -> WrittenPositions:
    """Writes a Puffin file with a deletion vector of each of these data files.

    :param positions: what the commit deletes; not empty if no data file is removed.
    :param removed: data files that the commit removes, and their vectors with them.
    :raises LakeNotWritable: the storage refuses, or is full.
    :raises OSError, ValueError, ImportError: a file cannot be opened.
    :raises LakeFileUnreadable: an earlier file is damaged.
    """
    from sluice.lake.iceberg.deletes.deletion_vectors import (  # loads pyroaring
        DeletionVector,
        write_vectors,
    )

    gone = tuple(one for one in bucket.marks if one.data_file in removed)
    if not positions:
        return WrittenPositions((), gone)
    # a reader takes a vector alone, and ignores position delete files of the same data file
    earlier = read_earlier_marks(bucket.marks, positions.keys(), reader)
    whole = _union(positions, {path: earlier[path] for path in earlier.keys() & positions.keys()})
    written = write_vectors({path: DeletionVector.of(found) for path, found in whole.items()})
    uri = f"{target.uri}/{target.prefix}-00001-deletes.puffin"
    failpoint("round.copy.file.before")
    write_file(uri, written.content, target.files)
    failpoint("round.copy.file.after")
    marks = tuple(
        RowMarks(
            one.data_file,
            one.cardinality,
            int(whole[one.data_file][-1]),
            (one.offset, one.size_bytes),
        )
        for one in written.vectors
    )
    rows = sum(mark.rows for mark in marks)
    file = DataFile(
        uri,
        rows,
        len(written.content),
        target.partition,
        FileContent.DELETION_VECTORS,
        marks,
    )
    by_file = marks_by_file(bucket.marks)
    replaced = tuple(one for path in whole for one in by_file.get(path, ()))
    size_bytes = sum(one.size_bytes if one.blob is None else one.blob[1] for one in replaced)
    return WrittenPositions((file,), (*replaced, *gone), size_bytes)


def _to_merge(
    marks: Sequence[StoredMarks], new: int, count_max: int, *, everything: bool
) -> tuple[StoredMarks, ...]:
    """The earlier files that the next one contains: the smaller ones, if there are many.

    So each position is written again a few times at most, however long the table lives.

    :param everything: all that fit into memory.
    """
    if len(marks) < MERGED_FROM and not everything:
        return ()
    merged, count = [], new
    for one in sorted(marks, key=lambda one: one.rows):
        is_large = one.rows > MERGE_FACTOR * count and not everything
        if is_large or count + one.rows > count_max:
            break
        merged.append(one)
        count += one.rows
    return tuple(merged)


def _to_merge_apart(
    marks: Sequence[StoredMarks], new: int, count_max: int
) -> tuple[StoredMarks, ...]:
    """The earlier files of a data file that its next one contains: all that are not much larger."""
    merged, count = [], new
    for one in sorted(marks, key=lambda one: one.rows):
        if one.rows > APART_FACTOR * count or count + one.rows > count_max:
            break
        merged.append(one)
        count += one.rows
    return tuple(merged)


def _union(one: Positions, other: Positions) -> Positions:
    """All positions, in the order of the paths."""
    found = {}
    for path in sorted(one.keys() | other.keys()):
        parts = [positions[path] for positions in (one, other) if path in positions]
        found[path] = parts[0] if len(parts) == 1 else united(parts)
    return found


def _tables(positions: Positions, rows_max: int) -> list[pa.Table]:
    """The rows of a position delete file, sorted by path and position."""
    counts = [len(one) for one in positions.values()]
    codes = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    paths = pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(list(positions)))
    rows = pa.array(np.concatenate(list(positions.values())))
    schema = pa.schema([_SCHEMA.field(FILE_PATH).with_type(_ENCODED), _SCHEMA.field(POS)])
    table = pa.Table.from_arrays([paths, rows], schema=schema)
    return [table.slice(start, rows_max) for start in range(0, table.num_rows, rows_max)]
