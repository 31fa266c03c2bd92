"""What a commit with positions or compacted files checks, before it and in Iceberg.

A wrong position is a wrong answer without an error: a path in another spelling marks nothing, a
data file that others have rewritten has its rows twice, and a second deletion vector makes the
table unreadable. So the driver checks each path, position and vector against the planned snapshot,
and Iceberg checks that the data files are still there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Any

from sluice.errors import LakeFilesChanged
from sluice.lake.iceberg.catalog.java import java_list
from sluice.lake.iceberg.snapshots.live_files import data_files_of, delete_files_of
from sluice.lake.iceberg.snapshots.part_files import PartFiles
from sluice.quantities import counted
from sluice.rounds.values.lake_files import (
    DataFile,
    FileContent,
    LiveFiles,
    PlannedCommit,
    RowMarks,
    StoredMarks,
)

_FILE_PATH_ID, _POS_ID = 2147483546, 2147483545
"""Reserved field ids of position delete files (Iceberg's table specification)."""


def check_positions(files: Sequence[DataFile], positions: PlannedCommit) -> None:
    """Checks the new delete files against the snapshot that their positions are of.

    :raises LakeFilesChanged: a path is not that of a live file, a position is behind the end of its
        file, a data file would have two vectors, or an earlier vector is not removed. Or earlier
        positions of a data file are removed, and the new ones are fewer.
    """
    planned, removed = positions.planned, set(positions.removed)
    rows = {file.path: file.rows for bucket in planned.buckets.values() for file in bucket.files}
    if gone := removed - rows.keys():
        raise LakeFilesChanged(
            f"data file {min(gone)}, which a compaction has read, is not in lake snapshot"
            f" {planned.snapshot_id}"
        )
    rows = {path: count for path, count in rows.items() if path not in removed}
    marks = [mark for file in files for mark in file.marks]
    for mark in marks:
        if mark.data_file not in rows:
            why = f"is not in lake snapshot {planned.snapshot_id}, in which its rows were looked up"
            if mark.data_file in removed:
                why = "is removed by a compaction, and rows of it are deleted"
            raise LakeFilesChanged(f"data file {mark.data_file} {why}")
        if not 0 <= mark.last < rows[mark.data_file]:
            raise LakeFilesChanged(
                f"position {mark.last} of data file {mark.data_file}, which has"
                f" {rows[mark.data_file]:,} rows"
            )
    _check_replaced(marks, rows.keys(), positions.replaced)
    if planned.as_vectors:
        _check_vectors(marks, planned, positions.replaced)


def _check_replaced(
    marks: Sequence[RowMarks], living: Set[str], replaced: Sequence[StoredMarks]
) -> None:
    """Checks that deleted rows stay deleted: new positions contain those that they replace."""
    counts = {mark.data_file: mark.rows for mark in marks}
    for one in replaced:
        if one.data_file is None or one.data_file not in living:
            continue
        if (now := counts.get(one.data_file, 0)) < one.rows:
            raise LakeFilesChanged(
                f"data file {one.data_file} would have {counted(now, 'deleted row')}, fewer than"
                f" the {one.rows:,} that {one.path} deletes"
            )


def _check_vectors(
    marks: Sequence[RowMarks], planned: LiveFiles, replaced: Sequence[StoredMarks]
) -> None:
    named = [mark.data_file for mark in marks]
    if len(named) != len(set(named)):
        raise LakeFilesChanged("a data file would have two deletion vectors")
    earlier = {
        one for bucket in planned.buckets.values() for one in bucket.marks if one.blob is not None
    }
    kept = {one.data_file for one in earlier - set(replaced)}
    if twice := kept.intersection(named):
        raise LakeFilesChanged(
            f"data file {min(str(one) for one in twice)} would have two deletion vectors: its"
            " earlier one is not removed"
        )


def position_files(gateway: Any, table: Any, files: Sequence[DataFile]) -> list[Any]:
    """Iceberg's objects for new position delete files and deletion vectors.

    :param table: Iceberg's table object.
    """
    spec_id = int(table.spec().specId())
    described = [one for file in files for one in _descriptions(file, spec_id)]
    return delete_files_of(gateway, table, described) if described else []


def validate_positions(
    gateway: Any,
    table: Any,
    delta: Any,
    files: Sequence[DataFile],
    positions: PlannedCommit,
    parts: PartFiles,
) -> None:
    """Makes a row delta fail if others have changed the data files since the planned snapshot.

    What they do in other partitions is no conflict. Removes the marks that the new files replace,
    the data files whose live rows they contain, and equality deletes that apply to these only.

    :param delta: Iceberg's RowDelta.
    """
    planned = positions.planned
    if planned.snapshot_id is not None:
        delta.validateFromSnapshot(planned.snapshot_id)
    named = sorted({mark.data_file for file in files for mark in file.marks})
    partitions = sorted({_place(file)[0] for file in files if file.marks or positions.removed})
    if partitions and partitions != [()]:
        delta.conflictDetectionFilter(parts.wide_filter(partitions))
    delta.validateDataFilesExist(java_list(gateway, named))
    delta.validateDeletedFiles()
    delta.validateNoConflictingDataFiles()
    if positions.removed:
        delta.validateNoConflictingDeleteFiles()
        for removed in removed_files(gateway, table, positions):
            delta.removeRows(removed)
    described = [planned.descriptions[one] for one in positions.replaced]
    described += [planned.key_descriptions[one.path] for one in positions.outdated_keys()]
    for replaced in delete_files_of(gateway, table, described) if described else []:
        delta.removeDeletes(replaced)


def removed_files(gateway: Any, table: Any, positions: PlannedCommit) -> list[Any]:
    """Iceberg's objects for the data files that a commit removes."""
    described = [positions.planned.data_descriptions[path] for path in positions.removed]
    return data_files_of(gateway, table, described) if described else []


def _place(file: DataFile) -> tuple[tuple[str, ...], int]:
    """The values of the partition keys, which are never null, and the bucket."""
    *values, bucket = (str(text) for text in file.partition)
    return tuple(values), int(bucket)


def _descriptions(file: DataFile, spec_id: int) -> Iterator[dict[str, Any]]:
    """A file in the form in which Iceberg writes its delete files as JSON."""
    values, bucket = _place(file)
    common = {
        "spec-id": spec_id,
        "content": "position-deletes",
        "file-path": file.path,
        "partition": [*values, bucket],
        "file-size-in-bytes": file.size_bytes,
    }
    if file.content is FileContent.POSITION_DELETES:
        yield {
            **common,
            "file-format": "parquet",
            "record-count": file.rows,
            **_bounds(file.marks),
            **_only_data_file(file.marks),
        }
        return
    for mark in file.marks:
        assert mark.blob is not None
        yield {
            **common,
            "file-format": "puffin",
            "record-count": mark.rows,
            "referenced-data-file": mark.data_file,
            "content-offset": mark.blob[0],
            "content-size-in-bytes": mark.blob[1],
        }


def _only_data_file(marks: Sequence[RowMarks]) -> dict[str, Any]:
    return {"referenced-data-file": marks[0].data_file} if len(marks) == 1 else {}


def _bounds(marks: Sequence[RowMarks]) -> dict[str, Any]:
    """The complete bounds of the paths, from which readers see which data files it is about."""
    paths = [mark.data_file.encode() for mark in marks]
    last = max(mark.last for mark in marks)
    ids = [_FILE_PATH_ID, _POS_ID]
    low = [min(paths).hex().upper(), (0).to_bytes(8, "little").hex().upper()]
    high = [max(paths).hex().upper(), last.to_bytes(8, "little").hex().upper()]
    return {
        "lower-bounds": {"keys": ids, "values": low},
        "upper-bounds": {"keys": ids, "values": high},
    }
