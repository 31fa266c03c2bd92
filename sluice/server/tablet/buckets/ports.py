"""The interfaces through which the tablet reads tables and buckets from the coordinator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from sluice.formats.kv.snapshot_metadata import KvSnapshot
from sluice.model import Partition, TableBucket, TableInfo


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


class Tables(Protocol):
    """All tables of the cluster."""

    def find(self, table_id: int) -> HostedTable | None: ...

    def tables(self) -> Iterable[HostedTable]: ...

    def has_issued_table_id(self, table_id: int) -> bool:
        """Whether the id belongs to a table, dropped or not."""

    def has_issued_partition_id(self, partition_id: int) -> bool: ...


class LogEnds(Protocol):
    """Where each log ended. Called by one thread at a time."""

    @property
    def found(self) -> Mapping[TableBucket, tuple[int, bool]]:
        """At the start of the server: an offset beyond all that a log has given, and whether it is
        exactly its end."""

    def begin(self) -> None:
        """Stores that logs may grow from now on, after all were opened."""

    def reserve(self, ends: Mapping[TableBucket, int]) -> None:
        """Stores that logs have given all offsets below these, and perhaps more."""

    def close(self, ends: Mapping[TableBucket, int]) -> None:
        """Stores the exact ends of logs, which grow no more."""

    def drop(self, table_id: int, partition_id: int | None) -> None:
        """Forgets a dropped table or partition."""


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


class WriterIds(Protocol):
    """Issues the ids of idempotent writers, each only once."""

    def issue(self) -> int: ...

    def is_issued(self, writer_id: int) -> bool: ...
