"""Commits to one Iceberg table, on the planned base alone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sluice.errors import (
    LakeCommitOutcomeUnknown,
    LakeCommitRefused,
    LakeFilesChanged,
    LakeNotWritable,
    SluiceError,
)
from sluice.failpoints import failpoint
from sluice.lake.iceberg.catalog.java import JavaThrew, JvmLost, java_errors, lake_errors
from sluice.lake.iceberg.catalog.loaded_table import LoadedTable
from sluice.lake.iceberg.commit.fence import Fence, overtaken
from sluice.lake.iceberg.commit.new_files import NewCommit, to_iceberg_files
from sluice.lake.iceberg.commit.position_checks import check_positions
from sluice.lake.iceberg.commit.rewrite import rewrite_update
from sluice.lake.iceberg.commit.tagged_update import TaggedUpdate
from sluice.lake.iceberg.commit.update_content import fill_update
from sluice.lake.iceberg.snapshots.history import IcebergHistory
from sluice.lake.iceberg.snapshots.part_files import PartFiles
from sluice.lake.iceberg.snapshots.table_columns import TableColumns
from sluice.lake.iceberg.snapshots.tiering_note import warn_if_lost
from sluice.model import TablePath
from sluice.rounds.values.expiry import TAG
from sluice.rounds.values.lake_files import DataFile, PlannedCommit
from sluice.rounds.values.types import (
    COMMIT_USER,
    COMMIT_USER_KEY,
    WRITE_ID_KEY,
    LakePart,
    LakeSnapshot,
)

_LOG = logging.getLogger(__name__)
_COMMIT_TRIES_MAX = 10
# What Iceberg throws if a commit did not succeed, as far as the catalog's answer shows.
_REFUSALS = {
    "ValidationException",
    "CommitFailedException",
    "ForbiddenException",
    "NotAuthorizedException",
    "NoSuchTableException",
    "IllegalArgumentException",  # a check of Iceberg
}
_CHECKS = {"ValidationException", "IllegalArgumentException"}
"""What Iceberg throws if one of its checks of a commit fails."""


class TableCommits:
    """Commits to one table; used by one driver thread at a time."""

    def __init__(
        self,
        gateway: Any,
        loaded: LoadedTable,
        path: TablePath,
        history: IcebergHistory,
        columns: TableColumns,
        parts: PartFiles,
    ) -> None:
        self._gateway, self._loaded, self._path = gateway, loaded, path
        self._history, self._columns, self._parts = history, columns, parts

    def commit(
        self,
        files: Sequence[DataFile],
        base: LakeSnapshot | None,
        summary: Mapping[str, str],
        replaced: Sequence[LakePart] = (),
        positions: PlannedCommit | None = None,
    ) -> LakeSnapshot:
        """As ``LakeTable.commit``.

        :raises LakeNotWritable: a file cannot be read; nothing was committed.
        """
        if positions is not None:
            self._check_positions(files, positions)
        with lake_errors(f"read the footers of new files of lake table {self._path}"):
            self._loaded.renew()
            new = to_iceberg_files(self._gateway, self._loaded, files, self._parts.spec())
        update = NewCommit(files, new, summary, replaced, positions)
        for attempt in range(1, _COMMIT_TRIES_MAX + 1):
            try:
                self._try_to_commit(update, base)
                break
            except LakeCommitRefused as refused:
                is_newest = self._is_newest(base)
                if is_newest and positions is not None and refused.details.get("invalid"):
                    raise LakeFilesChanged(refused.message) from refused
                conflict = refused.details.get("conflict", False)
                if conflict and is_newest is False:
                    raise self._overtaken(base) from None
                # Where the catalog hides parents, the fence cannot see past a new commit.
                conflict = conflict or (self._history.is_cut and refused.details.get("invalid"))
                if attempt == _COMMIT_TRIES_MAX or not conflict or not is_newest:
                    raise
        # The commit has succeeded: later errors must not look like a refused commit.
        try:
            # the catalog's answer has the new metadata, or Iceberg reads it now
            landed = self.find(summary, base.sequence_number if base else 0)
        except SluiceError as error:
            raise self._unknown(
                f"the catalog confirmed it, but the table cannot be read: {error}"
            ) from error
        if landed is None:
            raise self._unknown(
                "the catalog confirmed it, but the table lacks it: was it rolled back?"
            )
        warn_if_lost(self._loaded.java, self._path)
        return landed

    def rewrite(
        self,
        files: Sequence[DataFile],
        base: LakeSnapshot | None,
        summary: Mapping[str, str],
        planned: PlannedCommit,
    ) -> None:
        """As ``LakeTable.rewrite``. It asks the catalog once."""
        check_positions(files, planned)
        with lake_errors(f"prepare the compaction of lake table {self._path}"):
            self._loaded.renew()
            tagged = rewrite_update(
                self._gateway, self._loaded, files, planned, summary, self._parts.spec()
            )
            tagged.validateWith(self._fence(base, None))
        failpoint("round.rewrite.ready")
        try:
            with self.commit_errors():
                tagged.commit()
        except LakeCommitRefused as refused:
            if refused.details.get("kind") == "ValidationException":  # nobody was asked
                raise LakeFilesChanged(refused.message) from refused
            raise
        self._tidy(tagged.delete_unused_manifests)

    def _check_positions(self, files: Sequence[DataFile], positions: PlannedCommit) -> None:
        try:
            check_positions(files, positions)
        except LakeFilesChanged as wrong:  # no other writer causes this
            _LOG.error("lake table %s: positions are looked up again: %s", self._path, wrong)
            raise

    def _try_to_commit(self, new: NewCommit, base: LakeSnapshot | None) -> None:
        """Makes one attempt to commit.

        :raises LakeCommitRefused: with ``conflict`` if another writer committed first, with
            ``invalid`` if one of Iceberg's checks failed.
        """
        with lake_errors(f"prepare the commit to lake table {self._path}"):
            update = self._new_update(new)
            own = {COMMIT_USER_KEY: COMMIT_USER, **self._columns.summary()}
            summary = {**new.summary, **own}
            for key, value in summary.items():
                update.set(key, value)
            update.note(summary)
            update.validateWith(self._fence(base, new.summary.get(WRITE_ID_KEY)))
        failpoint("round.lake_commit.ready")
        try:
            with self.commit_errors():
                update.commit()
        except LakeCommitRefused as refused:
            if refused.details.get("conflict") and self._is_newest(base):
                self._tidy(update.delete_manifests)
            raise
        self._tidy(update.delete_unused_manifests)

    def _tidy(self, delete: Callable[[], None]) -> None:
        """Deletes manifests that no snapshot has. If that fails, some small files stay."""
        try:
            with lake_errors(f"delete unused manifests of lake table {self._path}"):
                delete()
        except LakeNotWritable as error:
            _LOG.warning("%s", error.message)

    def _is_newest(self, base: LakeSnapshot | None) -> bool | None:
        """Whether the newest tiering snapshot is still ``base``; None if it cannot be read."""
        try:
            with lake_errors(f"read the snapshots of lake table {self._path}"):
                self._loaded.refresh()
            newest = self.find({})
        except SluiceError:
            return None
        return (newest and newest.snapshot_id) == (base and base.snapshot_id)

    def _overtaken(self, base: LakeSnapshot | None) -> LakeCommitRefused:
        base_id = base.snapshot_id if base else None
        return LakeCommitRefused(f"commit to lake table {self._path}: {overtaken(base_id)}")

    @contextmanager
    def commit_errors(self) -> Iterator[None]:
        """Turns errors of the JVM during a commit into a refusal or an unknown outcome."""
        try:
            with java_errors():
                yield
        except JavaThrew as thrown:
            if thrown.kind not in _REFUSALS:
                raise self._unknown(str(thrown)) from thrown
            raise LakeCommitRefused(
                f"commit to lake table {self._path}: {thrown}",
                conflict=thrown.kind == "CommitFailedException",
                invalid=thrown.kind in _CHECKS,
                kind=thrown.kind,
            ) from thrown
        except JvmLost as lost:
            raise self._unknown(str(lost)) from lost

    def _unknown(self, why: str) -> LakeCommitOutcomeUnknown:
        return LakeCommitOutcomeUnknown(f"commit to lake table {self._path}: {why}")

    def _fence(self, base: LakeSnapshot | None, write_id: str | None) -> Fence:
        """The fence of one commit, in the metadata that its transaction begins with.

        :raises LakeCommitRefused: the base is not the newest tiering snapshot.
        """
        newest = self.find({})
        base_id = base.snapshot_id if base else None
        if (newest.snapshot_id if newest else None) != base_id:
            raise self._overtaken(base)
        with lake_errors(f"read the snapshots of lake table {self._path}"):
            current = self._loaded.java.currentSnapshot()
            return Fence(
                base_id,
                write_id,
                no_tiering_snapshot=not self._history.is_cut
                and (base_id is None or not self._history.is_ancestor(base_id)),
                checked_id=current and current.snapshotId(),
            )

    def _new_update(self, commit: NewCommit) -> TaggedUpdate:
        """The update, in a transaction that begins with the newest metadata."""
        self._loaded.renew()
        tagged = TaggedUpdate(self._loaded.java, TAG, commit.method)
        self._check_unchanged(commit.replaced)
        fill_update(self._gateway, self._loaded.java, self._parts, tagged.update, commit)
        return tagged

    def _check_unchanged(self, replaced: Sequence[LakePart]) -> None:
        """Checks that a user saw the rows that the removal of these parts deletes.

        :raises LakeCommitRefused: other writers have changed rows since.
        """
        for seen in {part.seen_main for part in replaced if part.seen_main is not None}:
            if why := self._history.read().changed_since(seen):
                raise LakeCommitRefused(
                    f"lake table {self._path}: since you chose this repair, {why}, and its"
                    " rows would be deleted. Nothing was committed. Run"
                    f" `sluice repair {self._path}` again"
                )

    def find(self, summary: Mapping[str, str], since: int = 0) -> LakeSnapshot | None:
        """The newest tiering snapshot with these entries, in the metadata that was read last."""
        with lake_errors(f"read the snapshots of lake table {self._path}"):
            return self._history.find(summary, since)
