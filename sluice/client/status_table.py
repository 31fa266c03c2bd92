"""The table ``sluice.tiering_status``, in which Sluice's rounds record tiering statuses.

An Apache Fluss coordinator reports no statuses and does not store the error of a failed round. The
key of the table is the id of a lake table, so a table that is dropped and created again starts with
a new row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import fields, replace
from typing import Any

import pyarrow as pa

from sluice.client.admin import Admin
from sluice.client.connection import Connection
from sluice.client.kv_reader import KvReader
from sluice.client.kv_writer import KvWriter
from sluice.client.log_reader import LogReader
from sluice.config import ClientConfig
from sluice.errors import (
    AuthorizationError,
    DatabaseAlreadyExist,
    DatabaseNotExist,
    FlussError,
    InvalidTable,
    LeaderNotAvailable,
    NotLeaderOrFollower,
    RequestTimeOut,
    TableAlreadyExist,
    TableNotExist,
    UnknownTableOrBucket,
)
from sluice.formats.types import arrow_type
from sluice.model import (
    Column,
    DataType,
    Schema,
    TableBucket,
    TableDescriptor,
    TableInfo,
    TablePath,
)
from sluice.model import types as t
from sluice.statuses import RecordedStatus

PATH = TablePath("sluice", "tiering_status")

_LTZ = t.timestamp_ltz(3)
COLUMNS: Mapping[str, DataType] = {
    "table_id": t.BIGINT.not_null(),
    "database_name": t.STRING,
    "table_name": t.STRING,
    "coordinator_epoch": t.INT,
    "tiering_epoch": t.BIGINT,
    "claimed_time": _LTZ,
    "claimed_by": t.STRING,
    "heartbeat_time": _LTZ,
    "ended_coordinator_epoch": t.INT,
    "ended_tiering_epoch": t.BIGINT,
    "ended_time": _LTZ,
    "outcome": t.STRING,
    "last_tiered_time": _LTZ,
    "last_round_ms": t.BIGINT,
    "last_error": t.STRING,
    "last_error_time": _LTZ,
    "failures": t.INT,
    "next_attempt_time": _LTZ,
    "paused": t.BOOLEAN,
}
KEY = "table_id"
DESCRIPTOR = TableDescriptor(
    Schema(
        tuple(Column(name, kind, i) for i, (name, kind) in enumerate(COLUMNS.items())),
        (KEY,),
        len(COLUMNS) - 1,
    ),
    bucket_count=1,  # one row per lake table: one bucket is enough, read by one call
    comment="Tiering status of lake tables, written by Sluice's rounds.",
)

SCANNED_MAX = 1_000
DATABASES_MAX = 20
DELETED_ROWS_MAX = 100
"""Limits of one search for rows of dropped tables."""

_LEADER_WAIT_MS = 8_000
_SMALL_BYTES = 64 * 1024
_LOOK_EVERY_S = 0.2
_LOOKS_MAX = 10


class StatusTable:
    """Reads and writes status rows on a separate connection with short time-outs.

    Safe for use by many threads. Rows are few and small, so each method needs a few requests.
    """

    def __init__(self, config: ClientConfig) -> None:
        """:param config: its ``tiering_status_timeout_ms`` is the deadline of each request."""
        most_ms = config.tiering_status_timeout_ms
        self._config = replace(
            config,
            request_timeout_ms=min(config.request_timeout_ms, most_ms),
            retry_timeout_ms=min(config.retry_timeout_ms, most_ms),
            connect_timeout_ms=min(config.connect_timeout_ms, most_ms),
            writer_max_inflight=1,
            writer_batch_bytes=_SMALL_BYTES,
            fetch_max_bytes_per_bucket=_SMALL_BYTES,
        )
        self._connection = Connection(self._config)
        self.admin = Admin(self._connection)

    def close(self) -> None:
        """Closes the connection; running calls fail."""
        self._connection.close()

    def read(self, ids: Sequence[int]) -> dict[int, RecordedStatus]:
        """Returns the rows of these table ids; missing rows are left out.

        :raises InvalidTable: the table has another layout; the message names the column.
        """
        try:
            info = self.admin.table_info(PATH)
        except (TableNotExist, DatabaseNotExist):
            return {}  # nothing was recorded yet
        check_layout(info)
        if not ids:
            return {}
        keys = pa.table({KEY: pa.array(ids, pa.int64())})
        found = KvReader(self._connection, self.admin, PATH).lookup(keys)
        return {row.table_id: row for row in rows_of(found)}

    def upsert(self, rows: Sequence[Mapping[str, Any]], is_late: Callable[[], bool]) -> None:
        """Writes the given columns of rows, the same columns in each; creates the table if missing.

        :param is_late: called before the rows are sent; returns whether the deadline has passed.
        :raises RequestTimeOut: the deadline had passed, and nothing was written.
        :raises InvalidTable: the table has another layout; the message names the column.
        :raises LeaderNotAvailable: the new table got no leader.
        """
        try:
            info = self.admin.table_info(PATH)
        except (TableNotExist, DatabaseNotExist):
            self._create()
            info = self.admin.table_info(PATH)
        check_layout(info)
        with self._writer(tuple(rows[0])) as writer:
            if is_late():
                raise RequestTimeOut(
                    f"table {PATH}: the deadline has passed, the rows were not written"
                )
            writer.upsert(columns_of(rows))
            writer.flush(self._config.retry_timeout_ms / 1000)

    def delete_dropped(self) -> list[TablePath]:
        """Deletes rows of dropped tables, up to the limits; returns the paths of those tables."""
        try:
            check_layout(self.admin.table_info(PATH))
        except (TableNotExist, DatabaseNotExist):
            return []
        reader = KvReader(self._connection, self.admin, PATH)
        rows = rows_of(reader.limit_scan(SCANNED_MAX))
        # Tables are listed after the rows were read, so a table of a row existed before the list.
        seen = dropped_rows(rows, self._tables_of)[:DELETED_ROWS_MAX]
        dropped = [row for row in seen if self._is_dropped(row)]
        if dropped:
            with self._writer(None) as writer:
                writer.delete(pa.table({KEY: pa.array([r.table_id for r in dropped], pa.int64())}))
                writer.flush(self._config.retry_timeout_ms / 1000)
        return [TablePath(row.database_name or "", row.table_name or "") for row in dropped]

    def written_ms(self, info: TableInfo, begins: Mapping[TableBucket, int]) -> list[int]:
        """Returns the write times, in epoch ms, of the batches at these offsets of another table.

        :raises SluiceError: see ``LogReader.read``.
        """
        reader = LogReader(self._connection, self.admin, info.path, info)
        windows = {bucket: (offset, offset + 1) for bucket, offset in begins.items()}
        return [records.timestamp_ms for _, records in reader.read_many(windows)]

    def _tables_of(self, database: str) -> list[str]:
        try:
            return self.admin.list_tables(database)
        except DatabaseNotExist:
            return []

    def _is_dropped(self, row: RecordedStatus) -> bool:
        """Checks a table itself, because lists lack tables that the user may not describe."""
        path = TablePath(row.database_name or "", row.table_name or "")
        try:
            return self.admin.table_info(path).table_id != row.table_id
        except AuthorizationError:
            return False
        except (TableNotExist, DatabaseNotExist):
            return True

    def _writer(self, columns: Sequence[str] | None) -> KvWriter:
        return KvWriter(self._connection, self.admin, PATH, target_columns=columns)

    # ---- creation ----

    def _create(self) -> None:
        """Creates database and table, unless another process does so at the same time."""
        with suppress(DatabaseAlreadyExist):
            self.admin.create_database(PATH.database, ignore_if_exists=True)
        try:
            self.admin.create_table(PATH, DESCRIPTOR)
        except TableAlreadyExist:
            return
        except FlussError:
            if self._appears():
                return
            raise
        bucket = TableBucket(self.admin.table_info(PATH).table_id, None, 0)
        if self._is_led() or self._is_led_now(bucket):
            return
        # Fluss 0.9.1 may miss a new table, which then has no leader until the coordinator
        # restarts. Such a table is empty: drop it, and the next write creates it again.
        self.admin.drop_table(PATH, ignore_if_not_exists=True)
        raise LeaderNotAvailable(
            f"the cluster assigned no leader to the new table {PATH}: it was dropped, and the"
            " next write creates it again"
        )

    def _is_led_now(self, bucket: TableBucket) -> bool:
        """Returns whether the bucket has a leader, so that rows may have been written.

        :raises TableNotExist: the path has another table now.
        """
        try:
            self._connection.leader(PATH, bucket)
        except LeaderNotAvailable:
            return False
        return True

    def _appears(self) -> bool:
        """Returns whether another process created the table.

        Fluss 0.9.1 reports an internal error to the second of two concurrent creators, and lists
        the table only a little later.
        """
        for _ in range(_LOOKS_MAX):
            if self.admin.table_exists(PATH):
                return True
            time.sleep(_LOOK_EVERY_S)
        return False

    def _is_led(self) -> bool:
        """Waits a short time for a leader; returns whether the table has one.

        :raises RequestTimeOut: the cluster does not respond.
        """
        wait_ms = min(_LEADER_WAIT_MS, self._config.retry_timeout_ms * 3 // 4)
        patient = replace(self._config, retry_timeout_ms=wait_ms, connect_timeout_ms=wait_ms)
        with closing(Connection(patient)) as connection:
            try:
                Admin(connection).list_offsets(PATH)
            except (LeaderNotAvailable, NotLeaderOrFollower, UnknownTableOrBucket):
                return False
        return True


def check_layout(info: TableInfo) -> None:
    """Checks key and columns of the status table; columns of a newer Sluice are accepted.

    :raises InvalidTable: names the first column that is missing or has another type, or the key.
    """
    schema = info.schema
    if schema.primary_key != (KEY,) or info.is_partitioned:
        key = ", ".join(schema.primary_key) or "none"
        raise InvalidTable(
            f"table {info.path} is not Sluice's status table: its primary key is {key} instead of"
            f" {KEY}: drop or rename it, and Sluice creates it again"
        )
    for name, kind in COLUMNS.items():
        found = schema.column(name).data_type if name in schema.names else None
        # A key is always NOT NULL, so nullability is ignored; time precisions must match.
        if found is None or replace(found, nullable=True) != replace(kind, nullable=True):
            has = f"({kind}) is missing" if found is None else f"is {found} instead of {kind}"
            raise InvalidTable(
                f"table {info.path}: column {name} {has}: drop or rename the"
                " table, and Sluice creates it again"
            )


def columns_of(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Converts rows with the same columns to Arrow; times are epoch milliseconds."""
    names = list(rows[0])
    return pa.table(
        {name: pa.array([row[name] for row in rows], arrow_type(COLUMNS[name])) for name in names}
    )


def rows_of(found: pa.Table) -> list[RecordedStatus]:
    """Converts Arrow to status rows; rows without a key are skipped."""
    values: dict[str, list[Any]] = {}
    for field in fields(RecordedStatus):
        column = found[field.name]
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        values[field.name] = column.to_pylist()
    rows = zip(*values.values(), strict=True)
    return [
        RecordedStatus(**dict(zip(values, row, strict=True))) for row in rows if row[0] is not None
    ]


def dropped_rows(
    rows: Iterable[RecordedStatus], tables_of: Callable[[str], Sequence[str]]
) -> list[RecordedStatus]:
    """Returns the rows of tables that are not listed, or replaced by a newer table of that path.

    :param tables_of: lists the tables of a database; called at most ``DATABASES_MAX`` times.
    """
    rows = [row for row in rows if row.database_name is not None]
    newest: dict[tuple[str | None, str | None], int] = {}
    for row in rows:
        path = (row.database_name, row.table_name)
        newest[path] = max(newest.get(path, row.table_id), row.table_id)
    databases = sorted({row.database_name or "" for row in rows})[:DATABASES_MAX]
    there = {(name, table) for name in databases for table in tables_of(name)}
    return [
        row
        for row in rows
        if row.table_id < newest[row.database_name, row.table_name]
        or (row.database_name in databases and (row.database_name, row.table_name) not in there)
    ]
