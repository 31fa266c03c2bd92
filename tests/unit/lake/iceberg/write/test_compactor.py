"""Data files of a bucket become one sorted run, or stay as they were."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from sluice.errors import ClaimLost
from sluice.lake.iceberg.write.compactor import Compactor
from sluice.lake.parquet.reader import LakeReader
from sluice.lake.parquet.writer import FileTarget, WriteOptions
from sluice.lake.storage.file_systems import FileSystems
from sluice.rounds.copy.key_runs import KeySet
from sluice.rounds.values.lake_files import (
    BucketFiles,
    Compaction,
    DataFile,
    LiveFile,
    StoredMarks,
    WrittenCompaction,
)
from sluice.rounds.values.limits import TimeLeft
from tests.unit.lake.iceberg.deletes.test_live_rows import (
    SCHEMA,
    changed,
    column,
    keys,
    marks,
    numbers,
    stored,
)

ENDLESS = TimeLeft(lambda: None, lambda: None)
NONE: Callable[[], KeySet | None] = lambda: None  # noqa: E731
"""No key is changed."""
OFFSETS = pa.schema([column("a", pa.int64(), 1), column("__offset", pa.int64(), 2, required=True)])


def own(path: Path, ids: Sequence[int]) -> DataFile:
    file = numbers(path, ids)
    return DataFile(file.path, file.rows, file.size_bytes, ("1",))


def compactor(
    folder: Path,
    files: Sequence[LiveFile],
    bucket: BucketFiles | None = None,
    key_names: Sequence[str] = ("id",),
    schema: pa.Schema = SCHEMA,
    **options: Any,
) -> Compactor:
    folder.mkdir(exist_ok=True)
    settings = {"file_bytes": 1 << 30, "spill_dir": str(folder.parent / "spill"), **options}
    plan = Compaction(tuple(files), bucket or BucketFiles(tuple(files)), **settings)
    target = FileTarget(FileSystems(), str(folder), "w", ("1",))
    return Compactor(plan, schema, key_names, target, WriteOptions(1), LakeReader(FileSystems()))


def ids_in(written: WrittenCompaction, name: str = "id") -> list[int]:
    found: list[int] = []
    for file in written.files:
        content = pq.read_table(file.path).column(name).to_pylist()
        assert len(content) == file.rows
        found += content
    return found


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_live_rows_and_those_of_the_round_are_sorted_into_one_file(tmp_path: Path) -> None:
    a, b = numbers(tmp_path / "a", [9, 3, 5, 1], 1), numbers(tmp_path / "b", [8, 2, 6], 2)
    bucket = BucketFiles(
        (a, b),
        (marks(tmp_path / "m", {a.path: [1], b.path: [2]}),),
        keys=(keys(tmp_path / "k", [9, 8], 2),),
    )
    mine = own(tmp_path / "own", [7, 5, 4])
    made = compactor(tmp_path / "new", [a, b], bucket)
    written = made.run([mine], lambda: changed(5), ENDLESS)
    assert (written.why_not, written.removed, written.spare) == ("", (a.path, b.path), (mine,))
    assert ids_in(written) == [1, 2, 4, 5, 7, 8]
    assert written.dead_rows == 4
    assert written.bytes_read == a.size_bytes + b.size_bytes + mine.size_bytes
    assert written.bytes_written == written.files[0].size_bytes
    assert written.spilled_bytes == 0
    assert written.memory_bytes > 0
    assert written.cpu_seconds > 0
    assert left(tmp_path / "new") == ["w-compacted-00001.parquet"]
    made.abort()
    assert left(tmp_path / "new") == []


def test_files_end_at_their_size(tmp_path: Path) -> None:
    a, b = (
        numbers(tmp_path / "a", range(0, 100_000, 2)),
        numbers(tmp_path / "b", range(1, 100_000, 2)),
    )
    folder = tmp_path / "new"
    folder.mkdir()
    target = FileTarget(FileSystems(), str(folder), "w", ("1",))
    plan = Compaction((a, b), BucketFiles((a, b)), 100_000)
    options = WriteOptions(1, row_group_rows=20_000)
    made = Compactor(plan, SCHEMA, ("id",), target, options, LakeReader(FileSystems()))
    written = made.run([], NONE, ENDLESS)
    assert len(written.files) == 2
    assert ids_in(written) == [*range(100_000)]


def test_rows_beyond_memory_are_spilled(tmp_path: Path) -> None:
    files = [numbers(tmp_path / str(i), range(i, 90_000, 7)) for i in range(7)]
    written = compactor(tmp_path / "new", files, memory_bytes=600_000).run([], NONE, ENDLESS)
    assert written.why_not == ""
    assert ids_in(written) == [*range(90_000)]
    assert written.spilled_bytes > 0
    assert written.memory_bytes < 2_000_000
    assert left(tmp_path / "spill") == []


def test_a_bucket_without_live_rows_becomes_no_file(tmp_path: Path) -> None:
    a = numbers(tmp_path / "a", [1, 2])
    written = compactor(tmp_path / "new", [a]).run([], lambda: changed(1, 2), ENDLESS)
    assert (written.removed, written.files, written.dead_rows) == ((a.path,), (), 2)


def log_file(path: Path, offsets: Sequence[int], *, known: bool = True) -> LiveFile:
    file = stored(path, OFFSETS, {"a": [0] * len(offsets), "__offset": offsets})
    ends = tuple(end(offsets).to_bytes(8, "little") for end in (min, max))
    bounds = (ends,) if known else ((None, None),)
    return LiveFile(file.path, file.rows, file.size_bytes, 0, bounds)


@pytest.mark.parametrize("known", [True, False])
def test_a_log_table_keeps_the_order_of_its_offsets(tmp_path: Path, known: bool) -> None:
    files = [log_file(tmp_path / str(i), range(i, i + 5), known=known) for i in (0, 5, 10)]
    given = files if known else files[::-1]
    written = compactor(tmp_path / "new", given, key_names=(), schema=OFFSETS).run(
        [], NONE, ENDLESS
    )
    assert ids_in(written, "__offset") == [*range(15)]
    assert (written.memory_bytes > 0) is not known


def test_files_of_a_log_table_that_overlap_are_sorted(tmp_path: Path) -> None:
    files = [log_file(tmp_path / "a", [0, 1, 7]), log_file(tmp_path / "b", [2, 3, 4])]
    written = compactor(tmp_path / "new", files, key_names=(), schema=OFFSETS).run(
        [], NONE, ENDLESS
    )
    assert ids_in(written, "__offset") == [0, 1, 2, 3, 4, 7]


def _lost(file: LiveFile) -> None:
    Path(file.path).unlink()


def _damaged(file: LiveFile) -> None:
    Path(file.path).write_bytes(b"PAR1 nothing else PAR1")


@pytest.mark.parametrize("spoil", [_lost, _damaged])
def test_what_cannot_be_read_stays(tmp_path: Path, spoil: Callable[[LiveFile], None]) -> None:
    a, b = numbers(tmp_path / "a", range(100)), numbers(tmp_path / "b", range(100, 200))
    made = compactor(tmp_path / "new", [a, b])
    spoil(b)
    written = made.run([own(tmp_path / "own", [1])], NONE, ENDLESS)
    assert (written.removed, written.files, written.spare) == ((), (), ())
    assert b.path in written.why_not
    assert left(tmp_path / "new") == []


def test_a_file_with_fewer_rows_than_the_lake_says_is_not_replaced(tmp_path: Path) -> None:
    a = numbers(tmp_path / "a", range(10))
    wrong = LiveFile(a.path, 11, a.size_bytes, 1)
    written = compactor(tmp_path / "new", [wrong]).run([], NONE, ENDLESS)
    assert "read 10 rows and wrote 10, but its files have 11 rows" in written.why_not
    assert left(tmp_path / "new") == []


@pytest.mark.parametrize("why", ["unusable", "not_rewritable"])
def test_a_bucket_that_must_not_be_rewritten_is_not(tmp_path: Path, why: str) -> None:
    a = numbers(tmp_path / "a", [1])
    bucket = BucketFiles((a,), **{why: "others wrote ORC"})
    assert (
        compactor(tmp_path / "new", [a], bucket).run([], NONE, ENDLESS).why_not
        == "others wrote ORC"
    )


def test_deletes_beyond_memory_leave_it_out(tmp_path: Path) -> None:
    a = numbers(tmp_path / "a", [1])
    rows = numbers(tmp_path / "rows", range(200))
    several, other = StoredMarks("m", 101, 1), StoredMarks("other", 9, 1, "b")
    many = BucketFiles((rows,), (several, other))
    written = compactor(tmp_path / "new", [rows], many, memory_bytes=3_200).run([], NONE, ENDLESS)
    assert written.why_not.startswith("101 deleted rows of its files need more memory than")
    none = marks(tmp_path / "none", {"file:/other": range(101)})  # positions of other files
    few = BucketFiles((a,), (none,))
    assert compactor(tmp_path / "new", [a], few, memory_bytes=3_200).run([], NONE, ENDLESS).files
    large = BucketFiles((a,), keys=(keys(tmp_path / "k", range(1_000), 9),))
    written = compactor(tmp_path / "new", [a], large, memory_bytes=3_200).run([], NONE, ENDLESS)
    assert written.why_not.startswith("equality deletes of its files need more memory")


def test_the_time_limit_ends_it(tmp_path: Path) -> None:
    files = [numbers(tmp_path / str(i), range(100)) for i in range(9)]
    seen = iter([60.0, 60.0, 60.0, 0.0])
    written = compactor(tmp_path / "new", files).run(
        [], NONE, TimeLeft(lambda: next(seen), ENDLESS.check)
    )
    assert written.why_not == "the round's time limit was reached"
    assert left(tmp_path / "new") == []
    late = compactor(tmp_path / "new", files).run([], NONE, TimeLeft(lambda: -1.0, ENDLESS.check))
    assert "0.0 s of the round's time were left" in late.why_not
    assert late.bytes_read == 0


def test_a_cancelled_round_leaves_no_file(tmp_path: Path) -> None:
    files = [numbers(tmp_path / str(i), range(100)) for i in range(9)]

    def cancelled() -> None:
        raise ClaimLost("cancelled")

    with pytest.raises(ClaimLost):
        compactor(tmp_path / "new", files).run([], NONE, TimeLeft(lambda: None, cancelled))
    assert left(tmp_path / "new") == []


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_files_that_were_written_before_it_ended_are_deleted(
    tmp_path: Path, is_cancelled: bool
) -> None:
    folder = tmp_path / "new"
    folder.mkdir()
    starts = range(0, 90_000, 10_000)
    files = tuple(log_file(tmp_path / str(i), range(i, i + 10_000)) for i in starts)
    target = FileTarget(FileSystems(), str(folder), "w", ("1",))
    plan = Compaction(files, BucketFiles(files), file_bytes=1_000)
    options = WriteOptions(1, row_group_rows=10_000)
    made = Compactor(plan, OFFSETS, (), target, options, LakeReader(FileSystems()))
    written: list[str] = []

    def some_are_written() -> bool:
        written[:] = left(folder)
        return len(written) >= 2

    def cancelled() -> None:
        if is_cancelled and some_are_written():
            raise ClaimLost("cancelled")

    def left_s() -> float | None:
        return 0.0 if not is_cancelled and some_are_written() else None

    if is_cancelled:
        with pytest.raises(ClaimLost):
            made.run([], NONE, TimeLeft(left_s, cancelled))
    else:
        assert "time limit" in made.run([], NONE, TimeLeft(left_s, cancelled)).why_not
    assert len(written) >= 2
    assert left(folder) == []


def test_a_row_that_is_lost_on_the_way_keeps_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here Arrow's sort loses it. What is read and what is dead cannot show that."""
    a, b = numbers(tmp_path / "a", [9, 3, 5]), numbers(tmp_path / "b", [8, 2])
    sort = pc.sort_indices
    monkeypatch.setattr(pc, "sort_indices", lambda *args, **named: sort(*args, **named)[1:])
    written = compactor(tmp_path / "new", [a, b]).run([], lambda: changed(5), ENDLESS)
    assert "read 5 rows and wrote 3, but its files have 5 rows, and 1" in written.why_not
    assert (written.removed, written.files) == ((), ())
    assert left(tmp_path / "new") == []
