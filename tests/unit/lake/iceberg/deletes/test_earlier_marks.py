"""Positions of earlier rounds and of other writers, from position delete files and vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.errors import LakeFileUnreadable
from sluice.lake.iceberg.deletes.deletion_vectors import DeletionVector, write_vectors
from sluice.lake.iceberg.deletes.earlier_marks import marks_by_file, read_earlier_marks, united
from sluice.lake.parquet.reader import LakeReader
from sluice.lake.storage.file_systems import FileSystems
from sluice.rounds.values.lake_files import StoredMarks

Rows = Mapping[str, Sequence[int]]
DICTIONARY = pa.dictionary(pa.int32(), pa.string())


def parquet(path: Path, pairs: Sequence[tuple[str, int]], **options: Any) -> StoredMarks:
    table = pa.table(
        {
            "file_path": pa.array([name for name, _ in pairs], pa.string()),
            "pos": pa.array([position for _, position in pairs], pa.int64()),
        }
    )
    return stored(path, options.pop("change", lambda table: table)(table), **options)


def stored(path: Path, table: pa.Table, **options: Any) -> StoredMarks:
    pq.write_table(table, path, **options)
    return StoredMarks(str(path), table.num_rows, path.stat().st_size)


def vectors(path: Path, rows: Rows, filler: int = 0) -> list[StoredMarks]:
    """A Puffin file; ``filler`` bytes keep the vectors apart."""
    by_file = {name: DeletionVector.of(np.array(at, np.int64)) for name, at in rows.items()}
    found, content = [], b""
    for name, vector in by_file.items():
        one = write_vectors({name: vector})
        [placed] = one.vectors
        blob = one.content[placed.offset : placed.offset + placed.size_bytes]
        found.append((name, len(content), len(blob), placed.cardinality))
        content += blob + b"\0" * filler
    path.write_bytes(content)
    return [
        StoredMarks(str(path), count, len(content), name, (start, size))
        for name, start, size, count in found
    ]


def read(marks: Sequence[StoredMarks], *data_files: str) -> dict[str, list[int]]:
    found = read_earlier_marks(marks, set(data_files), LakeReader(FileSystems()))
    assert all(positions.dtype == np.int64 for positions in found.values())
    return {path: positions.tolist() for path, positions in found.items()}


def with_columns(table: pa.Table, **kinds: pa.DataType) -> pa.Table:
    fields = [f.with_type(kinds.get(f.name, f.type)) for f in table.schema]
    return table.cast(pa.schema(fields))


CHANGES = {
    "ours": lambda table: with_columns(table, file_path=DICTIONARY),
    "plain": lambda table: table,
    "large texts": lambda table: with_columns(table, file_path=pa.large_string()),
    "as bytes": lambda table: with_columns(table, file_path=pa.binary()),
    "with the rows": lambda table: table.append_column(
        "row", pa.array([{"a": 1}] * table.num_rows, pa.struct([("a", pa.int64())]))
    ),
    "columns the other way": lambda table: table.select(["pos", "file_path"]),
    "narrow positions": lambda table: with_columns(table, pos=pa.int32()),
}
PAIRS = [("b", 5), ("a", 2), ("b", 0), ("a", 2), ("c", 1), ("a", 0), ("größe", 9)]


@pytest.mark.parametrize("store_schema", [False, True])
@pytest.mark.parametrize("group", [2, 100])
@pytest.mark.parametrize("name", CHANGES)
def test_position_delete_files_of_every_writer(
    tmp_path: Path, name: str, group: int, store_schema: bool
) -> None:
    options: dict[str, Any] = {"row_group_size": group, "store_schema": store_schema}
    mark = parquet(tmp_path / "d", PAIRS, change=CHANGES[name], **options)
    assert read([mark], "a", "b", "größe") == {"a": [0, 2], "b": [0, 5], "größe": [9]}
    no_dictionary = parquet(
        tmp_path / "e", PAIRS, change=CHANGES[name], use_dictionary=False, **options
    )
    assert read([no_dictionary], "c", "z") == {"c": [1]}


def test_files_without_rows_and_data_files_without_marks(tmp_path: Path) -> None:
    assert read([], "a") == {}
    assert read([parquet(tmp_path / "d", [])], "a") == {}
    assert read([parquet(tmp_path / "d", PAIRS)]) == {}


@pytest.mark.parametrize("filler", [0, 1_000, 100_000])
def test_vectors_near_to_each_other_and_far_apart(tmp_path: Path, filler: int) -> None:
    rows = {f"f{i}": [*range(i, 3_000, i + 1)] for i in range(9)}
    marks = vectors(tmp_path / "v", rows, filler)
    assert read(marks, *rows) == rows
    some = {"f7": rows["f7"], "f2": rows["f2"]}
    assert read(marks[::-1], *some) == some
    assert read([marks[4]], *rows) == {"f4": rows["f4"]}


def test_vectors_of_other_data_files_are_not_read(tmp_path: Path) -> None:
    [mark] = vectors(tmp_path / "v", {"a": [1]})
    (tmp_path / "v").unlink()
    assert read([mark], "b") == {}


@settings(max_examples=40)
@given(data=st.data())
def test_all_marks_of_a_data_file_are_united(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("marks")
    names = st.sampled_from(["a", "b", "c"])
    pairs = st.lists(st.tuples(names, st.integers(0, 20)), max_size=12)
    expected: dict[str, set[int]] = {}
    marks: list[StoredMarks] = []
    for number in range(data.draw(st.integers(0, 4))):
        some = data.draw(pairs)
        marks.append(parquet(folder / f"{number}", some, row_group_size=5))
        for name, position in some:
            expected.setdefault(name, set()).add(position)
    vector_rows = data.draw(st.dictionaries(names, st.sets(st.integers(0, 20), min_size=1)))
    if vector_rows:
        marks += vectors(folder / "v", {name: sorted(at) for name, at in vector_rows.items()})
        for name, at in vector_rows.items():
            expected.setdefault(name, set()).update(at)
    wanted = data.draw(st.sets(names))
    found = read(marks, *wanted)
    assert found == {name: sorted(at) for name, at in expected.items() if name in wanted}


def test_a_damaged_vector_is_no_smaller_vector(tmp_path: Path) -> None:
    marks = vectors(tmp_path / "v", {"a": [1, 2], "b": [3]})
    content = bytearray((tmp_path / "v").read_bytes())
    content[marks[1].blob[0] + 20] ^= 1
    (tmp_path / "v").write_bytes(content)
    assert read(marks, "a") == {"a": [1, 2]}
    with pytest.raises(LakeFileUnreadable, match=rf"v, offset {marks[1].blob[0]}"):
        read(marks, "a", "b")
    other = StoredMarks(marks[0].path, 3, marks[0].size_bytes, "a", marks[0].blob)
    with pytest.raises(LakeFileUnreadable, match="it has 2 positions, the manifest says 3"):
        read([other], "a")


def test_a_file_that_is_gone_is_an_error(tmp_path: Path) -> None:
    marks = [parquet(tmp_path / "d", PAIRS), *vectors(tmp_path / "v", {"a": [1]})]
    for name in ("v", "d"):
        (tmp_path / name).unlink()
        with pytest.raises(FileNotFoundError, match=f"/{name}"):
            read(marks, "a")


def test_marks_by_the_only_file_that_they_name() -> None:
    every, a, b, c = (
        StoredMarks(str(i), 1, 1, name) for i, name in enumerate((None, "a", "b", "a"))
    )
    assert marks_by_file([every, a, b, c]) == {"a": [a, c], "b": [b]}
    assert united([np.array([3, 5]), np.array([1, 5])]).tolist() == [1, 3, 5]
