"""An update of an Iceberg table that moves a tag in the same commit, and asks the catalog once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sluice.lake.iceberg.snapshots.tiering_note import PROPERTY, note_of

_LIST = re.compile(r"-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.avro$")
"""The uuid of an update, in the name of its manifest list (SnapshotProducer of Iceberg)."""
_REPLACED = "manifests-replaced"
"""In a snapshot's summary: how many manifests the update has merged or rewritten."""
Names = frozenset[str]


class TaggedUpdate:
    """One attempt to commit an update, and a tag, in one transaction.

    If the tag were moved after the commit, a driver could die in between. Snapshot expiry could
    then delete a snapshot that was not registered yet, and its rows would be copied again.

    The catalog is asked once, and the caller makes a new attempt. Iceberg's own transaction asks
    again after a conflict, and checks the update again for it. If the conflict was the lost answer
    of a commit that has landed, these checks meet that commit's files, and Iceberg deletes its
    manifests: the table could not be read any more.
    """

    def __init__(self, table: Any, tag: str | None, method: str) -> None:
        """Starts the transaction, which refreshes the table.

        :param table: Iceberg's table object.
        :param tag: moves to the new snapshot; None: no tag moves.
        :param method: the method that starts the update: ``newAppend``, ``newOverwrite``,
            ``newRowDelta`` or ``newRewrite``.
        """
        self._tag = tag
        self._transaction = table.newTransaction()
        self.update: Any = getattr(self._transaction, method)()
        self._note: Mapping[str, str] | None = None

    def note(self, summary: Mapping[str, str]) -> None:
        """Notes the new snapshot in the table's properties, too, unless the catalog keeps tags.

        :param summary: of the commit.
        """
        self._note = summary

    def set(self, key: str, value: str) -> None:
        """Sets an entry of the snapshot's summary."""
        self.update.set(key, value)

    def validateWith(self, validator: Any) -> None:  # noqa: N802  (Iceberg's own name)
        """Sets the validator, which Iceberg calls before it writes manifests."""
        self.update.validateWith(validator)

    def commit(self) -> None:
        """Asks the catalog to commit the update and the tag."""
        transaction = self._transaction
        self.update.commit()  # into the transaction: nothing is visible yet
        table = transaction.table()
        snapshot_id = table.currentSnapshot().snapshotId()
        if self._tag is not None:
            references = transaction.manageSnapshots()
            has_tag = table.refs().containsKey(self._tag)
            move = "replaceTag" if has_tag else "createTag"
            getattr(references, move)(self._tag, snapshot_id).commit()
            self._write_note(table, has_tag)
        transaction.underlyingOps().commit(
            transaction.startMetadata(), transaction.currentMetadata()
        )

    def _write_note(self, table: Any, has_tag: bool) -> None:
        if self._note is not None and not has_tag:
            uuid = str(table.operations().current().uuid() or "")
            note = note_of(table.currentSnapshot(), uuid, self._note)
            self._transaction.updateProperties().set(PROPERTY, note).commit()
        elif has_tag and table.properties().containsKey(PROPERTY):
            self._transaction.updateProperties().remove(PROPERTY).commit()

    def delete_unused_manifests(self) -> None:
        """Deletes manifests of the committed snapshot that were merged into others."""
        summary = self._transaction.table().currentSnapshot().summary()
        if summary.get(_REPLACED) == "0":  # usual, and Iceberg before 1.11 does not say
            return
        written, used, _ = self._manifests()
        self._delete([self._path(name) for name in sorted(written - used)])

    def delete_manifests(self) -> None:
        """Deletes the manifests and the list of a commit that did not land."""
        written, _, location = self._manifests()
        self._delete([*map(self._path, sorted(written)), location])

    def _manifests(self) -> tuple[Names, Names, str]:
        """The names that the update has written, those that its snapshot has, and the list's path.

        Iceberg counts an update's manifests from 0. It merges them last.
        """
        snapshot = self._transaction.table().currentSnapshot()
        location = str(snapshot.manifestListLocation())
        found = _LIST.search(location)
        if found is None:
            return frozenset(), frozenset(), location
        # one call for all of them, of which each has its path in its text
        text = str(snapshot.allManifests(self._transaction.underlyingOps().io()).toString())
        own = re.findall(rf"/({found[1]}-m(\d+)\.avro)\b", text)
        count = 1 + max((int(number) for _, number in own), default=-1)
        written = frozenset(f"{found[1]}-m{number}.avro" for number in range(count))
        return written, frozenset(name for name, _ in own), location

    def _path(self, name: str) -> str:
        return str(self._transaction.underlyingOps().metadataFileLocation(name))

    def _delete(self, paths: list[str]) -> None:
        storage = self._transaction.underlyingOps().io()
        for path in paths:
            storage.deleteFile(path)
