"""An append, overwrite or delta of an Iceberg table that moves a tag in the same commit."""

from __future__ import annotations

from typing import Any


class TaggedUpdate:
    """One attempt: a transaction of the update and the tag.

    Were the tag moved after the commit, a driver could die between the two, and snapshot expiry
    could take a snapshot that nobody had registered: its rows would be copied again. Iceberg does
    not repeat a moved tag when another writer's commit came in between; whoever commits does,
    with a new attempt.
    """

    def __init__(self, table: Any, tag: str, begin: str) -> None:
        """:param table: Iceberg's, as it was refreshed last.
        :param begin: which update: ``newAppend``, ``newOverwrite`` or ``newRowDelta``.
        """
        self._tag = tag
        self._transaction = table.newTransaction()
        self.update: Any = getattr(self._transaction, begin)()

    def set(self, key: str, value: str) -> None:
        """An entry of the snapshot's summary."""
        self.update.set(key, value)

    def validateWith(self, validator: Any) -> None:  # noqa: N802  (Iceberg's own name)
        """Iceberg asks the validator on every attempt of the commit."""
        self.update.validateWith(validator)

    def commit(self) -> None:
        self.update.commit()  # into the transaction: nothing is visible yet
        table = self._transaction.table()
        snapshot_id = table.currentSnapshot().snapshotId()
        references = self._transaction.manageSnapshots()
        if table.refs().containsKey(self._tag):
            references.replaceTag(self._tag, snapshot_id).commit()
        else:
            references.createTag(self._tag, snapshot_id).commit()
        self._transaction.commitTransaction()
