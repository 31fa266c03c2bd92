"""Reads the live data files of buckets, and what deletes rows of them, from a snapshot.

Iceberg plans a scan, and writes all of its tasks as one JSON text: a few calls into the JVM,
however many files there are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from typing import Any

from sluice.errors import LakeTableMismatch
from sluice.iceberg_rules.layout import PartFields, Role, system_roles
from sluice.lake.iceberg.catalog.java import iterate, java_list
from sluice.lake.iceberg.snapshots.part_files import PartFiles
from sluice.model import TableBucket
from sluice.rounds.values.lake_files import (
    TARGET_FILE_BYTES,
    BucketFiles,
    LiveFile,
    LiveFiles,
    StoredKeys,
    StoredMarks,
)
from sluice.rounds.values.types import Split

TARGET_FILE_PROPERTY = "write.target-file-size-bytes"
FILES_MAX = 20_000
"""Data files of all buckets that are read. Their description takes about a kilobyte each."""
VECTORS_VERSION = 3
"""The first format version of Iceberg with deletion vectors, and without position delete files."""
PAIRS_MAX = 20_000_000
"""Pairs of a data file and a delete file that may apply to it. Each equality delete of a bucket
makes one with each of its older data files, so they grow with the square of the rounds."""
_AT_ONCE = 500
"""Data files that Iceberg describes in one text."""
_PARQUET, _PUFFIN = "parquet", "puffin"
_POSITIONS, _EQUALITY = "position-deletes", "equality-deletes"
_OWN_FIELDS = "a user has chosen its partition fields: compact it with Iceberg's rewrite_data_files"
_COMPACT = "compact the table with Iceberg's rewrite_data_files"
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
    return _read(gateway, table, parts, splits)[1]


def _read(
    gateway: Any, table: Any, parts: PartFiles, splits: Sequence[Split] | None
) -> tuple[Sequence[Split], LiveFiles]:
    """:param splits: None: those of all buckets that have files."""
    as_vectors = table.operations().current().formatVersion() >= VECTORS_VERSION
    target = int(table.properties().getOrDefault(TARGET_FILE_PROPERTY, str(TARGET_FILE_BYTES)))
    current = table.currentSnapshot()
    if current is None:
        empty = {split.bucket: BucketFiles() for split in splits or ()}
        return splits or (), LiveFiles(None, empty, as_vectors, target_file_bytes=target)
    snapshot_id = int(current.snapshotId())
    key_ids = _key_ids(table)
    found, tasks, why = _planned_tasks(gateway, table, parts, splits, key_ids)
    is_whole = splits is None
    spec_id, fields = int(parts.spec().specId()), parts.fields()
    if splits is None:
        for data, _ in tasks if fields.has_bucket else ():  # one of another spec has no bucket
            _check_spec(data, spec_id, parts)
        own = [data for data, _ in tasks if data["spec-id"] == spec_id]
        splits = splits_of(fields, {tuple(data["partition"]) for data in own})
    if why:
        unusable = {split.bucket: BucketFiles(unusable=why) for split in splits}
        return splits, LiveFiles(snapshot_id, unusable, as_vectors)
    is_keyed = bool(table.schema().identifierFieldIds())
    gathered = _by_place(splits, fields, as_vectors=as_vectors, is_keyed=is_keyed)
    sequences = _Sequences(found, tasks, has_row_ids=as_vectors)
    leaves_out = False
    for place, (data, deletes) in enumerate(tasks):
        if not fields.has_bucket and data["spec-id"] != spec_id:
            leaves_out = True
            continue  # a user may change them: nothing is looked up in these files
        _check_spec(data, spec_id, parts)
        bucket = gathered.get(fields.place(data["partition"]))
        if bucket is None and is_whole:
            raise LakeTableMismatch(
                f"data file {data['file-path']} has partition {data['partition']}, which is none of"
                " Fluss's layout"
            )
        if bucket is not None:
            bucket.add(data, deletes, key_ids, sequences.of_data(place))
            for one in deletes:
                if one["content"] == _EQUALITY:
                    number = sequences.of_keys[one["file-path"]]
                    bucket.add_keys(one, key_ids, number, spec_id)
    descriptions = {k: v for bucket in gathered.values() for k, v in bucket.descriptions.items()}
    of_data = {k: v for bucket in gathered.values() for k, v in bucket.data_descriptions.items()}
    buckets = {split.bucket: BucketFiles() for split in splits}
    buckets |= {bucket.bucket: bucket.found() for bucket in gathered.values()}
    of_keys = {k: v for bucket in gathered.values() for k, v in bucket.key_descriptions.items()}
    return splits, LiveFiles(
        snapshot_id, buckets, as_vectors, descriptions, of_data, of_keys, target, leaves_out
    )


def _check_spec(data: Mapping[str, Any], spec_id: int, parts: PartFiles) -> None:
    """:raises LakeTableMismatch: the file has another partition spec."""
    if data["spec-id"] != spec_id:
        raise LakeTableMismatch(parts.other_spec(f"file {data['file-path']}"))


def read_all_live_files(
    gateway: Any, table: Any, parts: PartFiles
) -> tuple[Sequence[Split], LiveFiles]:
    """The live files of all buckets that have some, as of the last refresh; and their splits."""
    return _read(gateway, table, parts, None)


def splits_of(fields: PartFields, partitions: Set[tuple[Any, ...]]) -> list[Split]:
    """Splits that copy nothing, for partitions and buckets as Iceberg names them."""
    places = {fields.place(one) for one in partitions}
    named = sorted({(tuple(map(str, values)), bucket or 0) for values, bucket in places})
    values = sorted({texts for texts, _ in named})
    numbers = {one: None if one == () else number for number, one in enumerate(values)}
    return [
        Split(TableBucket(0, numbers[texts], bucket), texts, 0, 0, copies=False)
        for texts, bucket in named
    ]


def _by_place(
    splits: Sequence[Split], fields: PartFields, *, as_vectors: bool, is_keyed: bool
) -> dict[tuple[tuple[Any, ...], int | None], _Bucket]:
    """Where the files of each bucket are gathered, by partition values and bucket.

    Where buckets share files, the partition's first split gets all of them.
    """
    found: dict[tuple[tuple[Any, ...], int | None], _Bucket] = {}
    for split in sorted(splits, key=lambda one: one.bucket.bucket):
        bucket = split.bucket.bucket if fields.has_bucket else 0
        place = (split.partition_values, bucket)
        if place not in found:
            found[place] = _Bucket(
                split.bucket,
                as_vectors=as_vectors,
                is_keyed=is_keyed,
                not_rewritable=_OWN_FIELDS if fields.has_own else "",
            )
    return found


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


def data_files_of(gateway: Any, table: Any, descriptions: Sequence[dict[str, Any]]) -> list[Any]:
    """Iceberg's objects for data files, in this order.

    :param descriptions: in the form in which Iceberg writes data files as JSON; not empty.
    """
    text = json.dumps({"file-scan-tasks": [{"data-file": one} for one in descriptions]})
    parser = gateway.jvm.org.apache.iceberg.rest.responses.FetchScanTasksResponseParser
    found = parser.fromJson(text, table.specs(), True).fileScanTasks()
    return [found.get(place).file() for place in range(found.size())]


class _Sequences:
    """The sequence numbers of files, for which Iceberg's JSON has no field.

    They cost calls into the JVM for each file. Only equality deletes and rows with ids need them.
    """

    def __init__(self, found: Any, tasks: Sequence[_Task], *, has_row_ids: bool) -> None:
        """:param found: Java's list of the tasks."""
        self._found = found
        self.of_keys: dict[str, int] = {}
        """Of equality deletes, by their path."""
        # the oldest data file of a bucket has all deletes of its newer ones
        for place in sorted(range(len(tasks)), key=lambda one: -len(tasks[one][1])):
            keys = (one["file-path"] for one in tasks[place][1] if one["content"] == _EQUALITY)
            if any(key not in self.of_keys for key in keys):
                for one in iterate(found.get(place).deletes()):
                    self.of_keys[str(one.location())] = self._number(one)
        self._needed = has_row_ids or bool(self.of_keys)

    def of_data(self, place: int) -> int:
        return self._number(self._found.get(place).file()) if self._needed else 0

    def _number(self, file: Any) -> int:
        return int(file.dataSequenceNumber() or 0)


class _Bucket:
    """Gathers the files of one bucket."""

    def __init__(
        self, bucket: TableBucket, *, as_vectors: bool, is_keyed: bool, not_rewritable: str = ""
    ) -> None:
        self.bucket, self._as_vectors, self._is_keyed = bucket, as_vectors, is_keyed
        self.descriptions: dict[StoredMarks, dict[str, Any]] = {}
        self.data_descriptions: dict[str, dict[str, Any]] = {}
        self.key_descriptions: dict[str, dict[str, Any]] = {}
        self._files: list[LiveFile] = []
        self._keys: dict[str, StoredKeys] = {}
        self._unusable, self._not_rewritable = "", not_rewritable

    def add_keys(
        self, file: dict[str, Any], key_ids: Sequence[int], sequence: int, spec_id: int
    ) -> None:
        """Adds equality deletes, once: each data file that they apply to names them."""
        path = file["file-path"]
        if path in self._keys:
            return
        if file["spec-id"] == spec_id:  # one of another spec may be of other buckets, too
            self.key_descriptions[path] = file
        if not self._is_keyed or sorted(file["equality-ids"]) != sorted(key_ids):
            self._not_rewritable = f"{path} deletes rows by other columns than the primary key"
        if file["file-format"].lower() != _PARQUET:
            self._not_rewritable = f"{path} is not a Parquet file"
        rows, size_bytes = int(file["record-count"]), int(file["file-size-in-bytes"])
        self._keys[path] = StoredKeys(path, rows, size_bytes, sequence)

    def add(
        self,
        data: dict[str, Any],
        deletes: Sequence[Mapping[str, Any]],
        key_ids: Sequence[int],
        sequence: int,
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
                sequence,
                data.get("first-row-id"),
            )
        )
        self.data_descriptions[path] = data
        for one in deletes:
            if not _is_own(data, one):
                self._unusable = f"Iceberg names a vector of another file for data file {path}"
            if one["content"] != _POSITIONS:
                continue
            if one["file-format"].lower() in (_PARQUET, _PUFFIN):
                self.descriptions[_marks(one)] = dict(one)
            else:
                why = f"position delete file {one['file-path']} is not a Parquet file"
                self._not_rewritable = why
                if self._as_vectors:  # its positions would be lost: a vector takes its place
                    self._unusable = why

    def found(self) -> BucketFiles:
        files = sorted(self._files, key=lambda file: file.path)
        marks = sorted(self.descriptions, key=lambda one: (one.path, one.blob or (0, 0)))
        keys = tuple(sorted(self._keys.values(), key=lambda one: (one.sequence, one.path)))
        return BucketFiles(tuple(files), tuple(marks), self._unusable, keys, self._not_rewritable)


def _planned_tasks(
    gateway: Any,
    table: Any,
    parts: PartFiles,
    splits: Sequence[Split] | None,
    key_ids: Sequence[int],
) -> tuple[Any, list[_Task], str]:
    """The tasks of a scan of these splits' partitions: as Java's list, and in Iceberg's own JSON.

    If there are more than can be read, they end early, and the text says so.
    """
    jvm = gateway.jvm
    names = [table.schema().findColumnName(one) for one in key_ids]
    # not by the snapshot's id: such a scan has the column names that were valid at that time
    scan = table.newScan().includeColumnStats(java_list(gateway, names))
    values = sorted({split.partition_values for split in splits or ()})
    if values and values != [()]:
        scan = scan.filter(parts.wide_filter(values))
    tasks = scan.planFiles()
    collect = jvm
    for name in _COLLECT.split("."):
        collect = getattr(collect, name)
    found, described, pairs, why = jvm.java.util.ArrayList(), list[_Task](), 0, ""
    try:
        rest = tasks.iterator()
        while not why and rest.hasNext():
            some = collect.Lists.newArrayList(collect.Iterators.limit(rest, _AT_ONCE))
            found.addAll(some)
            described += _described(gateway, table, some)
            pairs += sum(len(deletes) for _, deletes in described[-some.size() :])
            if len(described) > FILES_MAX:
                why = f"its buckets have more than {FILES_MAX:,} data files together: {_COMPACT}"
            elif pairs > PAIRS_MAX:
                why = f"its deletes apply to data files more than {PAIRS_MAX:,} times: {_COMPACT}"
    finally:
        tasks.close()
    return found, described, why


def _described(gateway: Any, table: Any, found: Any) -> list[_Task]:
    """The tasks in Iceberg's own JSON."""
    jvm = gateway.jvm
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
    """The field ids of the key columns, in the order of the schema.

    Of a log table, that of its offsets, if the lake stores them: its files are in their order.
    """
    keys = set(table.schema().identifierFieldIds())
    columns = {str(one.name()): int(one.fieldId()) for one in table.schema().columns()}
    if not keys:
        roles = system_roles(columns)
        keys = {columns[name] for name, role in roles.items() if role is Role.OFFSET}
    return [one for one in columns.values() if one in keys]


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
