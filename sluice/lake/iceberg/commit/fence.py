"""The fence of lake commits: the newest tiering snapshot must be the planned base."""

from __future__ import annotations

from typing import Any

from sluice.lake.iceberg.catalog.java import iterate
from sluice.rounds.values.types import COMMIT_USER, COMMIT_USER_KEY, WRITE_ID_KEY


def is_tiering_snapshot(snapshot: Any) -> bool:
    """Whether a snapshot (an Iceberg object) is a tiering snapshot."""
    summary = snapshot.summary()  # a snapshot of Iceberg's first format may have none
    return summary is not None and summary.get(COMMIT_USER_KEY) == COMMIT_USER


def overtaken(base_id: int | None) -> str:
    """Why a commit is refused after a snapshot of another round."""
    return f"the newest tiering snapshot is no longer the planned base {base_id}"


class AlreadyCommitted(Exception):
    """An earlier attempt of this commit succeeded, but its answer was lost."""


class Fence:
    """Accepts a commit only if the newest tiering snapshot is still the planned base.

    Iceberg calls it on every attempt, with the ancestors of the snapshot that the commit follows.
    """

    def __init__(
        self,
        base_id: int | None,
        write_id: str | None,
        *,
        no_tiering_snapshot: bool,
        checked_id: int | None = None,
    ) -> None:
        """Makes a fence for one commit.

        :param base_id: the snapshot that the round was planned from; None: there was none.
        :param write_id: the write id of this commit, to recognise it in the ancestry.
        :param no_tiering_snapshot: the ancestry of main need not contain the base: the round has no
            base, or expiry cut it off from main and only the tag still references it.
        :param checked_id: a snapshot up to which the base is known to be the newest tiering
            snapshot. Its ancestors are not read again.
        """
        self._base_id = base_id
        self._write_id = write_id
        self._no_tiering_snapshot = no_tiering_snapshot
        self._checked_id = checked_id

    def validate(self, ancestors: Any) -> bool:
        """Whether Iceberg may continue with the commit.

        :raises AlreadyCommitted: an earlier attempt of this commit succeeded.
        """
        overtaken, oldest = False, None
        for snapshot in iterate(ancestors):
            oldest = snapshot
            if snapshot.snapshotId() == self._checked_id:
                return not overtaken
            if not is_tiering_snapshot(snapshot):
                continue
            if snapshot.snapshotId() == self._base_id:
                return not overtaken
            written_by = snapshot.summary().get(WRITE_ID_KEY)
            if self._write_id is not None and written_by == self._write_id:
                raise AlreadyCommitted(f"snapshot {snapshot.snapshotId()} is this commit")
            overtaken = True
        if oldest is not None and oldest.parentId() is None and oldest.sequenceNumber() > 1:
            return False  # the catalog hides its parents, and one may be another round's
        return self._no_tiering_snapshot and not overtaken

    def errorMessage(self) -> str:  # noqa: N802  (a method of the Java interface)
        return overtaken(self._base_id)

    class Java:
        implements = ("org.apache.iceberg.SnapshotAncestryValidator",)
