"""The history of an Iceberg table, read from its metadata files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from py4j.protocol import Py4JJavaError

from sluice.rounds.history import HistoryEntry, LakeHistory
from sluice.rounds.types import LakeSnapshot

_READ_SINGLY_MAX = 32
"""Number of snapshots of main that are read one by one, before the complete metadata is read."""
_EARLIER_FILES_MAX = 1000
"""Maximum number of earlier metadata files that are read to find expired snapshots."""


class IcebergHistory:
    """The snapshots of one table, as of the last refresh of Iceberg's table object.

    The number of calls into the JVM has a limit, however long the history is.
    """

    def __init__(self, jvm: Any, table: Any, tag: str) -> None:
        """:param table: Iceberg's table object.
        :param tag: the tag that keeps the newest tiering snapshot from expiry.
        """
        self._jvm, self._table, self._tag = jvm, table, tag
        self._known: tuple[str, LakeHistory] | None = None
        self._entries: dict[int, HistoryEntry] = {}
        """Snapshots that were read once. They never change, but may have expired since."""

    def find(self, summary: Mapping[str, str], since: int = 0) -> LakeSnapshot | None:
        """Newest tiering snapshot in main's ancestry whose summary contains all these entries.

        :param since: a sequence number; only newer snapshots count. 0: all of them.
        """
        for entry in self._lineage():
            if since and entry.sequence_number <= since:
                return None
            if entry.is_tiering and summary.items() <= entry.summary.items():
                if self._table.snapshot(entry.snapshot_id) is None:  # it has expired
                    self._entries.clear()
                    return self.find(summary, since)
                texts = {key: text for key, text in entry.summary.items() if key != "operation"}
                return LakeSnapshot(entry.snapshot_id, entry.sequence_number, texts)
        return None

    def is_ancestor(self, snapshot_id: int) -> bool:
        """Whether a snapshot is main's current snapshot or one of its existing ancestors."""
        snapshots = self._jvm.org.apache.iceberg.util.SnapshotUtil
        return self._table.currentSnapshot() is not None and bool(
            snapshots.isAncestorOf(self._table, snapshot_id)
        )

    def read(self) -> LakeHistory:
        """The history from the metadata files; cached by metadata file."""
        location = self._table.operations().current().metadataFileLocation()
        if self._known is None or self._known[0] != location:
            self._known = (location, _history_of(self._jvm, self._table, self._tag))
        return self._known[1]

    def _lineage(self) -> Iterator[HistoryEntry]:
        """Ancestors of main, newest first, and the tiering snapshot if expiry cut it off from main.

        Expiry can delete the snapshots between those of other writers and the tiering snapshot,
        which only the tag keeps. Earlier metadata files show the ancestry of main. If they were
        also deleted, the tagged snapshot counts if it is older than the oldest remaining ancestor.
        """
        oldest, met_tiering = None, False
        for entry in self._ancestors():
            oldest = entry
            met_tiering = met_tiering or entry.is_tiering
            yield entry
        if oldest is None or met_tiering or oldest.parent_id is None:
            return
        history = self.read()
        last = history.newest_tiering_snapshot()
        if last is None and not history.is_complete():
            tagged = history.snapshots.get(history.tagged or -1)
            last = tagged if tagged and tagged.sequence_number < oldest.sequence_number else None
        if last is not None and last.snapshot_id in history.snapshots:
            yield last

    def _ancestors(self) -> Iterator[HistoryEntry]:
        """Main's current snapshot and its ancestors, newest first, until one has expired.

        Those that were not read before are read one by one, and after some all others in one call.
        So the number of calls has a limit, however many of the newest snapshots are other writers'.
        """
        to_json = self._jvm.org.apache.iceberg.SnapshotParser.toJson
        current = self._table.currentSnapshot()
        snapshot_id = None if current is None else current.snapshotId()
        singly = 0
        while snapshot_id is not None:
            if snapshot_id not in self._entries and singly == _READ_SINGLY_MAX:
                self._entries.update(self.read().snapshots)
            elif snapshot_id not in self._entries:
                singly += 1
                if (snapshot := self._table.snapshot(snapshot_id)) is not None:
                    self._entries[snapshot_id] = _entry(json.loads(to_json(snapshot)))
            entry = self._entries.get(snapshot_id)
            if entry is None:
                return
            yield entry
            snapshot_id = entry.parent_id


def _history_of(jvm: Any, table: Any, tag: str) -> LakeHistory:
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
