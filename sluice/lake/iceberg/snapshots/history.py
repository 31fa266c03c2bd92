"""The history of an Iceberg table, read from its metadata files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from sluice.lake.iceberg.catalog.java import JavaThrew, java_errors
from sluice.lake.iceberg.catalog.loaded_table import LoadedTable
from sluice.lake.iceberg.snapshots.tiering_note import is_cut, noted_id, noted_snapshot
from sluice.rounds.values.history import HistoryEntry, LakeHistory, with_expired
from sluice.rounds.values.types import LakeSnapshot

_READ_SINGLY_MAX = 32
"""Number of snapshots of main that are read one by one, before the complete metadata is read."""
_EARLIER_FILES_MAX = 1000
"""Maximum number of earlier metadata files that are read to find expired snapshots."""


class IcebergHistory:
    """The snapshots of one table, as of the last refresh of Iceberg's table object.

    The number of calls into the JVM has a limit, however long the history is.
    """

    def __init__(self, jvm: Any, loaded: LoadedTable, tag: str) -> None:
        """:param tag: the tag that keeps the newest tiering snapshot from expiry."""
        self._jvm, self._loaded, self._tag = jvm, loaded, tag
        self._known: tuple[str, LakeHistory, Iterator[list[HistoryEntry]]] | None = None
        """Of one metadata file: its history, and the earlier files that were not read yet."""
        self.is_cut = False
        """Whether the catalog hid the parents of main's oldest snapshot in the last search."""
        self._entries: dict[int, HistoryEntry] = {}
        """Snapshots that were read once. They never change, but may have expired since."""

    def find(self, summary: Mapping[str, str], since: int = 0) -> LakeSnapshot | None:
        """Newest tiering snapshot in main's ancestry whose summary contains all these entries.

        :param since: a sequence number; only newer snapshots count. 0: all of them.
        """
        main_summary: Mapping[str, str] | None = None
        for entry in self._lineage():
            if main_summary is None:  # what is yielded first is main, as far as it is known
                main_summary = entry.summary
            if since and entry.sequence_number <= since:
                return None
            if entry.is_tiering and summary.items() <= entry.summary.items():
                is_kept = self._loaded.java.snapshot(entry.snapshot_id) is not None
                if not is_kept and not self.is_cut:  # it has expired
                    self._entries.clear()
                    return self.find(summary, since)
                texts = {key: text for key, text in entry.summary.items() if key != "operation"}
                return LakeSnapshot(entry.snapshot_id, entry.sequence_number, texts, main_summary)
        return None

    def is_ancestor(self, snapshot_id: int) -> bool:
        """Whether a snapshot is main's current snapshot or one of its existing ancestors."""
        snapshots = self._jvm.org.apache.iceberg.util.SnapshotUtil
        return self._loaded.java.currentSnapshot() is not None and bool(
            snapshots.isAncestorOf(self._loaded.java, snapshot_id)
        )

    def read(self, registered_id: int | None = None) -> LakeHistory:
        """The history from the metadata files; cached by metadata file.

        Expired snapshots are looked up in earlier metadata files, as far as they are needed.

        :param registered_id: the snapshot that Fluss has registered, if it must be known how it
            descends from an ancestor of main; None: it need not be known.
        """
        metadata = self._loaded.java.operations().current()
        location = metadata.metadataFileLocation()
        known, self._known = self._known, None  # an error ends the look-up, so it begins again
        if known is None or known[0] != location:
            known = (location, *_history_of(self._jvm, self._loaded, metadata, self._tag))
        history = with_expired(known[1], known[2], registered_id)
        self._known = (location, history, known[2])
        return history

    def _lineage(self) -> Iterator[HistoryEntry]:
        """Ancestors of main, newest first, and the tiering snapshot if expiry cut it off from main.

        Expiry can delete the snapshots between those of other writers and the tiering snapshot,
        which only the tag keeps. Earlier metadata files show the ancestry of main. If they were
        also deleted, the tagged snapshot counts if it is older than the oldest remaining ancestor.
        If the catalog keeps neither history nor tags, the snapshot comes from a property of the
        table.
        """
        oldest, met_tiering = None, False
        self.is_cut = False
        for entry in self._ancestors():
            oldest = entry
            met_tiering = met_tiering or entry.is_tiering
            yield entry
        if oldest is None or met_tiering:
            return
        if oldest.parent_id is None:
            self.is_cut = is_cut(oldest)
            noted = noted_snapshot(self._loaded.java, oldest) if self.is_cut else None
            if noted is not None:
                yield noted
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
        current = self._loaded.java.currentSnapshot()
        snapshot_id = None if current is None else current.snapshotId()
        singly = 0
        while snapshot_id is not None:
            if snapshot_id not in self._entries and singly == _READ_SINGLY_MAX:
                self._entries.update(self.read().snapshots)
            elif snapshot_id not in self._entries:
                singly += 1
                if (snapshot := self._loaded.java.snapshot(snapshot_id)) is not None:
                    self._entries[snapshot_id] = entry_of(json.loads(to_json(snapshot)))
            entry = self._entries.get(snapshot_id)
            if entry is None:
                return
            yield entry
            snapshot_id = entry.parent_id


def _history_of(
    jvm: Any, loaded: LoadedTable, metadata: Any, tag: str
) -> tuple[LakeHistory, Iterator[list[HistoryEntry]]]:
    """The existing snapshots of a table, and those of each earlier metadata file, newest first.

    An earlier file is read when the iterator reaches it. One that cannot be read is skipped:
    without the right to list, a store calls a missing file forbidden.
    """
    parser = jvm.org.apache.iceberg.TableMetadataParser
    content = json.loads(parser.toJson(metadata))
    references = content.get("refs", {})
    history = LakeHistory(
        references.get("main", {}).get("snapshot-id"),
        references.get(tag, {}).get("snapshot-id"),
        {entry.snapshot_id: entry for entry in _entries(content)},
    )
    history = _with_noted(history, loaded.java)
    locations = [entry["metadata-file"] for entry in content.get("metadata-log", [])]

    def earlier() -> Iterator[list[HistoryEntry]]:
        for location in reversed(locations[-_EARLIER_FILES_MAX:]):
            with java_errors():
                loaded.renew()  # a file that ended keys cannot read would be skipped
            try:
                with java_errors():
                    old = json.loads(parser.toJson(parser.read(loaded.java.io(), location)))
            except JavaThrew:
                continue
            yield _entries(old)

    return history, earlier()


def _with_noted(history: LakeHistory, table: Any) -> LakeHistory:
    """The history with the snapshot of the table's property, where the catalog hides parents.

    The property also stands for the tag, if there is none.
    """
    oldest = history.entry(next(reversed(history.ancestors(history.main)), None))
    if oldest is None:
        return history
    noted_by = noted_id(table) if history.tagged is None else None
    if noted_by is not None and (noted_by == history.main or is_cut(oldest)):
        history = replace(history, tagged=noted_by, is_noted=True)
    if oldest.is_tiering or not is_cut(oldest):
        return history
    noted = noted_snapshot(table, oldest)
    if noted is None:
        return history
    below = replace(oldest, parent_id=noted.snapshot_id)
    return replace(
        history,
        snapshots={**history.snapshots, oldest.snapshot_id: below},
        expired={**history.expired, noted.snapshot_id: noted},
    )


def _entries(content: dict[str, Any]) -> list[HistoryEntry]:
    return [entry_of(one) for one in content.get("snapshots", [])]


def entry_of(content: dict[str, Any]) -> HistoryEntry:
    """A snapshot of a metadata file."""
    parent = content.get("parent-snapshot-id")
    return HistoryEntry(
        content["snapshot-id"],
        None if parent in (None, -1) else parent,
        content.get("sequence-number", 0),
        content.get("summary", {}),
        content.get("timestamp-ms", 0),
    )
