"""What the embedded server has on disk, read by itself: logs, catalog rows, offsets files.

It knows the layouts (docs/fluss/log-batches.md#batch-header,
docs/fluss/lake-snapshots.md#offsets-file) and shares no code with the project. The logs of an
Apache Fluss cluster have the same layout.
"""

from __future__ import annotations

import json
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import google_crc32c
import pyarrow as pa

HEAD = struct.Struct("<qibqIhbiqii")
"""A batch of magic 0: base offset, length, magic, timestamp, CRC, schema id, attributes, last
offset delta, writer id, sequence, record count."""
_BEFORE_LENGTH = 12  # base offset and the length itself are not counted
_CRC_COVERS_FROM = 25

Bucket = tuple[str, int]
"""Partition name (empty for a table without partitions) and bucket number."""


@dataclass(frozen=True)
class Registered:
    """The newest lake snapshot that the server knows, and the offsets that it reached."""

    snapshot_id: int
    offsets: dict[Bucket, int]


def table_folder(logs: Path, database: str, table: str) -> Path:
    """The folder of a table's logs; ``logs`` is the server's folder of all of them."""
    [folder] = (logs / database).glob(f"{table}-[0-9]*")
    return folder


def read_logs(folder: Path, schema: pa.Schema, *, keyed: bool = False) -> dict[Bucket, pa.Table]:
    """All rows of a table's logs, with the columns ``__offset`` and ``__timestamp`` (ms).

    :param keyed: of a table with a primary key: with ``__change`` too, the number of what a row
        says in the changelog.
    """
    logs = {}
    for log in sorted(folder.rglob("log-*")):
        partition = "" if log.parent == folder else log.parent.name.rpartition("-p")[0]
        batches = [b for file in sorted(log.glob("*.log")) for b in _batches(file, schema)]
        full = schema.append(pa.field("__offset", pa.int64()))
        full = full.append(pa.field("__timestamp", pa.int64()))
        full = full.append(pa.field("__change", pa.uint8()))
        rows = pa.Table.from_batches(batches, full)
        bucket = int(log.name.removeprefix("log-"))
        logs[partition, bucket] = rows if keyed else rows.drop_columns(["__change"])
    return logs


def _batches(file: Path, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    content = file.read_bytes()
    at = 0
    while at + HEAD.size <= len(content):
        base, length, magic, stamp, crc, _, attributes, last, _, _, count = HEAD.unpack_from(
            content, at
        )
        end = at + _BEFORE_LENGTH + length
        if end > len(content):
            return  # a batch that is being written, or was when the server died
        assert magic == 0, f"{file}: magic {magic} at byte {at}"
        assert google_crc32c.value(content[at + _CRC_COVERS_FROM : end]) == crc, f"{file}: {at}"
        assert count in (0, last + 1), f"{file}: {count} records at byte {at}, last is {last}"
        if count:
            kinds = bytes(count) if attributes & 1 else content[at + HEAD.size :][:count]
            body = at + HEAD.size + (0 if attributes & 1 else count)
            message = pa.py_buffer(content[body:end])
            rows = pa.ipc.read_record_batch(message, schema)
            offsets = pa.array(range(base, base + count), pa.int64())
            stamps = pa.array([stamp] * count, pa.int64())
            changes = pa.array(list(kinds), pa.uint8())
            columns = [*rows.columns, offsets, stamps, changes]
            names = [*schema.names, "__offset", "__timestamp", "__change"]
            yield pa.RecordBatch.from_arrays(columns, names)
        at = end


def read_partitions(data_dir: Path, database: str, table: str) -> dict[int, str]:
    """Names of a table's partitions by id, in the embedded server's storage."""
    rows = _rows(
        data_dir,
        "SELECT partition_id, partitions.name FROM partitions JOIN tables USING (table_id)"
        " WHERE database = ? AND tables.name = ?",
        (database, table),
    )
    return dict(rows)


def read_registered(data_dir: Path, database: str, table: str) -> Registered | None:
    """The newest lake snapshot of a table in the embedded server's storage."""
    rows = _rows(
        data_dir,
        "SELECT snapshot_id, tiered_path FROM lake_snapshots JOIN tables USING (table_id)"
        " WHERE database = ? AND name = ? ORDER BY position DESC LIMIT 1",
        (database, table),
    )
    if not rows:
        return None
    [(snapshot_id, path)] = rows
    text = Path(unquote(urlsplit(path).path)).read_text()
    return Registered(snapshot_id, read_offsets(text, read_partitions(data_dir, database, table)))


def _rows(data_dir: Path, query: str, values: tuple[str, ...]) -> list[Any]:
    uri = f"file:{data_dir / 'metadata.sqlite'}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, timeout=10)) as connection:
        return connection.execute(query, values).fetchall()


def read_offsets(text: str, partitions: dict[int, str] | None = None) -> dict[Bucket, int]:
    """An offsets file: end offset (exclusive) of each bucket; unknown ones are left out."""
    content = json.loads(text)
    lists = {"": content.get("bucket_offsets", [])}
    for entry in content.get("partition_offsets", []):
        number = entry["partition_id"]
        lists[(partitions or {}).get(number, f"id {number}")] = entry["bucket_offsets"]
    return {
        (partition, bucket): offset
        for partition, offsets in lists.items()
        for bucket, offset in enumerate(offsets)
        if offset >= 0
    }
