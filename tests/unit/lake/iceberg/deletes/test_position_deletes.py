"""What a bucket's new position file or vectors contain, and which earlier marks they replace."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.errors import LakeFileUnreadable, LakeNotWritable
from sluice.lake.iceberg.deletes.deletion_vectors import DeletionVector
from sluice.lake.iceberg.deletes.earlier_marks import read_earlier_marks
from sluice.lake.iceberg.deletes.position_deletes import (
    APART_FACTOR,
    APART_MAX,
    MERGE_FACTOR,
    MERGED_FROM,
    WrittenPositions,
    new_positions,
    write_position_files,
    write_vector_file,
)
from sluice.lake.parquet.reader import LakeReader
from sluice.lake.parquet.writer import FileTarget, WriteOptions
from sluice.lake.storage.file_systems import FileSystems
from sluice.rounds.values.lake_files import (
    BucketFiles,
    DataFile,
    FileContent,
    LiveFile,
    StoredMarks,
)
from tests.support.lake.lake_keys import folder_in_memory

MOST = 1 << 30
"""More positions than any file here has."""
Rows = Mapping[str, Iterable[int]]
MANY = "abcdefghi"
"""Data files of a bucket with one position file for all of them."""
READER = LakeReader(FileSystems())


def arrays(rows: Rows) -> dict[str, np.ndarray]:
    return {path: np.array(sorted(at), np.int64) for path, at in rows.items()}


def bucket(marks: Iterable[StoredMarks] = (), files: Iterable[str] = MANY) -> BucketFiles:
    return BucketFiles(tuple(LiveFile(path, 100, 1, 1) for path in files), tuple(marks))


def target(folder: Path, name: str) -> FileTarget:
    return FileTarget(FileSystems(), str(folder), name, ("mon", "1"))


def write(
    folder: Path,
    rows: Rows,
    of: BucketFiles,
    name: str = "new",
    *,
    most: int = MOST,
    **options: int,
) -> WrittenPositions:
    settings = WriteOptions(**{"target_file_bytes": 1, **options})
    return write_position_files(arrays(rows), of, READER, target(folder, name), settings, most)


def write_vectors_of(
    folder: Path, rows: Rows, of: BucketFiles, name: str = "new"
) -> WrittenPositions:
    return write_vector_file(arrays(rows), of, READER, target(folder, name))


def stored(file: DataFile) -> list[StoredMarks]:
    """What the lake would say of a new file."""
    if file.content is FileContent.DELETION_VECTORS:
        return [
            StoredMarks(file.path, mark.rows, file.size_bytes, mark.data_file, mark.blob)
            for mark in file.marks
        ]
    only = file.marks[0].data_file if len(file.marks) == 1 else None
    return [StoredMarks(file.path, file.rows, file.size_bytes, only)]


def read(marks: Iterable[StoredMarks], files: Iterable[str] = "abc") -> dict[str, list[int]]:
    found = read_earlier_marks(list(marks), set(files), READER)
    return {path: at.tolist() for path, at in found.items()}


def earlier_files(folder: Path, *some: Rows) -> list[StoredMarks]:
    found = []
    for number, rows in enumerate(some):
        [file] = write(folder, rows, bucket(), f"old{number}").files
        found += stored(file)
    return found


@contextmanager
def small_disk(size: int) -> Iterator[None]:
    """The kernel refuses larger files, as a full disk would."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_position_file_is_as_iceberg_specifies_it(tmp_path: Path) -> None:
    rows = {"é": [7], "b": [1, 0, 300], "a": [5], "z/day=a%2Fb": [*range(9)]}
    written = write(tmp_path, rows, bucket(), row_group_rows=6)
    [file] = written.files
    assert (written.replaced, written.bytes_read) == ((), 0)
    assert file.content is FileContent.POSITION_DELETES
    assert (file.path, file.partition) == (f"{tmp_path}/new-00001-positions.parquet", ("mon", "1"))
    assert (file.rows, file.size_bytes) == (14, Path(file.path).stat().st_size)
    said = [(mark.data_file, mark.rows, mark.last, mark.blob) for mark in file.marks]
    assert said == [
        ("a", 1, 5, None),
        ("b", 3, 300, None),
        ("z/day=a%2Fb", 9, 8, None),
        ("é", 1, 7, None),
    ]
    with pq.ParquetFile(file.path) as opened:
        table = opened.read()
        groups = [opened.metadata.row_group(i).num_rows for i in range(3)]
        assert str(opened.schema.column(0).logical_type) == "String"
    assert groups == [6, 6, 2]
    assert [(f.name, str(f.type), f.nullable) for f in table.schema] == [
        ("file_path", "string", False),
        ("pos", "int64", False),
    ]
    ids = [f.metadata[b"PARQUET:field_id"] for f in table.schema]
    assert ids == [b"2147483546", b"2147483545"]
    pairs = [(row["file_path"], row["pos"]) for row in table.to_pylist()]
    assert pairs == sorted((path, at) for path, some in rows.items() for at in some)


def test_few_files_are_left_as_they_are(tmp_path: Path) -> None:
    marks = earlier_files(tmp_path, *[{"a": [i]} for i in range(MERGED_FROM - 1)])
    for mark in marks:
        Path(mark.path).unlink()  # they are not even read
    written = write(tmp_path, {"a": [50]}, bucket(marks))
    assert (written.replaced, written.bytes_read) == ((), 0)
    assert read(stored(written.files[0])) == {"a": [50]}


def test_many_files_are_merged_and_replaced(tmp_path: Path) -> None:
    marks = earlier_files(tmp_path, *[{"a": [i], "b": [i, 50]} for i in range(MERGED_FROM)])
    written = write(tmp_path, {"b": [3, 60], "c": [1]}, bucket(marks))
    assert {*written.replaced} == {*marks}
    assert written.bytes_read == sum(mark.size_bytes for mark in marks)
    [file] = written.files
    assert read(stored(file)) == {"a": [*range(8)], "b": [*range(8), 50, 60], "c": [1]}
    assert (file.rows, [mark.last for mark in file.marks]) == (19, [7, 60, 1])


def test_large_files_are_not_written_again(tmp_path: Path) -> None:
    small = [{"a": [i]} for i in range(MERGED_FROM - 2)]
    count = MERGE_FACTOR * (len(small) + 1)
    [fits, large] = {"b": range(count)}, {"c": range(MERGE_FACTOR * (2 * count) + 1)}
    marks = earlier_files(tmp_path, large, *small, fits)
    written = write(tmp_path, {"a": [50]}, bucket(marks))
    assert {*written.replaced} == {*marks[1:]}
    assert "c" not in read(stored(written.files[0]))
    written = write(tmp_path, {"c": [1]}, bucket(marks[:1] * MERGED_FROM), "newer")
    assert written.replaced == ()


def test_only_what_fits_into_memory_is_merged(tmp_path: Path) -> None:
    marks = earlier_files(tmp_path, *[{"a": [2 * i, 2 * i + 1]} for i in range(MERGED_FROM)])
    made = write(tmp_path, {"a": [99]}, bucket(marks), most=8)
    assert len(made.replaced) == 3
    assert made.files[0].rows == 7


def test_marks_of_data_files_that_are_gone_are_dropped(tmp_path: Path) -> None:
    """Other writers have rewritten them; a commit that named one would be refused."""
    some = [{"a": [i], "gone": [i, 90]} for i in range(MERGED_FROM - 1)]
    marks = earlier_files(tmp_path, *some, {"gone": [1]})
    written = write(tmp_path, {"b": [1]}, bucket(marks))
    assert {*written.replaced} == {*marks}
    assert [mark.data_file for mark in written.files[0].marks] == ["a", "b"]
    assert read(stored(written.files[0]), ["a", "b", "gone"]) == {"a": [*range(7)], "b": [1]}


@settings(max_examples=20)
@given(data=st.data())
def test_no_position_is_lost_however_files_are_merged(data: st.DataObject) -> None:
    """As often as rounds come, in any sizes; beside a plain replay."""
    with folder_in_memory() as folder:
        merge_some_rounds(data, folder)


def merge_some_rounds(data: st.DataObject, folder: Path) -> None:
    marks: list[StoredMarks] = []
    expected: dict[str, set[int]] = {}
    size = st.sampled_from([1, 1, 1, 2, 5, 40])
    for number in range(data.draw(st.integers(1, 25))):
        rows: dict[str, set[int]] = {}
        for _ in range(data.draw(size)):
            path, at = data.draw(st.tuples(st.sampled_from("abc"), st.integers(0, 99)))
            rows.setdefault(path, set()).add(at)
            expected.setdefault(path, set()).add(at)
        written = write(folder, rows, bucket(marks), f"r{number}")
        assert {*written.replaced} <= {*marks}
        marks = [mark for mark in marks if mark not in written.replaced]
        marks += stored(written.files[0])
        assert len(written.files) == 1
    assert read(marks) == {path: sorted(at) for path, at in expected.items()}


def test_files_and_bytes_of_many_rounds_stay_bounded() -> None:
    with folder_in_memory() as folder:
        many_rounds(folder)


def many_rounds(tmp_path: Path) -> None:
    marks: list[StoredMarks] = []
    written_rows = 0
    most = 0
    for number in range(200):
        rows = {"a": [*range(10 * number, 10 * number + 10)]}
        written = write(tmp_path, rows, bucket(marks), f"r{number}")
        marks = [mark for mark in marks if mark not in written.replaced]
        marks += stored(written.files[0])
        written_rows += written.files[0].rows
        most = max(most, len(marks))
    assert read(marks) == {"a": [*range(2000)]}
    assert most <= MERGED_FROM + 3
    assert written_rows <= 7 * 2000


def test_a_vector_file_has_one_vector_for_each_data_file(tmp_path: Path) -> None:
    written = write_vectors_of(tmp_path, {"b": [5, 1], "a": [2**33]}, bucket())
    [file] = written.files
    assert file.content is FileContent.DELETION_VECTORS
    assert (file.path, file.partition) == (f"{tmp_path}/new-00001-deletes.puffin", ("mon", "1"))
    assert (file.rows, file.size_bytes) == (3, Path(file.path).stat().st_size)
    assert [(m.data_file, m.rows, m.last) for m in file.marks] == [("a", 1, 2**33), ("b", 2, 5)]
    content = Path(file.path).read_bytes()
    for mark in file.marks:
        start, size = mark.blob
        vector = DeletionVector.from_blob(content[start : start + size], "v", mark.rows)
        assert vector.last == mark.last
    assert (written.replaced, written.bytes_read) == ((), 0)
    assert [*tmp_path.iterdir()] == [Path(file.path)]


def test_vectors_contain_those_before_and_position_files(tmp_path: Path) -> None:
    [first] = write_vectors_of(tmp_path, {"a": [1, 9], "b": [2]}, bucket(), "v").files
    wide, narrow, other = earlier_files(tmp_path, {"a": [3], "c": [4]}, {"c": [5]}, {"b": [6]})
    assert (wide.data_file, narrow.data_file, other.data_file) == (None, "c", "b")
    marks = [*stored(first), wide, narrow, other]
    of_a, of_b = stored(first)
    written = write_vectors_of(tmp_path, {"a": [2], "c": [0]}, bucket(marks))
    [file] = written.files
    assert read(stored(file)) == {"a": [1, 2, 3, 9], "c": [0, 4, 5]}
    # b keeps its own; the file of several data files stays: readers ignore it beside a vector
    assert {*written.replaced} == {of_a, narrow}
    assert of_b not in written.replaced
    assert written.bytes_read == of_a.blob[1] + narrow.size_bytes


@settings(max_examples=20)
@given(data=st.data())
def test_no_vector_loses_a_position(data: st.DataObject) -> None:
    """A table that was upgraded has both kinds; each data file has one vector at most."""
    with folder_in_memory() as folder:
        upgrade_some_table(data, folder)


def upgrade_some_table(data: st.DataObject, folder: Path) -> None:
    rows = st.dictionaries(
        st.sampled_from("abcd"), st.sets(st.integers(0, 99), min_size=1, max_size=9), min_size=1
    )
    expected: dict[str, set[int]] = {}
    marks: list[StoredMarks] = []
    before = data.draw(st.integers(0, 4))
    for number in range(before + data.draw(st.integers(1, 6))):
        some = data.draw(rows)
        for path, at in some.items():
            expected.setdefault(path, set()).update(at)
        if number < before:
            marks += stored(write(folder, some, bucket(), f"r{number}").files[0])
            continue
        written = write_vectors_of(folder, some, bucket(marks, "abcd"), f"r{number}")
        marks = [mark for mark in marks if mark not in written.replaced]
        marks += stored(written.files[0])
        with_vector = [mark.data_file for mark in marks if mark.blob is not None]
        assert len(with_vector) == len({*with_vector})
    visible = {  # as Iceberg's readers: a vector alone, if there is one
        path: read([m for m in marks if m.blob and m.data_file == path], path).get(path)
        or read(marks, path)[path]
        for path in expected
    }
    assert visible == {path: sorted(at) for path, at in expected.items()}


def test_a_damaged_vector_is_not_replaced(tmp_path: Path) -> None:
    [file] = write_vectors_of(tmp_path, {"a": [1]}, bucket(), "v").files
    [mark] = stored(file)
    content = bytearray(Path(file.path).read_bytes())
    content[mark.blob[0] + 20] ^= 1
    Path(file.path).write_bytes(content)
    with pytest.raises(LakeFileUnreadable, match="v-00001-deletes.puffin"):
        write_vectors_of(tmp_path, {"a": [2]}, bucket([mark]))
    assert [*tmp_path.iterdir()] == [Path(file.path)]


def test_a_full_disk_leaves_no_file(tmp_path: Path) -> None:
    at = np.random.default_rng(3).choice(2**40, 50_000, replace=False).tolist()
    with small_disk(50_000):
        with pytest.raises(LakeNotWritable, match=r"new-00001-positions\.parquet.*too large"):
            write(tmp_path, {"a": at}, bucket(), row_group_rows=5_000)
        with pytest.raises(LakeNotWritable, match=r"new-00001-deletes\.puffin.*too large"):
            write_vectors_of(tmp_path, {"a": at}, bucket())
    assert [*tmp_path.iterdir()] == []


class TestRowsThatAreDeletedAlready:
    """They may be marked again: to know them costs a read of all marks."""

    def test_few_are_not_asked_for(self, tmp_path: Path) -> None:
        [mark] = earlier_files(tmp_path, {"a": [1, 2, 3]})
        Path(mark.path).unlink()
        found = arrays({"a": [1, 2, 3, 9]})
        assert new_positions(found, 2, bucket([mark]), READER, MOST) == (found, 0)
        assert new_positions(found, 1, bucket(), READER, MOST) == (found, 0)

    def test_more_than_fit_into_memory_are_not_asked_for(self, tmp_path: Path) -> None:
        [mark] = earlier_files(tmp_path, {"a": [1, 2, 3]})
        found = arrays({"a": [1, 2, 3, 9]})
        assert new_positions(found, 1, bucket([mark]), READER, 6) == (found, 0)
        left, _ = new_positions(found, 1, bucket([mark]), READER, 7)
        assert left["a"].tolist() == [9]

    def test_those_of_hot_keys_are_not_written_again(self, tmp_path: Path) -> None:
        marks = earlier_files(tmp_path, {"a": [1, 2], "b": [5]}, {"a": [3], "c": [1]})
        found = arrays({"a": [1, 2, 3, 9], "b": [5], "d": [0]})
        left, read_bytes = new_positions(found, 2, bucket(marks, "abcd"), READER, MOST)
        assert {path: at.tolist() for path, at in left.items()} == {"a": [9], "d": [0]}
        assert left["a"].dtype == np.int64
        assert read_bytes == sum(mark.size_bytes for mark in marks)

    def test_nor_those_of_vectors(self, tmp_path: Path) -> None:
        [file] = write_vectors_of(tmp_path, {"a": [1, 2, 3]}, bucket(), "v").files
        marks = stored(file)
        left, read_bytes = new_positions(arrays({"a": [1, 2, 3]}), 1, bucket(marks), READER, MOST)
        assert (left, read_bytes) == ({}, marks[0].blob[1])


def test_few_data_files_get_position_files_of_their_own(tmp_path: Path) -> None:
    """polars leaves the scan to PyIceberg if one is about several."""
    assert len(MANY) > APART_MAX
    written = write(tmp_path, {"b": [5, 1], "a": [3]}, bucket(files="abc"))
    assert [[mark.data_file for mark in file.marks] for file in written.files] == [["a"], ["b"]]
    marks = [mark for file in written.files for mark in stored(file)]
    assert read(marks) == {"a": [3], "b": [1, 5]}
    again = write(tmp_path, {"b": [2]}, bucket(marks, "abc"), "again")
    [file] = again.files
    assert [one.path for one in again.replaced] == [written.files[1].path]
    assert read([*marks[:1], *stored(file)]) == {"a": [3], "b": [1, 2, 5]}
    assert len({one.path for one in (*written.files, *again.files)}) == 3


def test_files_about_several_data_files_are_divided(tmp_path: Path) -> None:
    """Rounds wrote them while the bucket had many files."""
    marks = earlier_files(tmp_path, {"a": [1, 2], "b": [7], "gone": [1]}, {"c": [0], "d": [4]})
    written = write(tmp_path, {"b": [3]}, bucket(marks, "abc"))
    assert set(written.replaced) == set(marks)
    found = [mark for file in written.files for mark in stored(file)]
    assert read(found) == {"a": [1, 2], "b": [3, 7], "c": [0]}
    assert all(mark.data_file is not None for mark in found)


def test_much_larger_files_of_a_data_file_stay(tmp_path: Path) -> None:
    large = stored(
        write(tmp_path, {"a": range(APART_FACTOR * 3 + 1)}, bucket(files="a"), "l").files[0]
    )
    kept = write(tmp_path, {"a": [500, 501, 502]}, bucket(large, "a"))
    assert (kept.replaced, kept.files[0].rows) == ((), 3)
    both = [*large, *stored(kept.files[0])]
    merged = write(tmp_path, {"a": [600]}, bucket(both, "a"), "m")
    assert set(merged.replaced) == {both[0], both[1]}
    assert merged.files[0].rows == APART_FACTOR * 3 + 5
    assert write(tmp_path, {"a": [1]}, bucket(both, "a"), "n", most=3).replaced == ()


def test_files_of_a_removed_data_file_go(tmp_path: Path) -> None:
    first = write(tmp_path, {"a": [1], "b": [2]}, bucket(files="ab"), "f")
    marks = [mark for file in first.files for mark in stored(file)]
    options = WriteOptions(1)
    found = write_position_files(
        arrays({}), bucket(marks, "ab"), READER, target(tmp_path, "n"), options, MOST, {"a"}
    )
    assert (found.files, found.replaced) == ((), (marks[0],))


def test_a_full_disk_leaves_none_of_several_files(tmp_path: Path) -> None:
    rows = {"a": [1], "b": range(100_000)}
    with small_disk(20_000), pytest.raises(LakeNotWritable):
        write(tmp_path, rows, bucket(files="ab"))
    assert [*tmp_path.iterdir()] == []
