"""The history of an Iceberg table, read from its metadata files."""

from __future__ import annotations

import json
from typing import Any

from py4j.protocol import Py4JJavaError

from sluice.rounds.history import HistoryEntry, LakeHistory

_EARLIER_FILES_MAX = 1000
"""Maximum number of earlier metadata files that are read to find expired snapshots."""


def history_of(jvm: Any, table: Any, tag: str) -> LakeHistory:
    """Reads the history of a table from its metadata files.

    Expired snapshots are looked up in earlier metadata files, the newest first, until main is known
    back to a tiering snapshot or to its first snapshot, or no file remains. Missing files are
    skipped.

    :param table: Iceberg's table object, refreshed.
    """
    parser = jvm.org.apache.iceberg.TableMetadataParser
    content = json.loads(parser.toJson(table.operations().current()))
    references = content.get("refs", {})
    snapshots = {entry["snapshot-id"]: _entry(entry) for entry in content.get("snapshots", [])}
    expired: dict[int, HistoryEntry] = {}
    history = LakeHistory(
        references.get("main", {}).get("snapshot-id"),
        references.get(tag, {}).get("snapshot-id"),
        snapshots,
        expired,
    )
    earlier = [entry["metadata-file"] for entry in content.get("metadata-log", [])]
    for location in reversed(earlier[-_EARLIER_FILES_MAX:]):
        if history.newest_tiering_snapshot() is not None or history.is_complete():
            break
        try:
            old = json.loads(parser.toJson(parser.read(table.io(), location)))
        except Py4JJavaError:
            continue
        for entry in map(_entry, old.get("snapshots", [])):
            if entry.snapshot_id not in snapshots:
                expired[entry.snapshot_id] = entry
    return history


def _entry(content: dict[str, Any]) -> HistoryEntry:
    parent = content.get("parent-snapshot-id")
    return HistoryEntry(
        content["snapshot-id"],
        None if parent in (None, -1) else parent,
        content.get("sequence-number", 0),
        content.get("summary", {}),
    )
