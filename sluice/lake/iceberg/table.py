"""Implements the LakeTable and TableFiles protocols for one Iceberg table, with its Java API."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any

from sluice.config import TieringConfig
from sluice.errors import (
    LakeCommitRefused,
    UnsupportedLakeOption,
)
from sluice.iceberg_rules.layout import Layout, PartFields
from sluice.lake.iceberg.catalog.java import lake_errors
from sluice.lake.iceberg.catalog.loaded_table import LoadedTable
from sluice.lake.iceberg.commit.table_commits import TableCommits
from sluice.lake.iceberg.snapshots.history import IcebergHistory
from sluice.lake.iceberg.snapshots.live_files import TARGET_FILE_PROPERTY, read_live_files
from sluice.lake.iceberg.snapshots.part_files import PartFiles, partition_of
from sluice.lake.iceberg.snapshots.stored_files import (
    IcebergReferences,
    StoredFiles,
    folders_of,
    keeps_files,
)
from sluice.lake.iceberg.snapshots.table_columns import TableColumns
from sluice.lake.iceberg.upkeep.maintenance import LakeMaintenance
from sluice.lake.iceberg.upkeep.snapshot_expiry import expire_snapshots
from sluice.lake.iceberg.write.split_writer import (
    BucketPlace,
    ParquetWriterFactory,
    bucket_file_prefix,
)
from sluice.lake.parquet.writer import WriteOptions
from sluice.lake.storage.file_systems import FileSystems
from sluice.lake.storage.small_files import read_file, write_file
from sluice.model import TableBucket, TableInfo, TablePath
from sluice.rounds.upkeep.orphans import StoredFile
from sluice.rounds.values.expiry import TAG, Expired, ExpiryRule
from sluice.rounds.values.history import LakeHistory
from sluice.rounds.values.lake_files import TARGET_FILE_BYTES, DataFile, LiveFiles, PlannedCommit
from sluice.rounds.values.types import (
    LakePart,
    LakeSnapshot,
    Split,
)

_DELETES_VERSION = 2
"""The first format version of Iceberg that supports delete files."""
_ROW_GROUP_PROPERTY = "write.parquet.row-group-size-bytes"
_NEW_PAGES = ("v2", "parquet_2_0")
"""The page versions of Parquet that come with DELTA encodings, as Iceberg names them."""


class IcebergTable:
    """One Iceberg table; used by one driver thread at a time.

    Its methods are those of ``LakeTable``, ``TableFiles`` and ``MaintainedTable``, which say what
    each does and raises.
    """

    def __init__(
        self,
        gateway: Any,
        loaded: LoadedTable,
        path: TablePath,
        tiering: TieringConfig,
        share_keys: Callable[[FileSystems], None],
    ) -> None:
        """:param share_keys: called before files are written on executors."""
        self._gateway, self._share_keys = gateway, share_keys
        self._jvm = gateway.jvm
        self._loaded = loaded
        self._path = path
        self._tiering = tiering
        self._history = IcebergHistory(self._jvm, loaded, TAG)
        self._parts = PartFiles(gateway, loaded, path)
        self._columns = TableColumns(gateway, loaded, path, self._parts, self._history)
        self._commits = TableCommits(
            gateway, loaded, path, self._history, self._columns, self._parts
        )
        self.location: str = loaded.java.location()
        # none in Iceberg's first format
        self.uuid: str = loaded.java.operations().current().uuid() or ""

    @property
    def layout(self) -> Layout:
        return self._columns.layout

    @property
    def part_fields(self) -> PartFields:
        """Its partition fields, as they were last compared with those of Fluss."""
        return self._parts.fields()

    def add_missing_columns(self, info: TableInfo, *, as_read: bool = False) -> Sequence[str]:
        """See ``LakeTable``.

        :raises UnsupportedLakeOption: the data file format is not Parquet, the format version has
            no deletes, or equality deletes do not support the primary key.
        """
        with lake_errors(f"read the schema of lake table {self._path}"):
            if not as_read:
                self._loaded.refresh()
            file_format = self._property("write.format.default", "parquet")
            version = self._loaded.java.operations().current().formatVersion()
        if file_format.lower() != "parquet":
            raise UnsupportedLakeOption(
                f"lake table {self._path} has write.format.default={file_format}, but Sluice writes"
                " only Parquet: set that property to parquet"
            )
        if info.has_primary_key and version < _DELETES_VERSION:
            raise UnsupportedLakeOption(
                f"lake table {self._path} has Iceberg's format version {version}, which does not"
                f" support deletes: set its property format-version to {_DELETES_VERSION}"
            )
        return self._columns.add_missing(info)

    def check_layout(self, info: TableInfo) -> None:
        self._columns.compare(info)

    def newest_tiering_snapshot(self, *, as_read: bool = False) -> LakeSnapshot | None:
        return self._commits.find({}) if as_read else self.find_tiering_snapshot({})

    def find_tiering_snapshot(
        self, summary: Mapping[str, str], since: int = 0
    ) -> LakeSnapshot | None:
        with lake_errors(f"read the snapshots of lake table {self._path}"):
            self._loaded.refresh()
        return self._commits.find(summary, since)

    def is_ancestor(self, snapshot_id: int) -> bool:
        with lake_errors(f"read the snapshots of lake table {self._path}"):
            self._loaded.refresh()
            if self._history.is_ancestor(snapshot_id):
                return True
            newest = self._history.find({})  # expiry may have cut it off from main
            return newest is not None and newest.snapshot_id == snapshot_id

    def writer_factory(self, write_id: str, splits: Sequence[Split]) -> ParquetWriterFactory:
        with lake_errors(f"plan data files of lake table {self._path}"):
            schema = self._columns.schema()
            places = self._places(splits, write_id)
            limits = self._tiering
            group_bytes = int(self._property(_ROW_GROUP_PROPERTY, str(limits.row_group_bytes)))
            options = WriteOptions(
                target_file_bytes=int(self._property(TARGET_FILE_PROPERTY, str(TARGET_FILE_BYTES))),
                compression=self._property("write.parquet.compression-codec", "zstd").lower(),
                compression_level=self._property("write.parquet.compression-level", ""),
                delta_encoding=self._property("write.parquet.page-version", "v1").lower()
                in _NEW_PAGES,
                row_group_rows=limits.row_group_rows,
                row_group_bytes=min(group_bytes, limits.row_group_bytes),  # bounds the memory
            )
        files = self._loaded.files
        self._share_keys(files)
        columns = self._columns.written(schema)
        fields = self._parts.fields()
        own = fields.fields if fields.has_own else ()
        return ParquetWriterFactory(
            json.dumps(schema), columns, places, write_id, options, files, own
        )

    def has_rows(self, partition_values: Sequence[str]) -> bool:
        with lake_errors(f"read partition {partition_values} of lake table {self._path}"):
            self._loaded.refresh()
            return self._has_rows(partition_values)

    def partitions_with_rows(
        self, partitions: Sequence[tuple[str, ...]], base: LakeSnapshot | None
    ) -> list[tuple[str, ...]]:
        with lake_errors(f"read partitions of lake table {self._path}"):
            self._loaded.refresh()
            newest = self._history.find({})
            found = [values for values in partitions if self._has_rows(values)]
        if (newest and newest.snapshot_id) != (base and base.snapshot_id):
            raise LakeCommitRefused(
                f"lake table {self._path}: the newest tiering snapshot is"
                f" {newest and newest.snapshot_id}, but the round was planned from"
                f" {base and base.snapshot_id}. Nothing was committed"
            )
        return found

    def _has_rows(self, partition_values: Sequence[str]) -> bool:
        """As :meth:`has_rows`, in the metadata that was read last."""
        scan = self._loaded.java.newScan().filter(self._parts.row_filter([tuple(partition_values)]))
        tasks = scan.planFiles()
        try:
            return bool(tasks.iterator().hasNext())
        finally:
            tasks.close()

    def live_files(self, splits: Sequence[Split]) -> LiveFiles:
        """See ``LakeTable``.

        :raises LakeTableMismatch: a file that may have their rows has another partition spec.
        """
        with lake_errors(f"read the data files of lake table {self._path}"):
            self._loaded.refresh()
            return read_live_files(self._gateway, self._loaded.java, self._parts, splits)

    def commit(
        self,
        files: Sequence[DataFile],
        base: LakeSnapshot | None,
        summary: Mapping[str, str],
        replaced: Sequence[LakePart] = (),
        positions: PlannedCommit | None = None,
    ) -> LakeSnapshot:
        return self._commits.commit(files, base, summary, replaced, positions)

    def rewrite(
        self,
        files: Sequence[DataFile],
        base: LakeSnapshot | None,
        summary: Mapping[str, str],
        planned: PlannedCommit,
    ) -> None:
        self._commits.rewrite(files, base, summary, planned)

    def tag(self, snapshot_id: int) -> None:
        with lake_errors(f"tag snapshot {snapshot_id} of lake table {self._path}"):
            self._loaded.refresh()
            newest = self._history.find({})
            if newest is not None and newest.snapshot_id != snapshot_id:
                return
            if self._loaded.java.snapshot(snapshot_id) is None:  # the catalog hides it
                return
            snapshots = self._loaded.java.manageSnapshots()
            if self._loaded.java.refs().containsKey(TAG):
                snapshots.replaceTag(TAG, snapshot_id).commit()
            else:
                snapshots.createTag(TAG, snapshot_id).commit()

    def history(self, registered_id: int | None = None) -> LakeHistory:
        with lake_errors(f"read the history of lake table {self._path}"):
            self._loaded.refresh()
            return self._history.read(registered_id)

    def expire_by(self, rule: ExpiryRule) -> Expired:
        return expire_snapshots(
            self._gateway, self._loaded, self._path, rule, self._commits.commit_errors
        )

    def set_main(self, snapshot_id: int, expected: int | None) -> None:
        with lake_errors(f"set main of lake table {self._path}"):
            self._loaded.renew()
            operations = self._loaded.java.operations()
            base = operations.refresh()
            found = base.currentSnapshot()
            target = base.snapshot(snapshot_id)
        if target is None or (found and found.snapshotId()) != expected:
            raise LakeCommitRefused(
                f"lake table {self._path} has changed: main is at snapshot"
                f" {found and found.snapshotId()}, expected {expected}, or snapshot {snapshot_id}"
                " has"
                " expired. Nothing was changed"
            )
        metadata = self._jvm.org.apache.iceberg.TableMetadata
        with self._commits.commit_errors():
            # Iceberg's methods to set a snapshot retry without a check; this is compare-and-swap.
            operations.commit(
                base, metadata.buildFrom(base).setBranchSnapshot(snapshot_id, "main").build()
            )

    def write_metadata_file(self, name: str, content: bytes) -> str:
        with lake_errors(f"find the metadata folder of lake table {self._path}"):
            location = str(self._loaded.java.operations().metadataFileLocation(name))
        write_file(location, content, self._loaded.files)
        return location

    def read_metadata_file(self, location: str, bytes_max: int) -> bytes | None:
        return read_file(location, bytes_max, self._loaded.files)

    def delete_files(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._loaded.files.delete(path)

    def maintenance(self) -> LakeMaintenance:
        return LakeMaintenance(
            self._gateway, self._loaded, self._parts, self._path, self.writer_factory
        )

    # ---- the TableFiles port, for clean-up ----

    def stored_files(self) -> Iterator[StoredFile]:
        return iter(self._stored())

    def references(self, names: Set[str]) -> IcebergReferences:
        return IcebergReferences(self._jvm, self._loaded, self._path, names)

    def keeps_files(self) -> bool:
        """Whether no file may be deleted because other tables or branches may need it."""
        return keeps_files(self._loaded.java)

    def remove(self, paths: Sequence[str]) -> dict[str, str]:
        return self._stored().remove(paths)

    def _stored(self) -> StoredFiles:
        with lake_errors(f"read the folders of lake table {self._path}"):
            self._loaded.refresh()
            folders = folders_of(self._loaded.java)
        return StoredFiles(folders, self._loaded.files)

    def _property(self, name: str, default: str) -> str:
        return str(self._loaded.java.properties().getOrDefault(name, default))

    def _places(self, splits: Sequence[Split], write_id: str) -> dict[TableBucket, BucketPlace]:
        """Where the files of each split are. The table's LocationProvider determines the folders.

        Of a table without partitions it is asked with the name alone: with an empty partition, the
        path would have an empty folder (apache/iceberg 13999). So it is where each row has a
        partition of its own.
        """
        fields, spec = self._parts.fields(), self._parts.spec()
        provider = self._loaded.java.locationProvider()
        found = {}
        for split in splits:
            partition = fields.partition(split.partition_values, split.bucket.bucket)
            name = bucket_file_prefix(split.bucket.bucket, 0, write_id)
            if partition and not fields.has_own:
                of_spec = partition_of(self._gateway, spec, partition)
                location = provider.newDataLocation(spec, of_spec, name)
            else:
                location = provider.newDataLocation(name)
            found[split.bucket] = BucketPlace(str(location).removesuffix("/" + name), partition)
        return found
