"""The ``_METADATA`` file of a KV snapshot (docs/fluss/remote-storage.md#kv-snapshots)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sluice.errors import CorruptMessage
from sluice.json_text import json_of
from sluice.model import TableBucket

VERSION = 1
METADATA_FILE = "_METADATA"


@dataclass(frozen=True, slots=True)
class KvFile:
    """A file of a snapshot: remote location, size in bytes, name in the RocksDB folder."""

    path: str
    size: int
    local_name: str


@dataclass(frozen=True, slots=True)
class KvSnapshot:
    """A snapshot of one bucket, with all changes of its log below ``log_offset``."""

    bucket: TableBucket
    snapshot_id: int
    location: str
    shared: tuple[KvFile, ...]
    """SST files, which other snapshots of the bucket may share."""
    private: tuple[KvFile, ...]
    incremental_size: int
    """Bytes that this snapshot added to the remote storage."""
    log_offset: int
    row_count: int | None = None
    """Number of rows, if known: tables with the image WAL do not count rows."""

    @property
    def files(self) -> tuple[KvFile, ...]:
        """All files: private first, then shared, as Fluss lists them."""
        return self.private + self.shared


def kv_snapshot_to_json(snapshot: KvSnapshot) -> bytes:
    """Returns the content of ``_METADATA``, with Fluss's keys in Fluss's order."""
    bucket = snapshot.bucket
    node: dict[str, Any] = {"version": VERSION, "table_id": bucket.table_id}
    if bucket.partition_id is not None:
        node["partition_id"] = bucket.partition_id
    node |= {
        "bucket_id": bucket.bucket,
        "snapshot_id": snapshot.snapshot_id,
        "snapshot_location": snapshot.location,
        "kv_snapshot_handle": {
            "shared_file_handles": _handles(snapshot.shared),
            "private_file_handles": _handles(snapshot.private),
            "snapshot_incremental_size": snapshot.incremental_size,
        },
        "log_offset": snapshot.log_offset,
    }
    if snapshot.row_count is not None:
        node["row_count"] = snapshot.row_count
    return json.dumps(node, separators=(",", ":")).encode()


def kv_snapshot_from_json(content: bytes) -> KvSnapshot:
    """Parses the content of ``_METADATA``.

    :raises CorruptMessage: the bytes are not a ``_METADATA`` file of version 1.
    """
    try:
        node = json_of(content)
        if node["version"] != VERSION:
            raise CorruptMessage(
                f"KV snapshot metadata has version {node['version']}; Sluice supports version 1"
            )
        partition_id, row_count = node.get("partition_id"), node.get("row_count")
        handle = node["kv_snapshot_handle"]
        return KvSnapshot(
            TableBucket(
                int(node["table_id"]),
                None if partition_id is None else int(partition_id),
                int(node["bucket_id"]),
            ),
            int(node["snapshot_id"]),
            str(node["snapshot_location"]),
            tuple(map(_file, handle["shared_file_handles"])),
            tuple(map(_file, handle["private_file_handles"])),
            int(handle["snapshot_incremental_size"]),
            int(node["log_offset"]),
            None if row_count is None else int(row_count),
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CorruptMessage(f"KV snapshot metadata cannot be read: {error!r}") from error


def _handles(files: Iterable[KvFile]) -> list[dict[str, Any]]:
    return [
        {"kv_file_handle": {"path": f.path, "size": f.size}, "local_path": f.local_name}
        for f in files
    ]


def _file(node: dict[str, Any]) -> KvFile:
    handle = node["kv_file_handle"]
    return KvFile(str(handle["path"]), int(handle["size"]), str(node["local_path"]))
