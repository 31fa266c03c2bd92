"""Reads which rows of data files are deleted by position already. Runs on executors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sluice.lake.parquet.reader import LakeReader
from sluice.rounds.values.lake_files import StoredMarks

FILE_PATH, POS = "file_path", "pos"
"""The columns of a position delete file (Iceberg's table specification, position delete files)."""
_GAP_BYTES = 64 * 1024
"""Vectors that are nearer to each other than this are read together."""
POSITION_BYTES = 32
"""Memory of a position: it has 8 bytes, and is copied to be sorted and merged."""

Positions = dict[str, np.ndarray]
"""Positions (int64), ascending and distinct, by the path of the data file."""


def read_earlier_marks(
    marks: Sequence[StoredMarks], data_files: Set[str], reader: LakeReader
) -> Positions:
    """The positions that these marks have for these data files.

    Marks of data files that the table no longer has are left out.

    :raises OSError, ValueError, ImportError: a file cannot be opened.
    :raises LakeFileUnreadable: a file is damaged.
    """
    found: dict[str, list[np.ndarray]] = defaultdict(list)
    for one in marks:
        if one.blob is None:
            for path, positions in _of_parquet(one, reader):
                if path in data_files:
                    found[path].append(positions)
    for path, positions in _of_vectors(marks, data_files, reader):
        found[path].append(positions)
    return {path: united(parts) for path, parts in found.items()}


def united(parts: Sequence[np.ndarray]) -> np.ndarray:
    """The positions of several arrays, ascending and distinct."""
    ordered = np.concatenate(parts)
    ordered.sort(kind="stable")  # np.unique takes a hash table: 100 times slower on sorted runs
    return ordered[np.diff(ordered, prepend=ordered[:1] - 1) != 0]


def _of_parquet(marks: StoredMarks, reader: LakeReader) -> Iterator[tuple[str, np.ndarray]]:
    source = reader.open(marks.path, marks.size_bytes)
    with (
        reader.reading("position delete file", marks.path),
        pq.ParquetFile(source, read_dictionary=[FILE_PATH]) as opened,
    ):
        for batch in opened.iter_batches(columns=[FILE_PATH, POS], use_threads=False):
            paths = batch.column(FILE_PATH)
            if not pa.types.is_dictionary(paths.type):
                paths = pc.dictionary_encode(paths)
            names = paths.dictionary.cast(pa.string())  # other writers may say bytes
            codes = paths.indices.to_numpy()
            positions = batch.column(POS).cast(pa.int64()).to_numpy()
            order = np.argsort(codes, kind="stable")
            ordered = codes[order]
            starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
            for part in np.split(order, starts[1:]):
                if len(part):
                    yield names[int(codes[part[0]])].as_py(), positions[part]


def _of_vectors(
    marks: Sequence[StoredMarks], data_files: Set[str], reader: LakeReader
) -> Iterator[tuple[str, np.ndarray]]:
    by_file: dict[str, list[StoredMarks]] = defaultdict(list)
    for one in marks:
        if one.blob is not None and one.data_file in data_files:
            by_file[one.path].append(one)
    if not by_file:
        return
    from sluice.lake.iceberg.deletes.deletion_vectors import DeletionVector  # loads pyroaring

    for path, vectors in by_file.items():
        for one, blob in _blobs(path, vectors, reader):
            assert one.data_file is not None
            where = f"{path}, offset {one.blob and one.blob[0]}"
            yield one.data_file, DeletionVector.from_blob(blob, where, one.rows).positions()


def _blobs(
    path: str, vectors: Sequence[StoredMarks], reader: LakeReader
) -> Iterator[tuple[StoredMarks, memoryview]]:
    """The bytes of each vector of a file; neighbours are read with one request."""
    with reader.open(path, vectors[0].size_bytes) as source:
        ordered = sorted(vectors, key=lambda one: one.blob or (0, 0))
        for group in _neighbours(ordered):
            start, end = _range(group[0])[0], _range(group[-1])[1]
            source.seek(start)
            content = memoryview(source.read(end - start))
            for one in group:
                first, last = _range(one)
                yield one, content[first - start : last - start]


def _neighbours(ordered: Sequence[StoredMarks]) -> Iterator[list[StoredMarks]]:
    group: list[StoredMarks] = []
    for one in ordered:
        if group and _range(one)[0] - _range(group[-1])[1] > _GAP_BYTES:
            yield group
            group = []
        group.append(one)
    if group:
        yield group


def _range(one: StoredMarks) -> tuple[int, int]:
    assert one.blob is not None
    return one.blob[0], one.blob[0] + one.blob[1]


def marks_by_file(marks: Sequence[StoredMarks]) -> Mapping[str, list[StoredMarks]]:
    """The marks that name their only data file, by that file."""
    found: dict[str, list[StoredMarks]] = defaultdict(list)
    for one in marks:
        if one.data_file is not None:
            found[one.data_file].append(one)
    return found
