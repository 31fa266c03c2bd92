"""Reads the live data files of buckets, and what marks their rows as deleted, from a snapshot.

Iceberg plans a scan, and writes all of its tasks as one JSON text: a few calls into the JVM,
however many files there are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sluice.errors import LakeTableMismatch
from sluice.lake.java import java_list
from sluice.lake.part_files import PartFiles
from sluice.model import TableBucket
from sluice.rounds.lake_files import BucketFiles, LiveFile, LiveFiles, StoredMarks
from sluice.rounds.types import Split

FILES_MAX = 20_000
"""Data files of all buckets that are read. Their description takes about a kilobyte each."""
VECTORS_VERSION = 3
"""The first format version of Iceberg with deletion vectors, and without position delete files."""
_PARQUET, _PUFFIN = "parquet", "puffin"
_POSITIONS = "position-deletes"
_Task = tuple[dict[str, Any], list[dict[str, Any]]]
"""The data file and the delete files of a task, in the form in which Iceberg writes them."""
_COLLECT = "org.apache.iceberg.relocated.com.google.common.collect"


def read_live_files(
    gateway: Any, table: Any, parts: PartFiles, splits: Sequence[Split]
) -> LiveFiles:
    """The live files of the buckets of these splits, as of the last refresh.

    :param table: Iceberg's table object.
    :raises Py4JJavaError: a manifest cannot be read.
    :raises LakeTableMismatch: a file that may have their rows has another partition spec.
    """
    as_vectors = table.operations().current().formatVersion() >= VECTORS_VERSION
    current = table.currentSnapshot()
    if current is None:
        empty = {split.bucket: BucketFiles() for split in splits}
        return LiveFiles(None, empty, as_vectors)
    snapshot_id = int(current.snapshotId())
    key_ids = _key_ids(table)
    tasks = _scan_tasks(gateway, table, parts, splits, key_ids)
    if len(tasks) > FILES_MAX:
        why = (
            f"the buckets of this round have more than {FILES_MAX:,} data files: compact the table"
        )
        return LiveFiles(
            snapshot_id, {s.bucket: BucketFiles(unusable=why) for s in splits}, as_vectors
        )
    gathered = {
        (*split.partition_values, split.bucket.bucket): _Bucket(split.bucket, as_vectors)
        for split in splits
    }
    spec_id = int(table.spec().specId())
    for data, deletes in tasks:
        if data["spec-id"] != spec_id:
            raise LakeTableMismatch(parts.other_spec(f"file {data['file-path']}"))
        bucket = gathered.get(tuple(data["partition"]))
        if bucket is not None:
            bucket.add(data, deletes, key_ids)
    descriptions = {k: v for bucket in gathered.values() for k, v in bucket.descriptions.items()}
    buckets = {bucket.bucket: bucket.found() for bucket in gathered.values()}
    return LiveFiles(snapshot_id, buckets, as_vectors, descriptions)


def delete_files_of(gateway: Any, table: Any, descriptions: Sequence[dict[str, Any]]) -> list[Any]:
    """Iceberg's objects for delete files, in this order.

    Iceberg parses the files of all tasks of a scan with one call. Each delete file has to belong to
    a task, so there is one task with an empty data file.

    :param descriptions: in the form in which Iceberg writes delete files as JSON; not empty.
    """
    data_file = {
        "spec-id": descriptions[0]["spec-id"],
        "content": "data",
        "file-path": "none",
        "file-format": _PARQUET,
        "partition": descriptions[0]["partition"],
        "file-size-in-bytes": 0,
        "record-count": 0,
    }
    task = {"data-file": data_file, "delete-file-references": [*range(len(descriptions))]}
    text = json.dumps({"delete-files": descriptions, "file-scan-tasks": [task]})
    parser = gateway.jvm.org.apache.iceberg.rest.responses.FetchScanTasksResponseParser
    found = parser.fromJson(text, table.specs(), True).deleteFiles()
    return [found.get(place) for place in range(found.size())]


class _Bucket:
    """Gathers the files of one bucket."""

    def __init__(self, bucket: TableBucket, as_vectors: bool) -> None:
        self.bucket, self._as_vectors = bucket, as_vectors
        self.descriptions: dict[StoredMarks, dict[str, Any]] = {}
        self._files: list[LiveFile] = []
        self._unusable = ""

    def add(
        self, data: Mapping[str, Any], deletes: Sequence[Mapping[str, Any]], key_ids: Sequence[int]
    ) -> None:
        path = data["file-path"]
        if data["file-format"].lower() != _PARQUET:
            self._unusable = f"data file {path} is not a Parquet file"
        sizes = _by_id(data, "column-sizes")
        lower, upper = _by_id(data, "lower-bounds"), _by_id(data, "upper-bounds")
        known = all(one in sizes for one in key_ids)
        size_bytes = int(data["file-size-in-bytes"])
        self._files.append(
            LiveFile(
                path,
                int(data["record-count"]),
                size_bytes,
                sum(int(sizes[one]) for one in key_ids) if known else size_bytes,
                tuple((_bytes(lower.get(one)), _bytes(upper.get(one))) for one in key_ids),
            )
        )
        for one in deletes:
            if not _is_own(data, one):
                self._unusable = f"Iceberg names a vector of another file for data file {path}"
            if one["content"] != _POSITIONS:
                continue
            if one["file-format"].lower() in (_PARQUET, _PUFFIN):
                self.descriptions[_marks(one)] = dict(one)
            elif self._as_vectors:  # its positions would be lost: a vector takes its place
                self._unusable = f"position delete file {one['file-path']} is not a Parquet file"

    def found(self) -> BucketFiles:
        files = sorted(self._files, key=lambda file: file.path)
        marks = sorted(self.descriptions, key=lambda one: (one.path, one.blob or (0, 0)))
        return BucketFiles(tuple(files), tuple(marks), self._unusable)


def _scan_tasks(
    gateway: Any,
    table: Any,
    parts: PartFiles,
    splits: Sequence[Split],
    key_ids: Sequence[int],
) -> list[_Task]:
    """All tasks of a scan of these splits' partitions, at most one more than are read."""
    jvm = gateway.jvm
    names = [table.schema().findColumnName(one) for one in key_ids]
    # not by the snapshot's id: such a scan has the column names that were valid at that time
    scan = table.newScan().includeColumnStats(java_list(gateway, names))
    values = sorted({split.partition_values for split in splits})
    if values != [()]:
        scan = scan.filter(parts.wide_filter(values))
    tasks = scan.planFiles()
    collect = jvm
    for name in _COLLECT.split("."):
        collect = getattr(collect, name)
    try:
        found = collect.Lists.newArrayList(collect.Iterables.limit(tasks, FILES_MAX + 1))
    finally:
        tasks.close()
    responses = jvm.org.apache.iceberg.rest.responses
    response = responses.FetchScanTasksResponse.builder().withFileScanTasks(found)
    text = responses.FetchScanTasksResponseParser.toJson(
        response.withSpecsById(table.specs()).build()
    )
    content = json.loads(text)
    deletes = content.get("delete-files", [])
    described = [
        (task["data-file"], [deletes[i] for i in task.get("delete-file-references", ())])
        for task in content.get("file-scan-tasks", ())
    ]
    if all(_is_own(data, one) for data, several in described for one in several):
        return described
    # Iceberg 1.11 takes all vectors of a Puffin file for the first of them in such a text
    parser = jvm.org.apache.iceberg.ScanTaskParser
    singly = (json.loads(parser.toJson(found.get(place))) for place in range(found.size()))
    return [(task["data-file"], task.get("delete-files", [])) for task in singly]


def _is_own(data: Mapping[str, Any], delete: Mapping[str, Any]) -> bool:
    """Whether a delete file may be of a data file: it names no other one."""
    return delete.get("referenced-data-file") in (None, data["file-path"])


def _key_ids(table: Any) -> list[int]:
    """The field ids of the key columns, in the order of the schema."""
    keys = set(table.schema().identifierFieldIds())
    columns = [int(field.fieldId()) for field in table.schema().columns()]
    return [one for one in columns if one in keys]


def _by_id(file: Mapping[str, Any], name: str) -> dict[int, Any]:
    """A map from field id to value, which Iceberg writes as two lists."""
    entry = file.get(name)
    return dict(zip(entry["keys"], entry["values"], strict=True)) if entry else {}


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def _marks(file: Mapping[str, Any]) -> StoredMarks:
    offset = file.get("content-offset")
    blob = None if offset is None else (int(offset), int(file["content-size-in-bytes"]))
    return StoredMarks(
        file["file-path"],
        int(file["record-count"]),
        int(file["file-size-in-bytes"]),
        file.get("referenced-data-file"),
        blob,
    )
