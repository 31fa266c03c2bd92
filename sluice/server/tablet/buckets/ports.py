"""The interfaces through which the tablet reads tables and buckets from the coordinator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from sluice.formats.kv.snapshot_metadata import KvSnapshot
from sluice.model import Partition, TableBucket, TableInfo
from sluice.server.data_dir import Ids


class HostedTable(Protocol):
    """An immutable description of a table's current state."""

    @property
    def info(self) -> TableInfo: ...

    @property
    def schemas(self) -> Mapping[int, bytes]:
        """All schemas of the table, by id."""

    @property
    def partitions(self) -> Mapping[int, Partition]: ...

    @property
    def bucket_count_epoch(self) -> int:
        """How often the table's bucket count was altered."""

    def bucket_count(self, partition_id: int | None) -> int:
        """The buckets of a partition, or of a table without partitions; 0: there is none."""

    def buckets(self) -> list[TableBucket]:
        """All buckets that exist now."""

    def has_bucket(self, partition_id: int | None, bucket: int) -> bool: ...


class Tables(Ids, Protocol):
    """All tables of the cluster."""

    def find(self, table_id: int) -> HostedTable | None: ...

    def tables(self) -> Iterable[HostedTable]: ...


class Snapshots(Protocol):
    """The coordinator's registry of KV snapshots, as a tablet uses it."""

    def ids(self, bucket: TableBucket) -> list[int]:
        """The ids of a bucket's snapshots, newest first."""

    def metadata(self, bucket: TableBucket, snapshot_id: int) -> KvSnapshot:
        """A snapshot with its files. :raises KvSnapshotNotExist: it cannot be read."""

    def newest(self, bucket: TableBucket) -> KvSnapshot | None:
        """The newest snapshot of a bucket with its files, or None.

        :raises KvSnapshotNotExist: the snapshot cannot be read.
        """

    def covered(self, bucket: TableBucket) -> int:
        """The log offset of the newest snapshot; 0 if there is none."""

    def folder(self, bucket: TableBucket) -> Path:
        """The folder of the bucket's snapshots. :raises UnknownTableOrBucket: it was dropped."""

    def next_id(self, bucket: TableBucket) -> int: ...

    def exists(self, bucket: TableBucket, snapshot_id: int) -> bool: ...

    def complete(self, snapshot: KvSnapshot) -> None:
        """Registers a snapshot whose files are complete.

        :raises FlussError: as ``KvSnapshots.complete``.
        """

    def retain(self) -> None:
        """Deletes snapshots that are neither among the newest nor leased."""
