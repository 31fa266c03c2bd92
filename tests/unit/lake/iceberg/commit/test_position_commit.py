"""The checks before a commit: each is about a wrong answer that no reader would notice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluice.errors import LakeFilesChanged
from sluice.lake.iceberg.commit.position_checks import check_positions
from sluice.model import TableBucket
from sluice.rounds.values.lake_files import (
    BucketFiles,
    DataFile,
    FileContent,
    LiveFile,
    LiveFiles,
    PlannedCommit,
    RowMarks,
    StoredMarks,
)

ONE, TWO = TableBucket(1, None, 0), TableBucket(1, None, 1)
OLD = StoredMarks("v1", 3, 99, "file:/a", (4, 40))
LIVE = LiveFiles(
    7,
    {
        ONE: BucketFiles((LiveFile("file:/a", 10, 1, 1), LiveFile("file:/b", 5, 1, 1)), (OLD,)),
        TWO: BucketFiles((LiveFile("file:/c", 1, 1, 1),)),
    },
    as_vectors=True,
)
V2 = replace(LIVE, as_vectors=False)


def marking(*marks: tuple[str, int], vectors: bool = True, rows: int = 3) -> list[DataFile]:
    content = FileContent.DELETION_VECTORS if vectors else FileContent.POSITION_DELETES
    blob = (4, 40) if vectors else None
    made = tuple(RowMarks(path, rows, last, blob) for path, last in marks)
    return [DataFile("new", rows, 1, ("0",), content, made), DataFile("rows", 9, 9, ("0",))]


@pytest.mark.parametrize("live", [LIVE, V2])
def test_what_is_right_passes(live: LiveFiles) -> None:
    vectors = live.as_vectors
    files = [*marking(("file:/a", 9), ("file:/c", 0), vectors=vectors), *marking(vectors=vectors)]
    check_positions(files, PlannedCommit(live, (OLD,)))
    check_positions(marking(("file:/b", 4), vectors=vectors), PlannedCommit(live))
    check_positions([], PlannedCommit(live))
    of_several = replace(OLD, data_file=None)
    check_positions([], PlannedCommit(live, (of_several, replace(OLD, data_file="file:/gone"))))


@pytest.mark.parametrize("live", [LIVE, V2])
def test_earlier_positions_are_not_lost(live: LiveFiles) -> None:
    vectors, commit = live.as_vectors, PlannedCommit(live, (OLD,))
    why = "file:/a would have {}, fewer than the 3 that v1 deletes"
    with pytest.raises(LakeFilesChanged, match=why.format("2 deleted rows")):
        check_positions(marking(("file:/a", 9), vectors=vectors, rows=2), commit)
    with pytest.raises(LakeFilesChanged, match=why.format("0 deleted rows")):
        check_positions(marking(("file:/b", 4), vectors=vectors), commit)
    with pytest.raises(LakeFilesChanged, match=why.format("0 deleted rows")):
        check_positions([], commit)


@pytest.mark.parametrize("live", [LIVE, V2])
@pytest.mark.parametrize("path", ["/a", "file:///a", "file:/A", "file:/gone", ""])
def test_a_path_in_another_spelling_is_named(live: LiveFiles, path: str) -> None:
    with pytest.raises(LakeFilesChanged, match=f"data file {path} is not in lake snapshot 7"):
        check_positions(marking(("file:/b", 1), (path, 1)), PlannedCommit(live, (OLD,)))


@pytest.mark.parametrize("live", [LIVE, V2])
@pytest.mark.parametrize("last", [5, 2**40, -1])
def test_a_position_behind_the_end_of_its_file_is_named(live: LiveFiles, last: int) -> None:
    with pytest.raises(
        LakeFilesChanged, match=f"position {last} of data file file:/b, which has 5"
    ):
        check_positions(marking(("file:/b", last)), PlannedCommit(live))


def test_a_data_file_has_one_vector() -> None:
    with pytest.raises(LakeFilesChanged, match="file:/a would have two deletion vectors: its"):
        check_positions(marking(("file:/a", 1)), PlannedCommit(LIVE))
    other = replace(OLD, blob=(44, 40))
    with pytest.raises(LakeFilesChanged, match="file:/a would have two"):
        check_positions(marking(("file:/a", 1)), PlannedCommit(LIVE, (other,)))
    twice = [*marking(("file:/b", 1)), *marking(("file:/b", 2))]
    with pytest.raises(LakeFilesChanged, match="a data file would have two deletion vectors"):
        check_positions(twice, PlannedCommit(LIVE))
    check_positions(twice, PlannedCommit(V2))  # position delete files may be several
    parquet = replace(OLD, blob=None)
    of_v2 = BucketFiles(LIVE.buckets[ONE].files, (parquet,))
    upgraded = replace(LIVE, buckets={ONE: of_v2})
    check_positions(marking(("file:/a", 1)), PlannedCommit(upgraded))  # and stay beside a vector


@pytest.mark.parametrize("live", [LIVE, V2])
def test_a_compaction_removes_files_and_what_marks_them(live: LiveFiles) -> None:
    vectors = live.as_vectors
    commit = PlannedCommit(live, (OLD,), ("file:/a",))
    check_positions(marking(("file:/b", 4), vectors=vectors), commit)
    check_positions([], commit)
    with pytest.raises(LakeFilesChanged, match="file:/a is removed by a compaction, and rows of"):
        check_positions(marking(("file:/a", 9), vectors=vectors), commit)
    with pytest.raises(LakeFilesChanged, match="file:/gone, which a compaction has read, is not"):
        check_positions([], PlannedCommit(live, (), ("file:/a", "file:/gone")))
