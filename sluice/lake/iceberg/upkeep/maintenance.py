"""Maintains one Iceberg table beside its rounds: converts equality deletes, merges manifests.

A commit of maintenance is none of a round: it has no commit user, moves no tag, and its new files
have names that clean-up leaves alone, because no base proves that they are dead. Iceberg refuses a
conversion if a data file whose rows it marks is gone. A round that marks rows of the same files
meanwhile looks them up again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from sluice.errors import (
    LakeCommitOutcomeUnknown,
    LakeCommitRefused,
    LakeFilesChanged,
    LakeNotWritable,
    LakeTableMismatch,
)
from sluice.failpoints import failpoint
from sluice.lake.iceberg.catalog.java import (
    JavaThrew,
    JvmLost,
    ensure_callbacks,
    iterate,
    java_errors,
    java_list,
    lake_errors,
)
from sluice.lake.iceberg.catalog.loaded_table import LoadedTable
from sluice.lake.iceberg.commit.position_checks import check_positions, position_files
from sluice.lake.iceberg.commit.tagged_update import TaggedUpdate
from sluice.lake.iceberg.snapshots.live_files import delete_files_of, read_all_live_files
from sluice.lake.iceberg.snapshots.part_files import PartFiles
from sluice.lake.iceberg.snapshots.stored_files import (
    IcebergReferences,
    StoredFiles,
    folders_of,
    keeps_files,
)
from sluice.lake.iceberg.upkeep.equality_conversion import BucketConversion
from sluice.lake.iceberg.upkeep.metadata_orphans import is_shared, is_table_metadata
from sluice.lake.iceberg.upkeep.snapshot_expiry import due_snapshots
from sluice.lake.iceberg.write.split_writer import ParquetWriterFactory
from sluice.model import TablePath
from sluice.rounds.upkeep.compaction import DEFAULT_COMPACTIONS, CompactionOptions
from sluice.rounds.upkeep.conversion import (
    Conversion,
    ConversionRunner,
    ConvertedBucket,
    InTurn,
    NotConverted,
)
from sluice.rounds.upkeep.health import TableHealth
from sluice.rounds.upkeep.orphans import is_manifest, new_maintenance_id, orphans_in
from sluice.rounds.values.expiry import ExpiryRule
from sluice.rounds.values.history import MAINTENANCE_KEY
from sluice.rounds.values.lake_files import LiveFiles, PlannedCommit
from sluice.rounds.values.types import Split

_LOG = logging.getLogger(__name__)
_BUCKETS = 16
"""Buckets whose deletes one commit converts; more if more are converted at once."""
_MANIFEST_PROPERTY, _MANIFEST_BYTES = "commit.manifest.target-size-bytes", 8 << 20
"""Iceberg's table property and its default."""
_REFUSALS = {"CommitFailedException", "IllegalArgumentException"}

MakeWriters = Callable[[str, Sequence[Split]], ParquetWriterFactory]


class _Together:
    """Puts all data files into the same manifests (Java's Function)."""

    def apply(self, _file: Any) -> str:
        return ""

    class Java:
        implements = ("java.util.function.Function",)


class _IsSmall:
    """Chooses manifests of fewer bytes (Java's Predicate)."""

    def __init__(self, full_bytes: int) -> None:
        self._full_bytes = full_bytes

    def test(self, manifest: Any) -> bool:
        return int(manifest.length()) < self._full_bytes

    class Java:
        implements = ("java.util.function.Predicate",)


class LakeMaintenance:
    """``Maintenance`` of one Iceberg table. Used by one thread."""

    def __init__(
        self,
        gateway: Any,
        loaded: LoadedTable,
        parts: PartFiles,
        path: TablePath,
        writers: MakeWriters,
    ) -> None:
        """:param writers: makes the factory that knows the folders of the table's files."""
        self._gateway, self._loaded, self._parts, self._path = gateway, loaded, parts, path
        self._writers = writers
        self._uuid = str(loaded.java.operations().current().uuid() or "")

    def live_files(self) -> tuple[Sequence[Split], LiveFiles]:
        """All live files, and a split for each bucket that has some.

        Partitions are numbered: Fluss's ids of them are not known here.

        :raises LakeNotWritable: the metadata cannot be read.
        :raises LakeTableMismatch: a file has another partition spec.
        """
        with lake_errors(f"read the data files of lake table {self._path}"):
            self._loaded.refresh()
            return read_all_live_files(self._gateway, self._loaded.java, self._parts)

    def health(self, options: CompactionOptions = DEFAULT_COMPACTIONS) -> TableHealth:
        """If files have another partition spec, it says so."""
        unknown = ""
        try:
            _, live = self.live_files()
        except LakeTableMismatch as error:
            live, unknown = LiveFiles(None, {}), error.message
        useless = [int(one.recordCount()) for one in self._useless_deletes(live)]
        with lake_errors(f"read the metadata of lake table {self._path}"):
            self._loaded.renew()
            table = self._loaded.java
            operations, current = table.operations(), table.currentSnapshot()
            location = operations.current().metadataFileLocation()
            size = int(table.io().newInputFile(location).getLength()) if location else 0
            found = [] if current is None else [*iterate(current.allManifests(table.io()))]
            sizes: dict[str, list[int]] = {"DATA": [], "DELETES": []}
            for one in found:
                sizes[str(one.content().toString())].append(int(one.length()))
            full_bytes = self._full_manifest_bytes()
            return TableHealth.of(
                live,
                options=options,
                unknown=unknown,
                snapshots=int(operations.current().snapshots().size()),
                data_manifests=len(sizes["DATA"]),
                small_data_manifests=sum(size < full_bytes for size in sizes["DATA"]),
                delete_manifests=len(sizes["DELETES"]),
                manifest_bytes=sum(map(sum, sizes.values())),
                metadata_bytes=size,
                useless_equality_files=len(useless),
                useless_equality_rows=sum(useless),
                keeps_files=keeps_files(self._loaded.java),
            )

    def convert(
        self, memory_bytes: int, run: ConversionRunner | None = None, done: Conversion | None = None
    ) -> Conversion:
        """Converts all equality deletes that can be; the result says why others cannot.

        Those that rounds add meanwhile are left to the next maintenance, unless they come along.

        Memory: twice ``memory_bytes``, times the buckets that ``run`` converts at once.

        :param memory_bytes: for the keys of one bucket, and as much for its positions.
        :raises SparkJobFailed: Spark gave up a conversion.
        """
        done, run = done or Conversion(), run or InTurn()
        newest: int | None = None
        while True:
            splits, live = self.live_files()
            if done.is_given_up:
                break
            keys = {one: [k.sequence for k in live.buckets[one.bucket].keys] for one in splits}
            if newest is None:
                newest = max(chain.from_iterable(keys.values()), default=0)
            todo = [split for split in splits if min(keys[split], default=newest + 1) <= newest]
            for split in todo:
                if why := _why_not_alone(live, split):
                    done.left[_place(split)] = why
            todo = [split for split in todo if _place(split) not in done.left]
            if not todo:
                break
            count = max(_BUCKETS, run.at_once)
            self._convert(todo[:count], live, memory_bytes, run, done)
        self._remove_useless(live, done)
        done.is_complete = not (done.left or done.is_given_up)
        return done

    def _useless_deletes(self, live: LiveFiles) -> list[Any]:
        """Iceberg's objects for the equality deletes that apply to no live data file.

        Rewrites by others leave such files. PyIceberg and polars refuse the table for them, too.
        None if not all data files could be listed: then it is unknown what deletes apply to.
        """
        unusable = any(one.unusable for one in live.buckets.values())
        if live.snapshot_id is None or live.leaves_out or unusable:
            return []
        known = {one.path for bucket in live.buckets.values() for one in bucket.keys}
        read = self._gateway.jvm.org.apache.iceberg.ManifestFiles.readDeleteManifest
        found = []
        with lake_errors(f"read the delete files of lake table {self._path}"):
            current = self._loaded.java.currentSnapshot()
            if current is None or current.summary().get("total-equality-deletes") == "0":
                return []
            self._loaded.renew()  # not before: deletes of a newer snapshot are not in `live`
            for manifest in iterate(current.deleteManifests(self._loaded.java.io())):
                self._loaded.renew()
                files = read(manifest, self._loaded.java.io(), self._loaded.java.specs())
                try:
                    for one in iterate(files):
                        is_equality = one.content().toString() == "EQUALITY_DELETES"
                        if is_equality and str(one.location()) not in known:
                            found.append(one.copy())
                finally:
                    files.close()
        return found

    def _remove_useless(self, live: LiveFiles, done: Conversion) -> None:
        """Removes equality deletes that apply to nothing. If others are faster, they stay."""
        useless = self._useless_deletes(live)
        if not useless or live.snapshot_id is None:
            return
        with lake_errors(f"prepare a conversion of lake table {self._path}"):
            self._loaded.renew()
            tagged = TaggedUpdate(self._loaded.java, None, "newRowDelta")
            tagged.update.validateFromSnapshot(live.snapshot_id)
            tagged.update.validateDeletedFiles()
            for one in useless:
                tagged.update.removeDeletes(one)
            tagged.set(MAINTENANCE_KEY, new_maintenance_id(self._uuid))
        try:
            self._ask(tagged, "removal of equality deletes")
        except LakeCommitRefused:
            done.refused += 1
            return
        done.useless_removed += len(useless)
        done.commits += 1

    def merge_manifests(self) -> int:
        """Merges the manifests of data files up to the table's target size. Full ones stay.

        Manifests of deletes are merged by Iceberg itself, once there are a hundred.
        """
        write_id = new_maintenance_id(self._uuid)
        with lake_errors(f"merge manifests of lake table {self._path}"):
            ensure_callbacks(self._gateway)
            self._loaded.refresh()
            before = self._data_manifests()
            tagged = TaggedUpdate(self._loaded.java, None, "rewriteManifests")
            tagged.update.clusterBy(_Together())
            tagged.update.rewriteIf(_IsSmall(self._full_manifest_bytes()))
            tagged.set(MAINTENANCE_KEY, write_id)
        self._ask(tagged, "merge of the manifests")
        with lake_errors(f"read the manifests of lake table {self._path}"):
            self._loaded.refresh()
            return before - self._data_manifests()

    def due_snapshots(self, rule: ExpiryRule) -> int:
        with lake_errors(f"read the snapshots of lake table {self._path}"):
            self._loaded.renew()
        return due_snapshots(self._gateway, self._loaded.java, self._path, rule)

    def remove_metadata_orphans(self, before_ms: int, *, apply: bool = True) -> tuple[int, int]:
        # Files are listed before the snapshots are read: a commit in between references its own.
        with lake_errors(f"read the folders of lake table {self._path}"):
            self._loaded.refresh()
            folders = folders_of(self._loaded.java)
        stored = StoredFiles(folders, self._loaded.files)
        listed, metadata = [], []
        for one in stored:
            if is_table_metadata(one.name):
                metadata.append(one)
            listed += orphans_in([one], frozenset(), before_ms, self._uuid)
        names = {one.name for one in listed if not is_manifest(one.name)}
        references = IcebergReferences(self._gateway.jvm, self._loaded, self._path, names)
        known = references.read() | references.metadata_names
        orphans = orphans_in(listed, known, before_ms, self._uuid)
        if any(is_manifest(one.name) for one in orphans) and is_shared(
            stored, metadata, self._uuid
        ):
            orphans = [one for one in orphans if not is_manifest(one.name)]
        failed = stored.remove([one.path for one in orphans]) if apply else ()
        removed = [one for one in orphans if one.path not in failed]
        return len(removed), sum(one.size_bytes for one in removed)

    def _full_manifest_bytes(self) -> int:
        """A manifest with as many bytes gains nothing by being merged."""
        default = str(_MANIFEST_BYTES)
        return int(self._loaded.java.properties().getOrDefault(_MANIFEST_PROPERTY, default)) // 2

    def _data_manifests(self) -> int:
        current = self._loaded.java.currentSnapshot()
        return 0 if current is None else int(current.dataManifests(self._loaded.java.io()).size())

    def _convert(
        self,
        splits: Sequence[Split],
        live: LiveFiles,
        memory_bytes: int,
        run: ConversionRunner,
        done: Conversion,
    ) -> None:
        """Converts these buckets, and commits once.

        :raises LakeNotWritable: the storage refuses. What was written is deleted.
        """
        write_id = new_maintenance_id(self._uuid)
        factory = self._writers(write_id, splits)
        outcomes = run(
            [
                BucketConversion(
                    live.buckets[split.bucket], split, factory, live.as_vectors, memory_bytes
                )
                for split in splits
            ]
        )
        converted = [one for one in outcomes if isinstance(one, ConvertedBucket)]
        for split, outcome in zip(splits, outcomes, strict=True):
            if not isinstance(outcome, NotConverted):
                continue
            if outcome.storage_refuses:
                self._delete(converted, factory)
                raise LakeNotWritable(outcome.reason.text)
            done.left[_place(split)] = outcome.reason.text
        if not converted:
            return
        failpoint("maintain.convert.ready")
        try:
            self._commit(converted, live, write_id)
        except LakeCommitRefused as refused:
            nobody_was_asked = isinstance(refused, LakeFilesChanged)
            if nobody_was_asked or not self._has_landed(write_id, converted, refused):
                done.refused += 1
                self._delete(converted, factory)
                return
        failpoint("maintain.convert.after")
        done.add(converted)

    def _has_landed(
        self, write_id: str, converted: Sequence[ConvertedBucket], refused: LakeCommitRefused
    ) -> bool:
        """Whether a commit is in the table, although its answer was a conflict.

        Its snapshot may have expired; then later snapshots reference its files.

        :raises LakeCommitOutcomeUnknown: the table cannot be read.
        """
        names = {file.path.rpartition("/")[2] for one in converted for file in one.files}
        try:
            with java_errors():
                self._loaded.refresh()
                texts = [str(one.summary()) for one in iterate(self._loaded.java.snapshots())]
            if any(write_id in text for text in texts):
                return True
            known = IcebergReferences(self._gateway.jvm, self._loaded, self._path, names)
            return bool(known.read())
        except (JavaThrew, JvmLost, LakeNotWritable) as error:
            raise LakeCommitOutcomeUnknown(f"{refused.message}, and then: {error}") from error

    def _commit(self, converted: Sequence[ConvertedBucket], live: LiveFiles, write_id: str) -> None:
        files = [file for one in converted for file in one.files]
        replaced = tuple(mark for one in converted for mark in one.replaced)
        check_positions(files, PlannedCommit(live, replaced))
        named = sorted({mark.data_file for file in files for mark in file.marks})
        described = [live.descriptions[mark] for mark in replaced]
        described += [live.key_descriptions[k.path] for one in converted for k in one.keys]
        with lake_errors(f"prepare a conversion of lake table {self._path}"):
            self._loaded.renew()
            tagged = TaggedUpdate(self._loaded.java, None, "newRowDelta")
            delta = tagged.update
            delta.validateFromSnapshot(live.snapshot_id)
            delta.validateDataFilesExist(java_list(self._gateway, named))
            delta.validateDeletedFiles()
            for added in position_files(self._gateway, self._loaded.java, files):
                delta.addDeletes(added)
            for removed in delete_files_of(self._gateway, self._loaded.java, described):
                delta.removeDeletes(removed)
            tagged.set(MAINTENANCE_KEY, write_id)
        self._ask(tagged, "conversion")

    def _ask(self, tagged: TaggedUpdate, what: str) -> None:
        """Asks the catalog once.

        :raises LakeFilesChanged: nobody was asked: others have changed the files.
        :raises LakeCommitRefused: as far as the answer shows, nothing was committed.
        :raises LakeCommitOutcomeUnknown: the commit may have succeeded.
        """
        try:
            with java_errors():
                tagged.commit()
        except (JavaThrew, JvmLost) as error:
            text = f"{what} of lake table {self._path}: {error}"
            kind = error.kind if isinstance(error, JavaThrew) else ""
            if kind == "ValidationException":  # of Iceberg's checks before that
                raise LakeFilesChanged(text) from error
            if kind in _REFUSALS:
                raise LakeCommitRefused(text) from error
            raise LakeCommitOutcomeUnknown(text) from error

    def _delete(self, converted: Sequence[ConvertedBucket], factory: ParquetWriterFactory) -> None:
        """Deletes files that nothing references. Those that stay are orphans of three days."""
        for one in converted:
            for file in one.files:
                try:
                    factory.files.delete(file.path)
                except OSError as error:
                    what = "lake table %s: a file of a refused conversion stays for now: %s"
                    _LOG.warning(what, self._path, error)


def _place(split: Split) -> str:
    return "/".join((*split.partition_values, str(split.bucket.bucket)))


def _why_not_alone(live: LiveFiles, split: Split) -> str:
    """Why the equality deletes of a bucket cannot be converted without others; empty: they can."""
    for one in live.buckets[split.bucket].keys:
        if one.path not in live.key_descriptions:
            return f"{one.path} has another partition spec, so it may delete rows elsewhere, too"
    return ""
