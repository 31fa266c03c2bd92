"""Databases, tables, schemas and partitions, stored in SQLite and read from memory."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from sqlite3 import Connection
from types import MappingProxyType

from sluice.clock import Clock
from sluice.errors import (
    BucketMaxNum,
    DatabaseAlreadyExist,
    DatabaseNotEmpty,
    DatabaseNotExist,
    InvalidDatabase,
    PartitionAlreadyExists,
    PartitionMaxNum,
    PartitionNotExists,
    SchemaNotExist,
    TableAlreadyExist,
    TableNotExist,
    TableNotPartitioned,
)
from sluice.failpoints import failpoint
from sluice.formats.types.descriptors import (
    descriptor_from_json,
    descriptor_to_json,
    schema_to_json,
)
from sluice.model import Partition, TableInfo, TablePath, bucket_count_in
from sluice.model.paths import check_database_name, check_table_name
from sluice.server.coordinator.catalog.descriptor_rules import BUCKETS_MAX, PARTITIONS_MAX
from sluice.server.coordinator.catalog.entries import DatabaseEntry, TableEntry
from sluice.server.storage.database import Database, next_values

DEFAULT_DATABASE = "fluss"
"""The database of a cluster without databases; Fluss's clients expect it."""

SYSTEM_DATABASE = "sys"
"""A database that query engines add to those of the cluster."""

AlsoStored = Callable[[Connection, TableInfo], None]
"""Stores more data in the transaction that stores a table."""


class Catalog:
    """All databases, tables and partitions. ``_lock`` serializes changes; reads need no lock.

    Entries are immutable and are replaced, so a reader sees a table either before or after a
    change.
    """

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._lock = threading.RLock()
        self._databases: dict[str, DatabaseEntry] = {}
        self._by_path: dict[TablePath, TableEntry] = {}
        self._by_id: dict[int, TableEntry] = {}
        self._load()

    # -- databases

    def databases(self) -> list[DatabaseEntry]:
        return sorted(self._databases.values(), key=lambda entry: entry.name)

    def database(self, name: str) -> DatabaseEntry:
        """Returns a database.

        :raises DatabaseNotExist: it does not exist.
        """
        entry = self._databases.get(name)
        if entry is None:
            raise DatabaseNotExist(f"database {name!r} does not exist")
        return entry

    def has_database(self, name: str) -> bool:
        return name in self._databases

    def create_database(self, name: str, descriptor: bytes, ignore_if_exists: bool) -> None:
        """Creates a database.

        :raises DatabaseAlreadyExist: it exists, and ``ignore_if_exists`` is false.
        :raises InvalidDatabase: the name is not allowed.
        """
        check_database_name(name)
        if name == SYSTEM_DATABASE:
            raise InvalidDatabase(
                f"database name {name!r} is reserved for the system tables of a cluster"
                f" ({name}.lake_tiering_status in Spark SQL): choose another name"
            )
        with self._lock:
            if name in self._databases:
                if ignore_if_exists:
                    return
                raise DatabaseAlreadyExist(f"database {name!r} already exists")
            now = self._clock.now_ms()
            entry = DatabaseEntry(name, _database_json(name, descriptor), now, now)
            with self._database.transaction() as connection:
                connection.execute(
                    "INSERT INTO databases (name, json, created_ms, modified_ms)"
                    " VALUES (?, ?, ?, ?)",
                    (name, entry.json, now, now),
                )
            self._databases[name] = entry

    def alter_database(
        self, name: str, options: Sequence[tuple[str, str | None]], comment: str | None
    ) -> bool:
        """Sets and removes custom properties of a database; returns whether anything changed.

        :param options: the new value of each; None removes it, also one that is set beside it.
        :param comment: the new one; empty: none; None: as before.
        :raises DatabaseNotExist: it does not exist.
        """
        with self._lock:
            before = self.database(name)
            content = json.loads(before.json)
            custom = dict(content.get("custom_properties") or {})
            custom |= {key: value for key, value in options if value is not None}
            for key in [key for key, value in options if value is None]:
                custom.pop(key, None)
            after = {**content, "custom_properties": custom}
            if comment is not None:
                after["comment"] = comment
            if not after.get("comment"):
                after.pop("comment", None)
            if after == content:
                return False
            text, now = json.dumps(after, separators=(",", ":")).encode(), self._clock.now_ms()
            with self._database.transaction() as connection:
                connection.execute(
                    "UPDATE databases SET json = ?, modified_ms = ? WHERE name = ?",
                    (text, now, name),
                )
            self._databases[name] = replace(before, json=text, modified_ms=now)
            return True

    def create_default_database(self) -> None:
        """Creates the default database if there is no database at all, as Fluss does at a start."""
        if not self._databases:
            self.create_database(DEFAULT_DATABASE, b"", ignore_if_exists=True)

    def drop_database(self, name: str, *, cascade: bool) -> list[TableInfo]:
        """Drops a database and, with ``cascade``, its tables; returns the dropped tables.

        :raises DatabaseNotExist: it does not exist.
        :raises DatabaseNotEmpty: it has tables, and ``cascade`` is false.
        """
        with self._lock:
            self.database(name)
            tables = [entry.info for entry in self.tables(name)]
            if tables and not cascade:
                raise DatabaseNotEmpty(
                    f"database {name!r} contains {len(tables)} tables: drop them first, or use"
                    " cascade"
                )
            with self._database.transaction() as connection:
                connection.execute("DELETE FROM tables WHERE database = ?", (name,))
                connection.execute("DELETE FROM databases WHERE name = ?", (name,))
            for info in tables:
                self._forget(info)
            del self._databases[name]
            return tables

    # -- tables

    def tables(self, database: str | None = None) -> list[TableEntry]:
        """The tables of one database, or of all, ordered by path.

        :raises DatabaseNotExist: the given database does not exist.
        """
        if database is not None:
            self.database(database)
        found = (
            entry
            for entry in list(self._by_path.values())
            if database is None or entry.info.path.database == database
        )
        return sorted(found, key=lambda entry: entry.info.path)

    def table(self, path: TablePath) -> TableEntry:
        """Returns a table.

        :raises TableNotExist: it does not exist.
        """
        entry = self._by_path.get(path)
        if entry is None:
            raise TableNotExist(f"table {path} does not exist")
        return entry

    def find(self, table_id: int) -> TableEntry | None:
        """The table with that id, or None."""
        return self._by_id.get(table_id)

    def has_partition(self, table_id: int, partition_id: int | None) -> bool:
        """Whether the table exists and, unless ``partition_id`` is None, the partition."""
        entry = self._by_id.get(table_id)
        return entry is not None and (partition_id is None or partition_id in entry.partitions)

    def has_issued_table_id(self, table_id: int) -> bool:
        """Whether the id belongs to a table, dropped or not."""
        return table_id < self._database.next_value("table_id")

    def has_issued_partition_id(self, partition_id: int) -> bool:
        """Whether the id belongs to a partition, dropped or not."""
        return partition_id < self._database.next_value("partition_id")

    def has_table(self, path: TablePath) -> bool:
        return path in self._by_path

    def schema_json(self, path: TablePath, schema_id: int | None) -> tuple[int, bytes]:
        """Returns (schema id, JSON) of a table's schema; None: of the current one.

        :raises TableNotExist, SchemaNotExist: table or schema does not exist.
        """
        entry = self.table(path)
        wanted = entry.info.schema_id if schema_id is None else schema_id
        found = entry.schemas.get(wanted)
        if found is None:
            raise SchemaNotExist(
                f"table {path} has no schema {wanted}; the newest is {entry.info.schema_id}"
            )
        return wanted, found

    def create_table(
        self,
        path: TablePath,
        complete: Callable[[], TableInfo],
        ignore_if_exists: bool,
        also: AlsoStored,
    ) -> TableInfo | None:
        """Creates a table; returns None if it exists and ``ignore_if_exists`` is set.

        ``complete`` returns the table with all fields except ids and times. It is called only for a
        new table, so that an ignored request needs no valid descriptor. ``also`` is called with the
        new table inside the transaction that stores it.
        """
        check_table_name(path)
        with self._lock:
            self.database(path.database)
            if path in self._by_path:
                if ignore_if_exists:
                    return None
                raise TableAlreadyExist(f"table {path} already exists")
            descriptor, now = complete().descriptor, self._clock.now_ms()
            content = descriptor_to_json(descriptor)
            schema = schema_to_json(descriptor.schema)
            with self._database.transaction() as connection:
                table_id = next_values(connection, "table_id")
                connection.execute(
                    "INSERT INTO tables (table_id, database, name, descriptor, schema_id,"
                    " created_ms, modified_ms) VALUES (?, ?, ?, ?, 1, ?, ?)",
                    (table_id, path.database, path.table, content, now, now),
                )
                connection.execute("INSERT INTO schemas VALUES (?, 1, ?)", (table_id, schema))
                info = TableInfo(path, table_id, 1, descriptor, now, now)
                also(connection, info)
                failpoint("server.create_table.before_commit")
            self._put(
                TableEntry(info, content, MappingProxyType({1: schema}), MappingProxyType({}))
            )
            return info

    def drop_table(self, path: TablePath) -> TableInfo:
        """Drops a table and returns it.

        :raises TableNotExist: it does not exist.
        """
        with self._lock:
            info = self.table(path).info
            with self._database.transaction() as connection:
                connection.execute("DELETE FROM tables WHERE table_id = ?", (info.table_id,))
            self._forget(info)
            return info

    def alter_table(
        self, path: TablePath, change: Callable[[TableInfo], TableInfo], also: AlsoStored
    ) -> tuple[TableInfo, TableInfo]:
        """Replaces a table's descriptor by the result of ``change``; returns (before, after).

        A changed schema gets the next schema id. A changed bucket count is that of partitions to
        come. ``also`` is called with the changed table inside the transaction that stores it.
        """
        with self._lock:
            entry = self.table(path)
            before, after = entry.info, change(entry.info)
            if after.descriptor == before.descriptor:
                return before, before
            schema_id = before.schema_id + (after.schema != before.schema)
            after = replace(after, schema_id=schema_id, modified_ms=self._clock.now_ms())
            content = descriptor_to_json(after.descriptor)
            schemas = dict(entry.schemas)
            epoch = entry.bucket_count_epoch + (after.bucket_count != before.bucket_count)
            with self._database.transaction() as connection:
                if schema_id not in schemas:
                    schemas[schema_id] = schema_to_json(after.schema)
                    connection.execute(
                        "INSERT INTO schemas VALUES (?, ?, ?)",
                        (before.table_id, schema_id, schemas[schema_id]),
                    )
                connection.execute(
                    "UPDATE tables SET descriptor = ?, schema_id = ?, modified_ms = ?"
                    " WHERE table_id = ?",
                    (content, schema_id, after.modified_ms, before.table_id),
                )
                if epoch != entry.bucket_count_epoch:
                    _keep_bucket_counts(connection, entry, epoch)
                also(connection, after)
            known = MappingProxyType(schemas)
            self._put(TableEntry(after, content, known, entry.partitions, epoch))
            return before, after

    # -- partitions

    def create_partition(
        self,
        path: TablePath,
        values: tuple[str, ...],
        ignore_if_exists: bool,
        table_id: int | None = None,
    ) -> bool:
        """Creates a partition; returns whether it is new.

        :param table_id: only of the table with this id: another one may have got its name.
        :raises TableNotExist, TableNotPartitioned: there is no such partitioned table.
        :raises PartitionAlreadyExists: it exists, and ``ignore_if_exists`` is false.
        :raises PartitionMaxNum, BucketMaxNum: the table would have too many.
        """
        with self._lock:
            entry = self.require_partitioned(path, table_id)
            if entry.partition_named(values) is not None:
                if ignore_if_exists:
                    return False
                raise PartitionAlreadyExists(
                    f"partition {'$'.join(values)} of table {path} already exists"
                )
            there, info = len(entry.partitions), entry.info
            if there >= PARTITIONS_MAX:
                raise PartitionMaxNum(
                    f"table {path} already has {there} partitions, which is the maximum"
                )
            count = info.bucket_count
            buckets = sum(entry.bucket_counts().values()) + count
            if buckets > BUCKETS_MAX:
                raise BucketMaxNum(
                    f"table {path}: {there + 1} partitions, the new one with {count} buckets, would"
                    f" have {buckets} buckets; the maximum is {BUCKETS_MAX}"
                )
            with self._database.transaction() as connection:
                partition_id = next_values(connection, "partition_id")
                connection.execute(
                    "INSERT INTO partitions VALUES (?, ?, ?)",
                    (partition_id, info.table_id, "$".join(values)),
                )
            created = Partition(partition_id, values, count)
            partitions = {**entry.partitions, partition_id: created}
            self._put(replace(entry, partitions=MappingProxyType(partitions)))
            return True

    def drop_partition(
        self,
        path: TablePath,
        values: tuple[str, ...],
        table_id: int | None = None,
        partition_id: int | None = None,
    ) -> Partition:
        """Drops a partition and returns it.

        :param table_id: only of the table with this id: another one may have got its name.
        :param partition_id: only the partition with this id, for the same reason.
        :raises TableNotExist, TableNotPartitioned: there is no such partitioned table.
        :raises PartitionNotExists: it does not exist.
        """
        with self._lock:
            entry = self.require_partitioned(path, table_id)
            partition = entry.partition_named(values)
            if partition is None:
                raise PartitionNotExists(f"table {path} has no partition {'$'.join(values)}")
            if partition_id not in (None, partition.partition_id):
                raise PartitionNotExists(
                    f"table {path} has no partition {'$'.join(values)} with the id {partition_id}"
                )
            with self._database.transaction() as connection:
                connection.execute(
                    "DELETE FROM partitions WHERE partition_id = ?", (partition.partition_id,)
                )
            partitions = dict(entry.partitions)
            del partitions[partition.partition_id]
            self._put(replace(entry, partitions=MappingProxyType(partitions)))
            return partition

    def require_partitioned(self, path: TablePath, table_id: int | None = None) -> TableEntry:
        """Returns a partitioned table.

        :param table_id: the id that it must have; None: any.
        :raises TableNotPartitioned, TableNotExist: the table is not partitioned, or does not exist.
        """
        entry = self.table(path)
        if table_id not in (None, entry.info.table_id):
            raise TableNotExist(f"table {path} with the id {table_id} does not exist")
        if not entry.info.is_partitioned:
            raise TableNotPartitioned(f"table {path} is not partitioned")
        return entry

    # -- memory

    def _load(self) -> None:
        for name, content, created, modified in self._database.query("SELECT * FROM databases"):
            self._databases[name] = DatabaseEntry(name, content, created, modified)
        schemas: dict[int, dict[int, bytes]] = {}
        for table_id, schema_id, content in self._database.query("SELECT * FROM schemas"):
            schemas.setdefault(table_id, {})[schema_id] = content
        partitions: dict[int, dict[int, Partition]] = {}
        counts = dict(self._database.query("SELECT * FROM partition_buckets"))
        for partition_id, table_id, name in self._database.query("SELECT * FROM partitions"):
            value = Partition(partition_id, tuple(name.split("$")), counts.get(partition_id))
            partitions.setdefault(table_id, {})[partition_id] = value
        epochs = dict(self._database.query("SELECT * FROM bucket_count_epochs"))
        for row in self._database.query("SELECT * FROM tables"):
            table_id, database, name, content, schema_id, created, modified = row
            path = TablePath(database, name)
            descriptor = descriptor_from_json(content)
            info = TableInfo(path, table_id, schema_id, descriptor, created, modified)
            known = {  # a partition without a stored count is newer than the table's count
                number: replace(one, bucket_count=bucket_count_in(info, one))
                for number, one in partitions.get(table_id, {}).items()
            }
            self._put(
                TableEntry(
                    info,
                    content,
                    MappingProxyType(schemas[table_id]),
                    MappingProxyType(known),
                    epochs.get(table_id, 0),
                )
            )

    def _put(self, entry: TableEntry) -> None:
        self._by_path[entry.info.path] = entry
        self._by_id[entry.info.table_id] = entry

    def _forget(self, info: TableInfo) -> None:
        self._by_path.pop(info.path, None)
        self._by_id.pop(info.table_id, None)


def _keep_bucket_counts(connection: Connection, entry: TableEntry, epoch: int) -> None:
    """Stores the bucket counts of partitions that exist, before the table gets another one."""
    connection.executemany(
        "INSERT OR IGNORE INTO partition_buckets VALUES (?, ?)",
        [(number, count) for number, count in entry.bucket_counts().items() if number is not None],
    )
    connection.execute(
        "INSERT OR REPLACE INTO bucket_count_epochs VALUES (?, ?)", (entry.info.table_id, epoch)
    )


def _database_json(name: str, descriptor: bytes) -> bytes:
    if not descriptor:
        return b'{"version":1,"custom_properties":{}}'
    try:
        content = json.loads(descriptor)
    except (ValueError, RecursionError) as error:
        raise InvalidDatabase(f"database {name!r}: its descriptor is not JSON: {error}") from error
    if not isinstance(content, dict) or content.get("version") != 1:
        raise InvalidDatabase(f"database {name!r}: its descriptor does not have version 1")
    return descriptor
