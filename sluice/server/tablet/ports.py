"""What the tablet asks of the coordinator's side: which tables and buckets there are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from sluice.model import Partition, TableInfo


class HostedTable(Protocol):
    """A table as it is now; immutable."""

    @property
    def info(self) -> TableInfo: ...

    @property
    def schemas(self) -> Mapping[int, bytes]:
        """Every schema id that the table has had."""

    @property
    def partitions(self) -> Mapping[int, Partition]: ...

    def has_bucket(self, partition_id: int | None, bucket: int) -> bool: ...


class Tables(Protocol):
    """All tables of the cluster."""

    def find(self, table_id: int) -> HostedTable | None: ...

    def tables(self) -> Iterable[HostedTable]: ...

    def has_issued_table_id(self, table_id: int) -> bool:
        """Whether a table has, or had before it was dropped, that id."""

    def has_issued_partition_id(self, partition_id: int) -> bool: ...


class WriterIds(Protocol):
    """Hands out the ids of idempotent writers, each once for ever."""

    def issue(self) -> int: ...

    def is_issued(self, writer_id: int) -> bool: ...
