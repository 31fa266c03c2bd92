"""Position delete files and deletion vectors of a lake, read and compared with its metadata.

It knows Iceberg's formats (table specification: delete files, deletion vectors; Puffin) and shares
no code with the project.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

DATA, POSITIONS, EQUALITY = 0, 1, 2
"""A file's content, as Iceberg's metadata tables number it."""
LISTED = (
    "content, file_path, lower(file_format) AS file_format, partition, record_count,"
    " file_size_in_bytes, referenced_data_file, content_offset, content_size_in_bytes,"
    " lower_bounds[2147483546] AS lower_path, upper_bounds[2147483546] AS upper_path"
)
"""What to select of a metadata table of files; the number is that of the column ``file_path``."""
MARKS = pa.schema(
    [
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": "2147483545"}),
    ]
)
"""Of a position delete file; its readers go by the ids."""
_PUFFIN = b"PFA1"
_VECTOR = bytes.fromhex("d1d33964")

Marks = dict[str, np.ndarray]
"""Ascending positions (int64) by the path of their data file."""


@dataclass(frozen=True)
class ListedFile:
    """A file, or a vector in one, as Iceberg's metadata has it."""

    content: int
    path: str
    file_format: str
    partition: tuple[Any, ...]
    rows: int
    size_bytes: int
    data_file: str | None
    """The only data file that it is about, if the metadata says so."""
    blob: tuple[int, int] | None
    """Of a vector: its first byte and its length."""
    paths: tuple[str | None, str | None]
    """Bounds of the paths in a position delete file."""

    @classmethod
    def of(cls, row: Any) -> ListedFile:
        """:param row: what a query for :data:`LISTED` brought."""
        blob = None
        if row.content_offset is not None:
            blob = (row.content_offset, row.content_size_in_bytes)
        bounds = (row.lower_path, row.upper_path)
        low, high = (None if one is None else bytes(one).decode() for one in bounds)
        return cls(
            row.content,
            row.file_path,
            row.file_format,
            tuple(row.partition or ()),
            row.record_count,
            row.file_size_in_bytes,
            row.referenced_data_file,
            blob,
            (low, high),
        )

    @property
    def is_vector(self) -> bool:
        return self.content == POSITIONS and self.file_format == "puffin"

    def __str__(self) -> str:
        return self.path if self.blob is None else f"{self.path}, byte {self.blob[0]}"


def read_marks(listed: ListedFile, path: Path) -> Marks:
    """What a file, or a vector in it, marks as deleted.

    :raises ValueError, OSError, pyarrow.ArrowException: it is not what the metadata says.
    """
    if path.stat().st_size != listed.size_bytes:
        raise ValueError(f"{path.stat().st_size} bytes, {listed.size_bytes} in the metadata")
    marks = _vector(listed, path) if listed.is_vector else _position_file(path)
    count = sum(len(positions) for positions in marks.values())
    if count != listed.rows:
        raise ValueError(f"{count} positions, {listed.rows} in the metadata")
    return marks


def _position_file(path: Path) -> Marks:
    table = pq.ParquetFile(path).read()
    ids = [(one.name, (one.metadata or {}).get(b"PARQUET:field_id")) for one in table.schema]
    if ids != [(one.name, one.metadata[b"PARQUET:field_id"]) for one in MARKS]:
        raise ValueError(f"positions with columns {ids}")
    table = table.cast(MARKS)
    ordered = table.sort_by([("file_path", "ascending"), ("pos", "ascending")])
    if not ordered.equals(table):
        raise ValueError("its positions are not in order")
    found = {}
    for name in pc.unique(table["file_path"]).to_pylist():
        rows = table.filter(pc.equal(table["file_path"], name))
        found[name] = rows["pos"].to_numpy()
    return found


def _vector(listed: ListedFile, path: Path) -> Marks:
    content = path.read_bytes()
    [size] = struct.unpack("<i", content[-12:-8])
    footer = content[-16 - size : -12]
    if not content[:4] == content[-4:] == footer[:4] == _PUFFIN:
        raise ValueError("no Puffin file")
    if listed.blob is None or listed.data_file is None:
        raise ValueError("its metadata does not say where the vector is, or of which data file")
    start, length = listed.blob
    told = {(blob["offset"], blob["length"]): blob for blob in json.loads(footer[4:])["blobs"]}
    said = told.get(listed.blob, {}).get("properties", {})
    if said != {"referenced-data-file": listed.data_file, "cardinality": str(listed.rows)}:
        raise ValueError(f"its footer says {said} of bytes {start} to {start + length}")
    blob = content[start : start + length]
    [inner], [crc] = struct.unpack(">I", blob[:4]), struct.unpack(">I", blob[-4:])
    body = blob[4:-4]
    if (inner, zlib.crc32(body), body[:4]) != (len(body), crc, _VECTOR):
        raise ValueError("a damaged vector")
    positions = np.fromiter(BitMap64.deserialize(body[4:]), np.int64)
    return {listed.data_file: positions}


def wrong_marks(
    marks: Mapping[ListedFile, Marks], files: Sequence[ListedFile], *, is_whole: bool
) -> Iterator[str]:
    """What is wrong with position delete files and vectors, each compared with the data files.

    :param files: all that any snapshot has.
    :param is_whole: whether no snapshot has expired; if some have, marks may outlive a data file.
    """
    data = {file.path: file for file in files if file.content == DATA}
    names = {path.rpartition("/")[2]: path for path in data}
    for listed, found in marks.items():
        for path, positions in found.items():
            file = data.get(path)
            if file is None:
                other = names.get(path.rpartition("/")[2])
                if other is not None:
                    yield f"{listed} spells {other} as {path}"
                elif is_whole:
                    yield f"{listed} names {path}, which no snapshot has"
            elif file.partition != listed.partition:
                yield f"{listed} of partition {listed.partition} names {path} of {file.partition}"
            elif len(positions) and not 0 <= positions[0] <= positions[-1] < file.rows:
                yield f"{listed} marks row {positions[-1]} of {path}, which has {file.rows}"
        yield from _wrong_bounds(listed, found)


def _wrong_bounds(listed: ListedFile, marks: Marks) -> Iterator[str]:
    """Readers pass a file over whose metadata says that it is about other data files."""
    low, high = listed.paths
    least, most = min(marks, default=""), max(marks, default="")
    if low is not None and least < low:
        yield f"{listed} names {least}, before its lower bound {low}"
    if high is not None and most > high:
        yield f"{listed} names {most}, behind its upper bound {high}"
    if listed.data_file is not None and {*marks} != {listed.data_file}:
        yield f"{listed} names {sorted(marks)}, its metadata only {listed.data_file}"


def wrong_together(files: Sequence[ListedFile], marks: Mapping[ListedFile, Marks]) -> Iterator[str]:
    """What is wrong with the marks of one snapshot together: with two vectors it has no reader.

    :param files: of that snapshot.
    """
    vectors = [file for file in files if file.is_vector]
    for path, count in Counter(str(one.data_file) for one in vectors).items():
        if count > 1:
            yield f"{path} has {count} vectors"
    whole = {one.data_file: marks[one][str(one.data_file)] for one in vectors if one in marks}
    for one in files:
        for path, positions in marks.get(one, {}).items() if not one.is_vector else ():
            if path in whole and len(np.setdiff1d(positions, whole[path])):
                yield f"{one} marks rows of {path} that its vector lacks, which alone is read"


def rows_left(
    files: Sequence[tuple[int, ListedFile]],
    tables: Mapping[str, pa.Table],
    marks: Mapping[ListedFile, Marks],
    key: Sequence[str],
    names: Sequence[str],
) -> list[tuple[Any, ...]]:
    """Some columns of each row of a snapshot, after all of its deletes.

    :param files: with the sequence number of each.
    :param tables: their content by path; a file that it lacks is passed over.
    :param names: of the columns; they begin with those of the key.
    """
    found: list[tuple[Any, ...]] = []
    for number, file in files:
        if file.content != DATA or file.path not in tables:
            continue
        table = tables[file.path]
        left = np.ones(table.num_rows, bool)
        for positions in _marks_of(number, file, files, marks):
            left[positions[positions < table.num_rows]] = False
        deleted = {
            values
            for since, one in files
            if (one.content, one.partition) == (EQUALITY, file.partition) and since > number
            for values in (_tuples(tables[one.path], key) if one.path in tables else ())
        }
        rows = _tuples(table.filter(pa.array(left)), names)
        found += [row for row in rows if row[: len(key)] not in deleted]
    return found


def _marks_of(
    number: int,
    file: ListedFile,
    files: Sequence[tuple[int, ListedFile]],
    marks: Mapping[ListedFile, Marks],
) -> list[np.ndarray]:
    """The marks of a data file; if it has a vector, that alone."""
    applied = [one for since, one in files if since >= number and one.partition == file.partition]
    known = [(one, marks[one][file.path]) for one in applied if file.path in marks.get(one, {})]
    vectors = [positions for one, positions in known if one.is_vector]
    return vectors or [positions for _, positions in known]


def _tuples(table: pa.Table, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    return list(zip(*(table[name].to_pylist() for name in columns), strict=True))
