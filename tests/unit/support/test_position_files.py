"""What the checker of lakes says of marks that are right, and of each way to be wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluice.lake.iceberg.deletes.deletion_vectors import DeletionVector, write_vectors
from tests.support.lake.position_files import (
    DATA,
    EQUALITY,
    MARKS,
    POSITIONS,
    ListedFile,
    Marks,
    read_marks,
    rows_left,
    wrong_marks,
    wrong_together,
)

ONE, TWO = "file:/lake/data/mon/one.parquet", "file:/lake/data/mon/two.parquet"
MON, TUE = ("mon", 0), ("tue", 0)


def data_file(path: str, rows: int = 10) -> ListedFile:
    return ListedFile(DATA, path, "parquet", MON, rows, 1, None, None, (None, None))


FILES = [data_file(ONE), data_file(TWO)]


def position_file(path: Path, rows: Sequence[tuple[str, int]]) -> ListedFile:
    paths, positions = zip(*rows, strict=True)
    pq.write_table(pa.table([paths, positions], MARKS), path)
    return ListedFile(
        POSITIONS,
        path.as_uri(),
        "parquet",
        MON,
        len(rows),
        path.stat().st_size,
        None,
        None,
        (min(paths), max(paths)),
    )


def vector_file(path: Path, rows: dict[str, list[int]]) -> list[ListedFile]:
    written = write_vectors({one: DeletionVector.of(np.array(at)) for one, at in rows.items()})
    path.write_bytes(written.content)
    size = len(written.content)
    return [
        ListedFile(
            POSITIONS,
            path.as_uri(),
            "puffin",
            MON,
            one.cardinality,
            size,
            one.data_file,
            (one.offset, one.size_bytes),
            (None, None),
        )
        for one in written.vectors
    ]


def wrong(listed: ListedFile, marks: Marks, *, is_whole: bool = True) -> str:
    """The only thing that is wrong."""
    [found] = wrong_marks({listed: marks}, FILES, is_whole=is_whole)
    return found


@pytest.fixture
def listed(tmp_path: Path) -> ListedFile:
    return position_file(tmp_path / "p.parquet", [(ONE, 0), (ONE, 9), (TWO, 3)])


def test_sound_positions(tmp_path: Path, listed: ListedFile) -> None:
    marks = {listed: read_marks(listed, tmp_path / "p.parquet")}
    assert {path: at.tolist() for path, at in marks[listed].items()} == {ONE: [0, 9], TWO: [3]}
    assert not [*wrong_marks(marks, FILES, is_whole=True)]
    assert not [*wrong_together([*FILES, listed], marks)]


def test_sound_vectors(tmp_path: Path) -> None:
    vectors = vector_file(tmp_path / "v.puffin", {ONE: [0, 9], TWO: [3]})
    marks = {one: read_marks(one, tmp_path / "v.puffin") for one in vectors}
    found = {path: at.tolist() for one in marks.values() for path, at in one.items()}
    assert found == {ONE: [0, 9], TWO: [3]}
    assert not [*wrong_marks(marks, FILES, is_whole=True)]
    assert not [*wrong_together([*FILES, *vectors], marks)]


@pytest.mark.parametrize(
    ("path", "position", "said"),
    [
        (ONE.removeprefix("file:"), 0, f"spells {ONE} as"),
        ("file:/lake/data/mon/three.parquet", 0, "which no snapshot has"),
        (ONE, 10, f"marks row 10 of {ONE}, which has 10"),
    ],
)
def test_a_row_that_no_data_file_has(
    listed: ListedFile, path: str, position: int, said: str
) -> None:
    listed = replace(listed, paths=(None, None))
    assert said in wrong(listed, {path: np.array([position])})


def test_a_data_file_that_may_have_expired(listed: ListedFile) -> None:
    listed = replace(listed, paths=(None, None))
    marks: dict[ListedFile, Marks] = {listed: {"file:/lake/data/mon/three.parquet": np.array([0])}}
    assert not [*wrong_marks(marks, FILES, is_whole=False)]
    assert "spells" in wrong(listed, {ONE[5:]: np.array([0])}, is_whole=False)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"partition": TUE}, "of partition"),
        ({"paths": (TWO, None)}, "before its lower bound"),
        ({"paths": (None, ONE)}, "behind its upper bound"),
        ({"data_file": ONE}, "its metadata only"),
    ],
)
def test_metadata_that_hides_marks_from_readers(
    listed: ListedFile, change: dict[str, object], said: str
) -> None:
    marks = {ONE: np.array([0]), TWO: np.array([3])}
    found = [*wrong_marks({replace(listed, **change): marks}, FILES, is_whole=True)]
    assert found
    assert all(said in one for one in found)


def test_two_vectors_of_a_data_file_and_positions_that_its_vector_lacks(
    tmp_path: Path, listed: ListedFile
) -> None:
    [first] = vector_file(tmp_path / "a.puffin", {ONE: [0, 9]})
    [second] = vector_file(tmp_path / "b.puffin", {ONE: [0]})
    marks = {one: read_marks(one, tmp_path / one.path[-8:]) for one in (first, second)}
    assert [*wrong_together([*FILES, first, second], marks)] == [f"{ONE} has 2 vectors"]
    marks[listed] = read_marks(listed, tmp_path / "p.parquet")
    assert not [*wrong_together([*FILES, listed, first], marks)]
    [lost] = wrong_together([*FILES, listed, second], marks)
    assert "that its vector lacks" in lost


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rows": 4}, "3 positions, 4 in the metadata"),
        ({"size_bytes": 17}, "17 in the metadata"),
    ],
)
def test_a_position_file_that_is_another(
    tmp_path: Path, listed: ListedFile, change: dict[str, int], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        read_marks(replace(listed, **change), tmp_path / "p.parquet")


def test_positions_out_of_order_and_other_columns(tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    listed = position_file(path, [(ONE, 9), (ONE, 0)])
    with pytest.raises(ValueError, match="not in order"):
        read_marks(listed, path)
    without_ids = pa.schema([("file_path", pa.string()), ("pos", pa.int64())])
    for schema in (MARKS.append(pa.field("row", pa.int64())), without_ids):
        pq.write_table(schema.empty_table(), path)
        with pytest.raises(ValueError, match="with columns"):
            read_marks(replace(listed, size_bytes=path.stat().st_size), path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"blob": (5, 40)}, "its footer says"),
        ({"data_file": TWO}, "its footer says"),
        ({"rows": 3}, "its footer says"),
        ({"blob": None}, "does not say where"),
    ],
)
def test_a_vector_that_is_another(tmp_path: Path, change: dict[str, object], said: str) -> None:
    [listed] = vector_file(tmp_path / "v.puffin", {ONE: [0, 9]})
    with pytest.raises(ValueError, match=said):
        read_marks(replace(listed, **change), tmp_path / "v.puffin")


@pytest.mark.parametrize(("at", "said"), [(30, "a damaged vector"), (-1, "no Puffin file")])
def test_a_vector_with_a_changed_byte(tmp_path: Path, at: int, said: str) -> None:
    path = tmp_path / "v.puffin"
    [listed] = vector_file(path, {ONE: [0, 9]})
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=said):
        read_marks(listed, path)


def test_which_deletes_reach_a_row(tmp_path: Path, listed: ListedFile) -> None:
    """Positions of the same commit or a later one; keys of a later one; in the same partition."""
    rows = pa.table({"id": range(10), "n": range(10)})
    keys = replace(data_file("file:/lake/keys.parquet"), content=EQUALITY)
    tables = {ONE: rows, keys.path: pa.table({"id": [1, 2]})}
    elsewhere = replace(listed, partition=TUE)
    at = np.array([0, 9])
    marks: dict[ListedFile, Marks] = {listed: {ONE: at}, elsewhere: {ONE: at}}

    def left(*files: tuple[int, ListedFile]) -> list[int]:
        found = rows_left([(5, FILES[0]), *files], tables, marks, ["id"], ["id", "n"])
        return [number for number, _ in found]

    assert left() == list(range(10))
    assert left((5, listed)) == left((6, listed)) == list(range(1, 9))
    assert left((4, listed)) == left((5, elsewhere)) == list(range(10))
    assert left((6, keys)) == [0, *range(3, 10)]
    assert left((5, keys)) == left((6, replace(keys, partition=TUE))) == list(range(10))
    [vector] = vector_file(tmp_path / "v.puffin", {ONE: [4]})
    marks[vector] = read_marks(vector, tmp_path / "v.puffin")
    marks[vector][ONE] = np.array([4, 10])  # one that is past the end
    assert left((6, listed), (6, vector)) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
