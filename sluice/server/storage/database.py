"""The SQLite file: write-ahead log, every commit synced, one connection, one writer at a time."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sluice.errors import StorageError
from sluice.model import TypeRoot
from sluice.model.record_fields import fields_of

_SCHEMA = """
CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS databases (
    name TEXT PRIMARY KEY, json BLOB NOT NULL,
    created_ms INTEGER NOT NULL, modified_ms INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS tables (
    table_id INTEGER PRIMARY KEY, database TEXT NOT NULL REFERENCES databases (name),
    name TEXT NOT NULL, descriptor BLOB NOT NULL, schema_id INTEGER NOT NULL,
    created_ms INTEGER NOT NULL, modified_ms INTEGER NOT NULL,
    UNIQUE (database, name)) STRICT;
CREATE TABLE IF NOT EXISTS schemas (
    table_id INTEGER NOT NULL REFERENCES tables (table_id) ON DELETE CASCADE,
    schema_id INTEGER NOT NULL, json BLOB NOT NULL,
    PRIMARY KEY (table_id, schema_id)) STRICT;
CREATE TABLE IF NOT EXISTS partitions (
    partition_id INTEGER PRIMARY KEY,
    table_id INTEGER NOT NULL REFERENCES tables (table_id) ON DELETE CASCADE,
    name TEXT NOT NULL, UNIQUE (table_id, name)) STRICT;
CREATE TABLE IF NOT EXISTS bucket_count_epochs (
    table_id INTEGER PRIMARY KEY REFERENCES tables (table_id) ON DELETE CASCADE,
    epoch INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS partition_buckets (
    partition_id INTEGER PRIMARY KEY REFERENCES partitions (partition_id) ON DELETE CASCADE,
    bucket_count INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS auto_increment (
    table_id INTEGER NOT NULL REFERENCES tables (table_id) ON DELETE CASCADE,
    column_id INTEGER NOT NULL, reserved INTEGER NOT NULL,
    PRIMARY KEY (table_id, column_id)) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS lake_snapshots (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    table_id INTEGER NOT NULL REFERENCES tables (table_id) ON DELETE CASCADE,
    snapshot_id INTEGER NOT NULL, tiered_path TEXT NOT NULL, readable_path TEXT,
    UNIQUE (table_id, snapshot_id)) STRICT;
CREATE TABLE IF NOT EXISTS kv_snapshots (
    table_id INTEGER NOT NULL REFERENCES tables (table_id) ON DELETE CASCADE,
    partition_id INTEGER NOT NULL, bucket INTEGER NOT NULL, snapshot_id INTEGER NOT NULL,
    log_offset INTEGER NOT NULL,
    PRIMARY KEY (table_id, partition_id, bucket, snapshot_id)) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS log_ends (
    table_id INTEGER NOT NULL REFERENCES tables (table_id) ON DELETE CASCADE,
    partition_id INTEGER NOT NULL, bucket INTEGER NOT NULL,
    end_offset INTEGER NOT NULL, is_exact INTEGER NOT NULL,
    PRIMARY KEY (table_id, partition_id, bucket)) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS kv_snapshot_leases (
    lease_no INTEGER PRIMARY KEY, lease_id TEXT NOT NULL UNIQUE, head BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS kv_snapshot_lease_tables (
    lease_no INTEGER NOT NULL REFERENCES kv_snapshot_leases (lease_no) ON DELETE CASCADE,
    table_id INTEGER NOT NULL, holds BLOB NOT NULL,
    PRIMARY KEY (lease_no, table_id)) STRICT, WITHOUT ROWID;
"""

_DAMAGES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_WHAT_TO_DO = (
    "Nothing was changed, and the logs are untouched. Restore metadata.sqlite from a backup of the"
    " data directory, and delete metadata.sqlite-wal and metadata.sqlite-shm. Without it the server"
    " cannot tell which logs belong to which tables: their schemas, options, partitions, tiered"
    " offsets and leases are in it alone. With tables that have an auto-increment column, restore"
    " the whole data directory from one backup: beside newer logs, their numbers are given twice"
)


class Database:
    """The metadata file. One lock guards the connection and serializes transactions.

    With ``synchronous=FULL``, a committed transaction survives a power loss.
    """

    def __init__(self, path: Path) -> None:
        """Opens the file, and creates what it lacks; checks all pages of it first (4 s for 1 GB).

        :raises StorageError: it is damaged, or cannot be read or written; says what to do.
        """
        self._lock = threading.RLock()
        self._name = path.name
        try:
            self._connection = sqlite3.connect(
                path, isolation_level=None, check_same_thread=False, timeout=10
            )
        except sqlite3.Error as error:
            raise StorageError(f"metadata file {path}: {error}") from error
        try:
            self._prepare(path)
        except BaseException:
            self._connection.close()
            raise

    def _prepare(self, path: Path) -> None:
        try:
            [[found]] = self._connection.execute("PRAGMA quick_check(1)")
            if found != "ok":
                raise StorageError(_damage(str(path), str(found)))
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute("PRAGMA foreign_keys = ON")
            self._connection.executescript(_SCHEMA)
        except sqlite3.Error as error:
            if _is_damage(error):
                raise StorageError(_damage(str(path), str(error))) from error
            raise StorageError(f"metadata file {path}: {error}") from error

    def ensure_table(self, name: str, columns: Mapping[str, str], constraint: str = "") -> None:
        """Creates a table, or adds the columns that an earlier version did not have.

        :param columns: their types, by name. An added column is null in the rows that exist.
        :raises StorageError: the file cannot be written.
        """
        definition = ", ".join(f"{column} {kind}" for column, kind in columns.items())
        with self.transaction() as connection:
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS {name} ({definition}{constraint}) STRICT"
            )
            there = {row[1] for row in connection.execute(f"PRAGMA table_info({name})")}
            for column in columns:
                if column not in there:
                    connection.execute(f"ALTER TABLE {name} ADD COLUMN {column} {columns[column]}")

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Runs the block as one transaction, which is rolled back if the block raises.

        :raises StorageError: the file cannot be written; nothing was stored.
        """
        with self._lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
            except sqlite3.Error as error:
                raise self._error(error, "; nothing was changed") from error
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except sqlite3.Error as error:
                self._rollback()
                raise self._error(error, "; nothing was changed") from error
            except BaseException:
                self._rollback()
                raise

    def query(self, sql: str, *arguments: object) -> list[tuple[Any, ...]]:
        """Returns all rows of a SELECT."""
        with self._lock:
            try:
                return self._connection.execute(sql, arguments).fetchall()
            except sqlite3.Error as error:
                raise self._error(error) from error

    def next_values(self, counter: str, count: int = 1) -> int:
        """Reserves ``count`` numbers of a counter that never repeats one; returns the first."""
        with self.transaction() as connection:
            return next_values(connection, counter, count)

    def first_value(self, counter: str, value: int) -> tuple[int, bool]:
        """The stored value of a counter, and whether this call has stored it."""
        with self.transaction() as connection:
            stored = connection.execute(
                "INSERT OR IGNORE INTO counters (name, value) VALUES (?, ?)", (counter, value)
            )
        return self.next_value(counter), bool(stored.rowcount)

    def next_value(self, counter: str) -> int:
        """The counter's next number."""
        rows = self.query("SELECT value FROM counters WHERE name = ?", counter)
        return int(rows[0][0]) if rows else 0

    def reserve_numbers(self, table_id: int, column_id: int, count: int) -> int:
        """Reserves ``count`` numbers of an auto-increment column; returns how many were before.

        :raises StorageError: nothing was reserved; also if the table was dropped.
        """
        with self.transaction() as connection:
            ((reserved,),) = connection.execute(
                "INSERT INTO auto_increment (table_id, column_id, reserved) VALUES (?, ?, ?)"
                " ON CONFLICT (table_id, column_id)"
                " DO UPDATE SET reserved = reserved + excluded.reserved RETURNING reserved",
                (table_id, column_id, count),
            ).fetchall()
        return int(reserved) - count

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _error(self, error: sqlite3.Error, effect: str = "") -> StorageError:
        """For clients too, so without the server's folder."""
        if _is_damage(error):
            return StorageError(_damage(self._name, str(error)))
        return StorageError(f"metadata: {error}{effect}")

    def _rollback(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")


def _is_damage(error: sqlite3.Error) -> bool:
    """Whether the content of the file is wrong; not by a disk that is full or cannot be read."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGES


def _damage(where: str, reason: str) -> str:
    return f"metadata file {where} is damaged ({' '.join(reason.split())}). {_WHAT_TO_DO}"


def next_values(connection: sqlite3.Connection, counter: str, count: int = 1) -> int:
    """As :meth:`Database.next_values`, inside a transaction of the caller."""
    row = connection.execute(
        "INSERT INTO counters (name, value) VALUES (?, ?)"
        " ON CONFLICT (name) DO UPDATE SET value = value + excluded.value RETURNING value",
        (counter, count),
    ).fetchone()
    return int(row[0]) - count


def record_columns(record: type) -> dict[str, str]:
    """The columns of the described fields of a recorded class: their SQLite types, by name."""
    return {
        entry.name: "TEXT" if entry.data_type.root is TypeRoot.STRING else "INTEGER"
        for entry in fields_of(record)
    }
