"""The table ``sluice.tiering_status``: rows of what Sluice's own rounds write down of tiering.

It is there for a Fluss that tells no statuses and drops what a failure's report says. Its key is
the table's id alone: a table that is dropped and created again is another one, and begins anew.
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
    bucket_count=1,  # a row for each lake table: one bucket is read in one call
    comment="How the tiering of tables stands, as the rounds of Sluice write it down.",
)

SCANNED_MAX = 1_000
DATABASES_MAX = 20
DELETED_ROWS_MAX = 100
"""Bounds of one look for rows of dropped tables."""

_LEADER_WAIT_MS = 8_000
_SMALL_BYTES = 64 * 1024
_LOOK_EVERY_S = 0.2
_LOOKS_MAX = 10


class StatusTable:
    """Reads and writes rows over a connection of its own, whose calls end soon.

    Safe for use by many threads. Rows are few and small: each call is one or a few requests.
    """

    def __init__(self, config: ClientConfig) -> None:
        """:param config: ``tiering_status_timeout_ms`` is the deadline of each single call."""
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
        """Ends the connection; a call under way fails."""
        self._connection.close()

    def read(self, ids: Sequence[int]) -> dict[int, RecordedStatus]:
        """Rows by table id; without those that there are none of.

        :raises InvalidTable: the table is another one; names the column.
        """
        try:
            info = self.admin.table_info(PATH)
        except (TableNotExist, DatabaseNotExist):
            return {}  # nobody has written yet
        check_layout(info)
        if not ids:
            return {}
        keys = pa.table({KEY: pa.array(ids, pa.int64())})
        found = KvReader(self._connection, self.admin, PATH).lookup(keys)
        return {row.table_id: row for row in rows_of(found)}

    def upsert(self, rows: Sequence[Mapping[str, Any]], is_late: Callable[[], bool]) -> None:
        """Writes some columns of rows, the same of each, and makes the table if there is none.

        :param is_late: asked before they are sent: whether nobody waits for it any more.
        :raises RequestTimeOut: it was too late, and nothing was written.
        :raises InvalidTable: the table is another one; names the column.
        :raises LeaderNotAvailable: the cluster did not notice the new table.
        """
        try:
            info = self.admin.table_info(PATH)
        except (TableNotExist, DatabaseNotExist):
            self._create()
            info = self.admin.table_info(PATH)
        check_layout(info)
        with self._writer(tuple(rows[0])) as writer:
            if is_late():
                raise RequestTimeOut(f"table {PATH}: the rows came too late and were not written")
            writer.upsert(columns_of(rows))
            writer.flush(self._config.retry_timeout_ms / 1000)

    def delete_dropped(self) -> list[TablePath]:
        """Deletes rows of tables that are no more, as far as the bounds go; answers their paths."""
        try:
            check_layout(self.admin.table_info(PATH))
        except (TableNotExist, DatabaseNotExist):
            return []
        reader = KvReader(self._connection, self.admin, PATH)
        rows = rows_of(reader.limit_scan(SCANNED_MAX))
        # Looked at after the rows were read: each of them is of a table that was there before.
        seen = dropped_rows(rows, self._tables_of)[:DELETED_ROWS_MAX]
        dropped = [row for row in seen if self._is_dropped(row)]
        if dropped:
            with self._writer(None) as writer:
                writer.delete(pa.table({KEY: pa.array([r.table_id for r in dropped], pa.int64())}))
                writer.flush(self._config.retry_timeout_ms / 1000)
        return [TablePath(row.database_name or "", row.table_name or "") for row in dropped]

    def written_ms(self, info: TableInfo, begins: Mapping[TableBucket, int]) -> list[int]:
        """When the batches at these offsets of another table's logs were written, epoch ms.

        :raises SluiceError: as ``LogReader.read``.
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
        """For certain: lists lack tables that the user may not describe."""
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
        """Creates database and table; another one who does so at the same time may win."""
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
        # Fluss 0.9.1 may miss a new table, which then has no leader until its coordinator
        # starts anew. So it holds nothing yet: the next one who writes makes it again.
        self.admin.drop_table(PATH, ignore_if_not_exists=True)
        raise LeaderNotAvailable(
            f"the cluster did not notice the new table {PATH}: it was dropped, and is made"
            " again the next time"
        )

    def _is_led_now(self, bucket: TableBucket) -> bool:
        """Whether anybody may have written to it.

        :raises TableNotExist: it is another table by now.
        """
        try:
            self._connection.leader(PATH, bucket)
        except LeaderNotAvailable:
            return False
        return True

    def _appears(self) -> bool:
        """Whether somebody else makes it: Fluss 0.9.1 tells the second of two of an error of its
        own, and only a little later that the table is there.
        """
        for _ in range(_LOOKS_MAX):
            if self.admin.table_exists(PATH):
                return True
            time.sleep(_LOOK_EVERY_S)
        return False

    def _is_led(self) -> bool:
        """:raises RequestTimeOut: who should say that does not answer."""
        wait_ms = min(_LEADER_WAIT_MS, self._config.retry_timeout_ms * 3 // 4)
        patient = replace(self._config, retry_timeout_ms=wait_ms, connect_timeout_ms=wait_ms)
        with closing(Connection(patient)) as connection:
            try:
                Admin(connection).list_offsets(PATH)
            except (LeaderNotAvailable, NotLeaderOrFollower, UnknownTableOrBucket):
                return False
        return True


def check_layout(info: TableInfo) -> None:
    """Columns that a newer Sluice has added are no hindrance.

    :raises InvalidTable: names the first column that is missing or of another type, or the key.
    """
    schema = info.schema
    if schema.primary_key != (KEY,) or info.is_partitioned:
        key = ", ".join(schema.primary_key) or "none"
        raise InvalidTable(
            f"table {info.path} is not Sluice's: its primary key is {key}, not {KEY};"
            " drop it or give it another name, and it is made anew"
        )
    for name, kind in COLUMNS.items():
        found = schema.column(name).data_type if name in schema.names else None
        # A key is not null wherever the table comes from; precisions are what times are read by.
        if found is None or replace(found, nullable=True) != replace(kind, nullable=True):
            has = "has no such column" if found is None else f"has it as {found}"
            raise InvalidTable(
                f"table {info.path}: column {name} should be {kind}, and it {has}; drop the table"
                " or give it another name, and it is made anew"
            )


def columns_of(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows of the same columns as Arrow; times are epoch milliseconds there and here."""
    names = list(rows[0])
    return pa.table(
        {name: pa.array([row[name] for row in rows], arrow_type(COLUMNS[name])) for name in names}
    )


def rows_of(found: pa.Table) -> list[RecordedStatus]:
    """The rows of the table; one that is null throughout is no row."""
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
    """Rows of tables that are not listed, or that a newer one of the same path has replaced.

    :param tables_of: tables of a database; asked once for each of at most ``DATABASES_MAX``.
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
