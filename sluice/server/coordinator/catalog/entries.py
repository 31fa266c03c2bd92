"""Databases and tables as the catalog has them. Immutable: each change makes a new entry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from sluice.model import Partition, TableBucket, TableInfo, bucket_count_in


@dataclass(frozen=True, slots=True)
class DatabaseEntry:
    """A database; ``json`` is its descriptor as the user gave it."""

    name: str
    json: bytes
    created_ms: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class TableEntry:
    """A table with its JSON, all its schemas by id, and its partitions by id."""

    info: TableInfo
    json: bytes
    schemas: MappingProxyType[int, bytes]
    partitions: MappingProxyType[int, Partition]
    """Each with its own bucket count."""
    bucket_count_epoch: int = 0
    """How often the table's bucket count was altered."""

    def bucket_count(self, partition_id: int | None) -> int:
        """The buckets of a partition, or of a table without partitions; 0: there is none."""
        if not self.info.is_partitioned:
            return self.info.bucket_count if partition_id is None else 0
        partition = None if partition_id is None else self.partitions.get(partition_id)
        return 0 if partition is None else bucket_count_in(self.info, partition)

    def bucket_counts(self) -> Mapping[int | None, int]:
        """The number of buckets of each partition by id; by None, of a table without partitions."""
        numbers = self.partitions if self.info.is_partitioned else (None,)
        return {number: self.bucket_count(number) for number in numbers}

    def buckets(self) -> list[TableBucket]:
        """All buckets that exist now."""
        return [
            TableBucket(self.info.table_id, partition_id, bucket)
            for partition_id, count in self.bucket_counts().items()
            for bucket in range(count)
        ]

    def has_bucket(self, partition_id: int | None, bucket: int) -> bool:
        """Whether the bucket exists now."""
        return 0 <= bucket < self.bucket_count(partition_id)

    def partition_named(self, values: Sequence[str]) -> Partition | None:
        wanted = tuple(values)
        for partition in self.partitions.values():
            if partition.values == wanted:
                return partition
        return None
