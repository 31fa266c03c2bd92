"""Table paths, partitions and buckets, and the rules for their names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from sluice.errors import InvalidDatabase, InvalidTable

_NAME = re.compile(r"[A-Za-z0-9_-]{1,200}")


@dataclass(frozen=True, order=True, slots=True)
class TablePath:
    """``database.table``."""

    database: str
    table: str

    @classmethod
    def parse(cls, text: str) -> TablePath:
        """Parses ``DATABASE.TABLE``.

        :raises InvalidTable: the text is not two names joined by a dot.
        """
        database, dot, table = text.partition(".")
        if not dot or not database or not table or "." in table:
            raise InvalidTable(f"{text!r} is not a table; write DATABASE.TABLE")
        return cls(database, table)

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"


@dataclass(frozen=True, order=True, slots=True)
class TableBucket:
    """One bucket of a table or, in a partitioned table, of a partition."""

    table_id: int
    partition_id: int | None
    bucket: int

    def __str__(self) -> str:
        partition = "" if self.partition_id is None else f"(p={self.partition_id})"
        return f"{self.table_id}{partition}:{self.bucket}"

    @property
    def name(self) -> str:
        """Its name within the table: ``BUCKET`` or ``PARTITION_ID/BUCKET``."""
        return (
            str(self.bucket) if self.partition_id is None else f"{self.partition_id}/{self.bucket}"
        )

    @classmethod
    def named(cls, table_id: int, name: str) -> TableBucket:
        """The bucket of a name.

        :raises ValueError: the text is not ``BUCKET`` or ``PARTITION_ID/BUCKET``.
        """
        partition, slash, number = name.rpartition("/")
        return cls(table_id, int(partition) if slash else None, int(number))


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition. Its ``name`` is its values in key order, joined by ``$``.

    See docs/fluss/messages.md#partition-names
    """

    partition_id: int
    values: tuple[str, ...]
    bucket_count: int | None = None
    """As named by the server; None: it names none, and the table's count holds."""

    @property
    def name(self) -> str:
        return "$".join(self.values)


class Bucketed(Protocol):
    """What has a number of buckets: a table, whose partitions may have others."""

    @property
    def bucket_count(self) -> int: ...


def bucket_count_in(table: Bucketed, partition: Partition | None) -> int:
    """The number of buckets of a partition; of the table itself, if it has no partitions.

    A partition keeps the count with which it was created. The table's is that of partitions to
    come. See docs/fluss/keys-and-buckets.md#bucket-counts-of-partitions
    """
    if partition is None or partition.bucket_count is None:
        return table.bucket_count
    return partition.bucket_count


def is_name(text: str) -> bool:
    """Whether a text has 1 to 200 letters, digits, ``_``, ``-``."""
    return _NAME.fullmatch(text) is not None


def check_database_name(name: str) -> None:
    """Checks the name of a database.

    :raises InvalidDatabase: unless 1 to 200 letters, digits, ``_``, ``-``, not ``__...``.
    """
    if not _NAME.fullmatch(name) or name.startswith("__"):
        raise InvalidDatabase(f"database name {name!r}: {_NAME_RULE}")


def check_table_name(path: TablePath) -> None:
    """Checks the name of a table.

    :raises InvalidTable: unless 1 to 200 letters, digits, ``_``, ``-``, not ``__...``.
    """
    if not _NAME.fullmatch(path.table) or path.table.startswith("__"):
        raise InvalidTable(f"table name {path.table!r}: {_NAME_RULE}")


_NAME_RULE = "use 1 to 200 letters, digits, '_' and '-', not starting with '__'"
