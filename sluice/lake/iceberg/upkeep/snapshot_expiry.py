"""Expires snapshots of one Iceberg table, and deletes the files that only they reference."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from py4j.java_gateway import is_instance_of

from sluice.errors import LakeCommitRefused, LakeNotWritable, SluiceError
from sluice.failpoints import failpoint
from sluice.lake.iceberg.catalog.java import JavaThrew, JvmLost, java_errors, lake_errors
from sluice.lake.iceberg.catalog.loaded_table import LoadedTable
from sluice.lake.iceberg.snapshots.history import entry_of
from sluice.lake.iceberg.snapshots.stored_files import remove_files
from sluice.masking import mask
from sluice.model import TablePath
from sluice.rounds.values.expiry import (
    MAIN,
    NOTHING_EXPIRED,
    TAG,
    Expired,
    ExpiryRule,
    StoredSnapshots,
)
from sluice.rounds.values.expiry import Reference as Ref
from sluice.rounds.values.reasons import reason_of

_LOG = logging.getLogger(__name__)
_TRIES_MAX = 3
_FOREVER_MS = (1 << 63) - 1


def expire_snapshots(
    gateway: Any,
    loaded: LoadedTable,
    path: TablePath,
    rule: ExpiryRule,
    commit_errors: Callable[[], AbstractContextManager[None]],
) -> Expired:
    """Expires the snapshots that the rule chooses; chooses again if another writer was faster.

    :param commit_errors: turns errors of the JVM into a refusal or an unknown outcome.
    :raises LakeNotWritable: the lake cannot be read, or refuses to expire snapshots.
    :raises LakeCommitRefused: other writers were faster each time. Nothing was changed.
    :raises LakeCommitOutcomeUnknown: the snapshots may have expired. No file was deleted.
    """
    for attempt in range(1, _TRIES_MAX + 1):
        expiry = _Expiry(gateway, loaded, path, rule)
        if not expiry.going:
            return NOTHING_EXPIRED
        expiry.plan()
        try:
            with commit_errors():
                expiry.commit()
            break
        except LakeCommitRefused as refused:
            if attempt == _TRIES_MAX or not refused.details.get("conflict"):
                raise
    failpoint("round.expire.committed")
    return expiry.delete_files()


def due_snapshots(gateway: Any, table: Any, path: TablePath, rule: ExpiryRule) -> int:
    """How many snapshots the rule chooses now.

    :raises LakeNotWritable: the metadata cannot be read.
    """
    with lake_errors(f"read the snapshots of lake table {path}"):
        metadata = table.operations().refresh()
        text = gateway.jvm.org.apache.iceberg.TableMetadataParser.toJson(metadata)
    return len(rule.choose(_stored_in(json.loads(text))))


class _Expiry:
    """One attempt, in one transaction.

    Iceberg's own expiry asks the catalog again after a conflict, for the snapshots that were chosen
    before it. Here the catalog is asked once, for exactly the metadata that the rule has seen. The
    files to delete are found in the same two states of the metadata, before the commit.
    """

    def __init__(
        self, gateway: Any, loaded: LoadedTable, path: TablePath, rule: ExpiryRule
    ) -> None:
        """Starts the transaction, which refreshes the table.

        :raises LakeNotWritable: the metadata cannot be read.
        :raises LakeTableMismatch: another table has the name by now.
        """
        self._gateway, self._loaded, self._path = gateway, loaded, path
        with lake_errors(f"read the snapshots of lake table {path}"):
            loaded.renew()
            self._transaction = loaded.java.newTransaction()
            self._before = self._transaction.startMetadata()
            text = gateway.jvm.org.apache.iceberg.TableMetadataParser.toJson(self._before)
        self._stored = _stored_in(json.loads(text))
        self.going = rule.choose(self._stored)
        self._files = gateway.jvm.java.util.stream.Stream.builder()  # a Consumer of paths
        # Iceberg drops branches and tags that are too old; of the others, it must drop nothing.
        self._own_ages = {
            name: ref.max_snapshot_age_ms
            for name, ref in self._stored.references.items()
            if ref.max_snapshot_age_ms is not None and rule.keeps_reference(self._stored, name)
        }

    def plan(self) -> None:
        """Expires the snapshots in the transaction, and finds the files of them alone.

        The age of zero keeps Iceberg from expiring more than these. A branch with an age of its own
        would overrule that, so its age is lifted meanwhile.

        :raises LakeNotWritable: manifests cannot be read, or the table may not be expired.
        :raises LakeCommitRefused: Iceberg would not expire exactly these.
        """
        with lake_errors(f"expire snapshots of lake table {self._path}"):
            for name in self._own_ages:
                self._set_age(name, _FOREVER_MS)
            update = self._transaction.expireSnapshots().expireOlderThan(0)
            for snapshot_id in self.going:
                update.expireSnapshotId(snapshot_id)
            update.deleteWith(self._files)
            update.commit()  # into the transaction: nothing is visible yet
            for name, age_ms in self._own_ages.items():
                self._set_age(name, age_ms)
            self._check(self._transaction.currentMetadata())

    def commit(self) -> None:
        """Asks the catalog once.

        A REST catalog is not told which state the snapshots were chosen in: it would drop a branch
        that a user has set to one of them meanwhile. So the state is compared right before.

        :raises LakeCommitRefused: with ``conflict``: another writer was faster.
        """
        operations = self._transaction.underlyingOps()
        if operations.refresh().metadataFileLocation() != self._before.metadataFileLocation():
            raise LakeCommitRefused(
                f"lake table {self._path}: another writer was faster. No snapshot has expired",
                conflict=True,
            )
        operations.commit(self._before, self._transaction.currentMetadata())

    def delete_files(self) -> Expired:
        """Deletes the files of the expired snapshots. What stays is a note."""
        count, failed, why = 0, 0, ""
        try:
            with java_errors():
                for location in self._stored.offsets_files_of_only(self.going):
                    self._files.accept(location)
                files = self._files.build().toList()
                count = int(files.size())
                failed, why = self._delete(files)
        except (JavaThrew, JvmLost) as error:
            failed, why = _failed_of(error, count), reason_of(LakeNotWritable(str(error))).text
        note = f"{failed} of {count} files of expired lake snapshots could not be deleted: {why}"
        return Expired(len(self.going), count - failed, (note,) if why else ())

    def _delete(self, files: Any) -> tuple[int, str]:
        """Deletes Java's list of files; returns how many stay, and the first reason."""
        storage = self._storage()
        if self._is(storage, "SupportsBulkOperations") and not self._has_keys_of_folders(storage):
            storage.deleteFiles(files)
            return 0, ""
        text = str(self._gateway.jvm.java.lang.String.join("\n", files))
        paths = text.split("\n") if text else []
        failed = remove_files(paths, self._loaded.files)
        first = next(iter(failed.items()), None)
        why = "" if first is None else ": ".join(first)
        return len(failed), why and reason_of(LakeNotWritable(why)).text

    def _storage(self) -> Any:
        """Iceberg's FileIO, with keys that last, if the catalog gives some."""
        try:
            with java_errors():
                self._loaded.renew()
        except (JavaThrew, JvmLost, SluiceError) as error:
            _LOG.warning("lake table %s: keys are not renewed: %s", self._path, mask(str(error)))
        return self._loaded.java.io()

    def _has_keys_of_folders(self, storage: Any) -> bool:
        """Whether the catalog gave keys by prefix.

        Iceberg's S3FileIO deletes many objects with its keys for their bucket, and may have none.
        """
        return self._is(storage, "SupportsStorageCredentials") and not (
            storage.credentials().isEmpty()
        )

    def _is(self, storage: Any, interface: str) -> bool:
        return is_instance_of(self._gateway, storage, f"org.apache.iceberg.io.{interface}")

    def _check(self, after: Any) -> None:
        """Checks that no other snapshot goes, and that main and Sluice's tag stay where they are.

        :raises LakeCommitRefused: something else would change.
        """
        left = len(self._stored.entries) - len(self.going)
        places = {name: self._stored.of(name) for name in (MAIN, TAG)}
        found = {name: _place_of(after.ref(name)) for name in places}
        if int(after.snapshots().size()) != left or found != places:
            raise LakeCommitRefused(
                f"lake table {self._path}: Iceberg would expire other snapshots than Sluice has"
                " chosen. Nothing was changed"
            )

    def _set_age(self, branch: str, age_ms: int) -> None:
        self._transaction.manageSnapshots().setMaxSnapshotAgeMs(branch, age_ms).commit()


def _stored_in(content: dict[str, Any]) -> StoredSnapshots:
    """The snapshots, branches and tags of a metadata file."""
    entries: Sequence[Any] = [entry_of(one) for one in content.get("snapshots", [])]
    references = {
        name: Ref(
            one["snapshot-id"],
            one.get("type") == "branch",
            one.get("max-ref-age-ms"),
            one.get("max-snapshot-age-ms"),
            one.get("min-snapshots-to-keep"),
        )
        for name, one in content.get("refs", {}).items()
    }
    return StoredSnapshots(
        {entry.snapshot_id: entry for entry in entries}, references, content.get("properties", {})
    )


def _place_of(reference: Any) -> int | None:
    return None if reference is None else int(reference.snapshotId())


def _failed_of(error: JavaThrew | JvmLost, count: int) -> int:
    """How many of the files were not deleted; all of them if that is not known."""
    if isinstance(error, JavaThrew) and error.kind == "BulkDeletionFailureException":
        return count if error.java_exception is None else error.java_exception.numberFailedObjects()
    return count
