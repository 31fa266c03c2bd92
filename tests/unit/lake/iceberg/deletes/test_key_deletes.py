"""Keys become positions, or equality deletes if that costs too much or does not work."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.errors import LakeNotWritable
from sluice.lake.iceberg.deletes.deletion_vectors import DeletionVector
from sluice.lake.iceberg.deletes.key_deletes import KeyDeletes
from sluice.lake.parquet.writer import FileTarget, WriteOptions
from sluice.lake.storage.file_systems import FileSystems
from sluice.rounds.values.lake_files import (
    NO_DELETES,
    BucketFiles,
    Compaction,
    DataFile,
    FileContent,
    LiveFile,
    PositionLookup,
    StoredMarks,
    WrittenDeletes,
)
from sluice.rounds.values.types import CHANGES_MEMORY_BYTES
from tests.support.lake.lake_keys import KINDS, data_file, folder_in_memory, key_schema, key_table

Keys = Sequence[tuple[Any, ...]]
INT = ("BIGINT",)
POSITIONS, VECTORS = FileContent.POSITION_DELETES, FileContent.DELETION_VECTORS


def lookup(*files: LiveFile, marks: Sequence[StoredMarks] = (), **other: Any) -> PositionLookup:
    of = BucketFiles(files, tuple(marks))
    return PositionLookup(**{"files": of, "bytes_max": 1 << 30, "files_max": 200, **other})


def deletes(
    folder: Path,
    where: PositionLookup | None,
    kinds: Sequence[str] = INT,
    name: str = "w",
    memory_bytes: int = CHANGES_MEMORY_BYTES,
    compaction: Compaction | None = None,
    **options: int,
) -> KeyDeletes:
    target = FileTarget(FileSystems(), str(folder), name, ("1",))
    settings = WriteOptions(**{"target_file_bytes": 2**30, **options})
    return KeyDeletes(key_schema(kinds), target, settings, where, memory_bytes, compaction)


def closed(
    made: KeyDeletes,
    *keys: tuple[Any, ...],
    kinds: Sequence[str] = INT,
    removed: Set[str] = frozenset(),
) -> WrittenDeletes:
    for start in range(0, len(keys), 3):
        made.add(key_table(kinds, keys[start : start + 3]), gathered=True)
    return made.close(removed)


def all_positions(found: WrittenDeletes) -> dict[str, set[int]]:
    return {path: at for file in found.files for path, at in positions_in(file).items()}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def positions_in(file: DataFile) -> dict[str, set[int]]:
    """Read without the code that is tested: what a file marks, by data file."""
    found: dict[str, set[int]] = {}
    if file.content is VECTORS:
        content = Path(file.path).read_bytes()
        for mark in file.marks:
            blob = content[mark.blob[0] : sum(mark.blob)]
            found[mark.data_file] = {*DeletionVector.from_blob(blob, "v").positions().tolist()}
        return found
    for row in pq.read_table(file.path).to_pylist():
        found.setdefault(row["file_path"], set()).add(row["pos"])
    return found


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "deletes").mkdir()
    return tmp_path / "data"


@pytest.fixture
def folder(data: Path) -> Path:
    return data.parent / "deletes"


@pytest.mark.parametrize("as_vectors", [False, True])
def test_positions_and_spare_keys(data: Path, folder: Path, as_vectors: bool) -> None:
    a = data_file(data / "a", INT, [(1,), (2,), (3,)])
    b = data_file(data / "b", INT, [(2,), (7,)])
    far = data_file(data / "far", INT, [(100,)])
    made = deletes(folder, lookup(a, b, far, as_vectors=as_vectors))
    found = closed(made, (2,), (3,), (5,), (6,))
    [spare] = found.spare
    assert {file.content for file in found.files} == {VECTORS if as_vectors else POSITIONS}
    assert all_positions(found) == {a.path: {1, 2}, b.path: {0}}
    assert spare.content is FileContent.EQUALITY_DELETES
    assert sorted(pq.read_table(spare.path)["k0"].to_pylist()) == [2, 3, 5, 6]
    assert (found.keys, found.why_equality, found.replaced) == (4, "", ())
    assert (found.files_read, found.bytes_read) == (2, a.key_bytes + b.key_bytes)
    assert found.seconds > 0
    assert len(names(folder)) == (2 if as_vectors else 3)
    made.abort()
    assert names(folder) == []


def test_no_keys_make_no_file(folder: Path) -> None:
    assert deletes(folder, lookup()).close() == NO_DELETES
    assert deletes(folder, None).close() == NO_DELETES
    assert names(folder) == []


@pytest.mark.parametrize("as_vectors", [False, True])
def test_keys_that_the_lake_does_not_have_need_no_file(
    data: Path, folder: Path, as_vectors: bool
) -> None:
    a = data_file(data / "a", INT, [(1,), (9,)])
    found = closed(deletes(folder, lookup(a, as_vectors=as_vectors)), (5,))
    assert (found.keys, found.files, found.why_equality, found.files_read) == (1, (), "", 1)
    assert len(found.spare) == 1


def equality(found: WrittenDeletes, why: str) -> None:
    assert why in found.why_equality
    assert [file.content for file in found.files] == [FileContent.EQUALITY_DELETES]
    assert (found.spare, found.replaced) == ((), ())


def test_without_a_look_up_all_are_equality_deletes(folder: Path) -> None:
    equality(closed(deletes(folder, None), (1,), (2,)), "tiering.position_lookup_bytes is 0")


def test_budgets_count_only_files_that_may_have_the_keys(data: Path, folder: Path) -> None:
    some = [data_file(data / f"{i}", INT, [(i,), (i + 1,)]) for i in range(0, 40, 10)]
    two = some[0].key_bytes * 2

    def close(keys: Keys, **limits: int) -> WrittenDeletes:
        return closed(deletes(folder, lookup(*some, **limits), name=f"{len(names(folder))}"), *keys)

    assert close([(0,), (10,)], files_max=2, bytes_max=two).why_equality == ""
    equality(
        close([(0,), (10,)], files_max=1),
        "2 data files may have the keys, more than tiering.position_lookup_files = 1: compact the"
        " table",
    )
    equality(
        close([(0,), (10,)], bytes_max=two - 1),
        "the key columns have 40 bytes, more than the bucket's part of"
        " tiering.position_lookup_bytes, 39 bytes",
    )
    assert close([(5,)], files_max=0, bytes_max=0).why_equality == ""


def test_a_bucket_that_cannot_be_looked_up_says_why(data: Path, folder: Path) -> None:
    a = data_file(data / "a", INT, [(1,)])
    where = lookup(files=BucketFiles((a,), unusable="data file a is not a Parquet file"))
    equality(closed(deletes(folder, where), (1,)), "data file a is not a Parquet file")


@pytest.mark.parametrize("as_vectors", [False, True])
def test_more_positions_than_memory(data: Path, folder: Path, as_vectors: bool) -> None:
    """A key that changes often leaves a dead row in every file."""
    some = [data_file(data / f"{i}", INT, [(1,)] * 4) for i in range(3)]
    where = lookup(*some, as_vectors=as_vectors)
    why = "over 8 positions need more memory than tiering.changes_memory_bytes, 256 bytes: compact"
    equality(closed(deletes(folder, where, memory_bytes=8 * 32), (1,)), why)
    found = closed(deletes(folder, where, name="x", memory_bytes=12 * 32), (1,))
    assert found.why_equality == ""


def test_earlier_vectors_that_do_not_fit_into_memory(data: Path, folder: Path) -> None:
    """They would have to be merged. Earlier position delete files may stay as they are."""
    a = data_file(data / "a", INT, [(i,) for i in range(20)])
    earlier = closed(deletes(folder, lookup(a, as_vectors=True)), *[(i,) for i in range(9)])
    [mark] = earlier.files[0].marks
    stored = StoredMarks(earlier.files[0].path, 9, 999, a.path, mark.blob)
    where = lookup(files=BucketFiles((a,), (stored,)), as_vectors=True)
    found = closed(deletes(folder, where, name="x", memory_bytes=9 * 32), (15,))
    equality(found, "over 9 positions need more memory")
    found = closed(deletes(folder, where, name="y", memory_bytes=10 * 32), (15,))
    assert (found.why_equality, found.files[0].rows) == ("", 10)


def test_more_keys_than_memory(data: Path, folder: Path) -> None:
    a = data_file(data / "a", INT, [(1,)])
    found = closed(deletes(folder, lookup(a), memory_bytes=8 * 4 * 5), *[(i,) for i in range(9)])
    equality(
        found,
        "6 changed keys need more memory than tiering.changes_memory_bytes, 160 bytes",
    )
    assert found.keys == 9
    found = closed(
        deletes(folder, lookup(a), name="x", memory_bytes=8 * 4 * 9), *[(i,) for i in range(9)]
    )
    assert found.why_equality == ""


@pytest.mark.parametrize("as_vectors", [False, True])
@pytest.mark.parametrize("damage", ["gone", "cut", "no ids", "null"])
def test_a_file_that_cannot_be_read_leads_to_equality_deletes(
    data: Path, folder: Path, damage: str, as_vectors: bool
) -> None:
    a, b = (data_file(data / name, INT, [(1,), (2,)]) for name in "ab")
    whole = pq.read_table(b.path)
    why = {"gone": "No such file", "cut": "Parquet", "no ids": "no field ids", "null": "a null"}
    if damage == "gone":
        Path(b.path).unlink()
    elif damage == "cut":
        Path(b.path).write_bytes(Path(b.path).read_bytes()[:-7])
    elif damage == "no ids":
        pq.write_table(pa.table({"k0": whole["k0"].combine_chunks()}), b.path)
    else:
        key = whole.schema.field("k0").with_nullable(True)
        pq.write_table(whole.set_column(1, key, pa.array([None, 2], pa.int64())), b.path)
    made = deletes(folder, lookup(a, b, as_vectors=as_vectors))
    found = closed(made, (1,))
    equality(found, "the rows could not be looked up: ")
    assert why[damage] in found.why_equality
    assert b.path in found.why_equality
    assert len(names(folder)) == 1
    made.abort()
    assert names(folder) == []


@pytest.mark.parametrize("as_vectors", [False, True])
def test_earlier_marks_that_cannot_be_read_lead_to_equality_deletes(
    data: Path, folder: Path, as_vectors: bool
) -> None:
    a = data_file(data / "a", INT, [(1,), (2,)])
    blob = (4, 40) if as_vectors else None
    marks = [StoredMarks(f"{data}/gone{i}", 1, 99, a.path, blob) for i in range(8)]
    found = closed(deletes(folder, lookup(a, marks=marks, as_vectors=as_vectors)), (1,))
    equality(found, "gone0")
    assert len(names(folder)) == 1


@pytest.mark.parametrize("as_vectors", [False, True])
def test_a_storage_that_refuses_fails_the_split_and_abort_leaves_nothing(
    data: Path, folder: Path, as_vectors: bool
) -> None:
    a = data_file(data / "a", INT, [(1,), (2,)])
    made = deletes(folder, lookup(a, as_vectors=as_vectors), compression="no such codec")
    if as_vectors:
        made = deletes(folder, lookup(a, as_vectors=True))
        (folder / "w-00001-deletes.puffin").mkdir()
        (folder / "w-00001-deletes.puffin" / "in the way").touch()
    with pytest.raises(LakeNotWritable):
        closed(made, (1,))
    made.abort()
    left = names(folder)
    assert left == (["w-00001-deletes.puffin"] if as_vectors else [])


@pytest.mark.parametrize("as_vectors", [False, True])
def test_keys_are_looked_up_again_without_being_written_again(
    data: Path, folder: Path, as_vectors: bool
) -> None:
    a = data_file(data / "a", INT, [(1,), (2,), (3,)])
    keys = [(3,), (1,), (9,)]
    first = deletes(folder, lookup(a, as_vectors=as_vectors), target_file_bytes=1, row_group_rows=1)
    for key in keys:
        first.add(key_table(INT, [key]), gathered=False)
    before = first.close()
    assert len(before.spare) == 3
    rewritten = data_file(data / "b", INT, [(2,), (1,), (3,)])
    there = names(folder)
    again = lookup(rewritten, as_vectors=as_vectors, keys_of=before.spare, number=1)
    second = deletes(folder, again, name="w-again1")
    found = second.close()
    assert positions_in(found.files[0]) == {rewritten.path: {1, 2}}
    assert (found.spare, found.keys) == (before.spare, 3)
    assert len(names(folder)) == len(there) + 1
    second.abort()
    assert names(folder) == there, "the keys are of the first look-up"

    dear = deletes(folder, replace(again, bytes_max=0), name="w-again2").close()
    assert dear.files == before.spare
    assert "position_lookup_bytes" in dear.why_equality
    assert names(folder) == there
    little = deletes(folder, again, name="w-again2", memory_bytes=8).close()
    assert "1 changed keys need more memory" in little.why_equality
    Path(before.spare[1].path).unlink()
    with pytest.raises(FileNotFoundError):
        deletes(folder, again, name="w-again2").close()


@dataclass
class Bucket:
    """One bucket as rounds leave it, and the rows that a reader finds in it."""

    folder: Path
    kinds: Sequence[str]
    as_vectors: bool
    files: list[LiveFile] = field(default_factory=list)
    keys: dict[str, Keys] = field(default_factory=dict)
    marks: list[StoredMarks] = field(default_factory=list)
    by_marks: dict[StoredMarks, dict[str, set[int]]] = field(default_factory=dict)
    count: int = 0

    def round(self, changed: Keys, added: Keys) -> WrittenDeletes:
        number = self.count = self.count + 1
        where = lookup(*self.files, marks=self.marks, as_vectors=self.as_vectors)
        made = deletes(self.folder, where, self.kinds, f"r{number}")
        found = closed(made, *changed, kinds=self.kinds)
        assert found.why_equality == ""
        self.marks = [mark for mark in self.marks if mark not in found.replaced]
        for file in found.files:
            self.add_marks(file)
        if added:
            file = data_file(self.folder / f"d{number}", self.kinds, added, row_group_size=3)
            self.files.append(file)
            self.keys[file.path] = added
        return found

    def add_marks(self, file: DataFile) -> None:
        of_file = positions_in(file)
        if file.content is VECTORS:
            for mark in file.marks:
                one = StoredMarks(file.path, mark.rows, file.size_bytes, mark.data_file, mark.blob)
                self.marks.append(one)
                self.by_marks[one] = {mark.data_file: of_file[mark.data_file]}
            return
        one = StoredMarks(file.path, file.rows, file.size_bytes)
        self.marks.append(one)
        self.by_marks[one] = of_file

    def rows(self) -> list[tuple[Any, ...]]:
        dead: dict[str, set[int]] = {}
        for mark in self.marks:
            for path, at in self.by_marks[mark].items():
                assert not (self.as_vectors and path in dead), "a second vector"
                dead.setdefault(path, set()).update(at)
        return [
            key
            for path, keys in self.keys.items()
            for place, key in enumerate(keys)
            if place not in dead.get(path, ())
        ]

    def compact(self) -> None:
        """Another writer puts all rows into one file, and drops the marks or leaves them."""
        rows, self.files, self.keys = self.rows(), [], {}
        if rows:
            path = self.folder / f"c{self.count}"
            self.files.append(data_file(path, self.kinds, rows))
            self.keys[str(path)] = rows
        if self.as_vectors:  # a vector ends with its data file
            self.marks = []


@pytest.mark.parametrize("as_vectors", [False, True])
@settings(max_examples=25)
@given(data=st.data())
def test_rounds_beside_a_plain_replay(as_vectors: bool, data: st.DataObject) -> None:
    """Upserts and deletes of few keys of any types, with a compaction now and then."""
    kinds = data.draw(st.lists(st.sampled_from([*KINDS]), min_size=1, max_size=3))
    pools = [
        data.draw(st.lists(KINDS[k].values, min_size=1, max_size=4, unique=True)) for k in kinds
    ]
    some = st.lists(st.tuples(*map(st.sampled_from, pools)), unique=True, max_size=8)
    held: set[tuple[Any, ...]] = set()
    with folder_in_memory() as folder:
        bucket = Bucket(folder, kinds, as_vectors)
        for _ in range(data.draw(st.integers(1, 14))):
            added = data.draw(some)
            changed = [*added, *(key for key in data.draw(some) if key not in added)]
            bucket.round(changed, added)
            held = (held - {*changed}) | {*added}
            rows = bucket.rows()
            assert len(rows) == len({*rows}), "a key is there twice"
            assert {*rows} == held
            if data.draw(st.integers(0, 9)) == 0:
                bucket.compact()


@pytest.mark.parametrize("as_vectors", [False, True])
def test_a_key_that_changes_in_every_round_is_not_marked_anew_each_time(as_vectors: bool) -> None:
    """Its dead rows are in every file; without asking, round n would write n positions."""
    new = 0
    with folder_in_memory() as folder:
        bucket = Bucket(folder, INT, as_vectors)
        for _ in range(30):
            found = bucket.round([(7,)], [(7,)])
            merged = sum(mark.rows for mark in found.replaced)
            new += sum(mark.rows for file in found.files for mark in file.marks) - merged
    assert bucket.rows() == [(7,)]
    assert new <= 2 * 30


@pytest.mark.parametrize("as_vectors", [False, True])
def test_nothing_is_looked_up_in_files_that_were_rewritten(
    data: Path, folder: Path, as_vectors: bool
) -> None:
    a = data_file(data / "a", INT, [(1,), (2,), (3,)])
    b = data_file(data / "b", INT, [(2,), (7,), (8,)])
    first = closed(deletes(folder, lookup(a, b, as_vectors=as_vectors), name="v"), (3,), (7,))
    earlier = tuple(mark for file in first.files for mark in _stored(file))
    where = lookup(a, b, marks=earlier, as_vectors=as_vectors)
    compaction = Compaction((a,), where.files, 1, as_vectors)
    made = deletes(folder, where, compaction=compaction)
    made.add(key_table(INT, [(2,), (8,)]), gathered=True)
    keys = made.changed_keys()
    assert keys is not None
    assert keys.has(key_table(INT, [(1,), (2,), (8,)]).to_batches()[0]).tolist() == [0, 1, 1]
    found = made.close(frozenset({a.path}))
    [file] = found.files
    assert positions_in(file) == {b.path: {0, 1, 2}}
    assert set(found.replaced) == set(earlier)
    assert (found.keys, found.why_equality, found.files_read) == (2, "", 1)


@pytest.mark.parametrize("as_vectors", [False, True])
@pytest.mark.parametrize("keys", [0, 1])
def test_marks_of_files_that_were_rewritten_go(
    data: Path, folder: Path, as_vectors: bool, keys: int
) -> None:
    """Also if the round deletes no key, or by equality."""
    a = data_file(data / "a", INT, [(1,), (2,), (3,)])
    b = data_file(data / "b", INT, [(2,), (7,), (8,)])
    first = closed(deletes(folder, lookup(a, b, as_vectors=as_vectors), name="v"), (3,), (7,))
    earlier = tuple(mark for file in first.files for mark in _stored(file))
    where = lookup(a, b, marks=earlier, as_vectors=as_vectors, files_max=0)
    made = deletes(folder, where, compaction=Compaction((a,), where.files, 1, as_vectors))
    found = closed(made, *[(8,)] * keys, removed={a.path})
    of_positions = [file for file in found.files if file.content in (POSITIONS, VECTORS)]
    assert of_positions == []
    assert [mark.data_file for mark in found.replaced] == [a.path]
    assert bool(found.why_equality) == bool(keys)
    assert len(found.files) - len(of_positions) == keys
    made.abort()


def test_nothing_is_left_of_marks_whose_files_are_all_gone(data: Path, folder: Path) -> None:
    a = data_file(data / "a", INT, [(1,), (2,), (3,)])
    first = closed(deletes(folder, lookup(a), name="v"), (3,))
    where = lookup(a, marks=_stored(first.files[0]))
    made = deletes(folder, where, compaction=Compaction((a,), where.files, 1))
    found = closed(made, (2,), removed={a.path})
    assert (found.files, found.replaced) == ((), where.files.marks)
    assert len(found.spare) == 1


def test_keys_without_memory_are_none_for_a_compaction(data: Path, folder: Path) -> None:
    a = data_file(data / "a", INT, [(1,)])
    made = deletes(folder, None, memory_bytes=40, compaction=Compaction((a,), BucketFiles((a,)), 1))
    made.add(key_table(INT, [(1,), (2,)]), gathered=True)
    assert made.too_many_keys.startswith("2 changed keys need more memory than")


def _stored(file: DataFile) -> list[StoredMarks]:
    """What the lake would say of a new file."""
    if file.content is VECTORS:
        return [
            StoredMarks(file.path, mark.rows, file.size_bytes, mark.data_file, mark.blob)
            for mark in file.marks
        ]
    only = file.marks[0].data_file if len(file.marks) == 1 else None
    return [StoredMarks(file.path, file.rows, file.size_bytes, only)]
