"""An append, overwrite or row delta of an Iceberg table that moves a tag in the same commit."""

from __future__ import annotations

from typing import Any


class TaggedUpdate:
    """One attempt to commit an update and a tag in one transaction.

    If the tag were moved after the commit, a driver could die in between. Snapshot expiry could
    then delete a snapshot that was not registered yet, and its rows would be copied again. Iceberg
    does not retry moving a tag if another writer has committed in between; the caller makes a new
    attempt.
    """

    def __init__(self, table: Any, tag: str, method: str) -> None:
        """Starts the transaction, which refreshes the table.

        :param table: Iceberg's table object.
        :param method: the method that starts the update: ``newAppend``, ``newOverwrite`` or
            ``newRowDelta``.
        """
        self._tag = tag
        self._transaction = table.newTransaction()
        self.update: Any = getattr(self._transaction, method)()

    def set(self, key: str, value: str) -> None:
        """Sets an entry of the snapshot's summary."""
        self.update.set(key, value)

    def validateWith(self, validator: Any) -> None:  # noqa: N802  (Iceberg's own name)
        """Sets the validator, which Iceberg calls on every attempt of the commit."""
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
