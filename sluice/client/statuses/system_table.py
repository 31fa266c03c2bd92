"""A table of the cluster in which Sluice keeps records, one column for each described field.

Such a table may come from another version of Sluice. Columns that this version does not know are
kept. Columns that the table lacks are read as null, and added by the next write.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import pyarrow as pa

from sluice.client.admin.admin import Admin
from sluice.client.connection.connection import Connection
from sluice.client.kv.reader import KvReader
from sluice.client.kv.writer import KvWriter
from sluice.config import ClientConfig
from sluice.errors import (
    AuthorizationError,
    DatabaseAlreadyExist,
    DatabaseNotExist,
    FlussError,
    InvalidTable,
    LeaderNotAvailable,
    NetworkError,
    NotLeaderOrFollower,
    RequestTimeOut,
    TableAlreadyExist,
    TableNotExist,
    UnknownTableOrBucket,
)
from sluice.formats.types.types import arrow_type
from sluice.model import Column, Schema, TableBucket, TableDescriptor, TableInfo, TablePath
from sluice.model.record_fields import RecordField, fields_of

R = TypeVar("R")
_LOG = logging.getLogger(__name__)

INFO_KEPT_S = 1.0
"""How long a description is used again: the write that follows a read saves a request."""
_LEADER_WAIT_MS = 8_000
_LOOK_EVERY_S = 0.2
_LOOKS_MAX = 10


@dataclass(frozen=True, slots=True)
class Layout(Generic[R]):
    """What a table keeps: one row for each ``record``."""

    path: TablePath
    record: type[R]
    key: tuple[str, ...]
    comment: str
    idempotent: bool = True
    """Whether a write that is sent again must be stored once, because it may undo a later one."""

    @property
    def fields(self) -> tuple[RecordField, ...]:
        return fields_of(self.record)

    @property
    def descriptor(self) -> TableDescriptor:
        """How the table is created: bucketed by the first column of its key."""
        columns = tuple(_column(entry, at) for at, entry in enumerate(self.fields))
        schema = Schema(columns, self.key, len(columns) - 1)
        return TableDescriptor(
            schema,
            bucket_keys=self.key[:1],
            bucket_count=1,  # enough for few rows: one call reads them
            comment=self.comment,
        )

    def check(self, info: TableInfo) -> None:
        """Checks the key, and the types of the columns that this version knows.

        :raises InvalidTable: names the first column that has another type, or the key.
        """
        schema = info.schema
        again = "drop or rename the table, and Sluice creates it again"
        if schema.primary_key != self.key or info.is_partitioned:
            key = ", ".join(schema.primary_key) or "none"
            raise InvalidTable(
                f"table {info.path} is not Sluice's: its primary key is {key} instead of"
                f" {', '.join(self.key)}: {again}"
            )
        for entry in self.fields:
            if entry.column not in schema.names:
                continue
            found = schema.column(entry.column).data_type
            # A key is always NOT NULL, so nullability is ignored; time precisions must match.
            if replace(found, nullable=True) != replace(entry.data_type, nullable=True):
                raise InvalidTable(
                    f"table {info.path}: column {entry.column} is {found} instead of"
                    f" {entry.data_type}: {again}"
                )

    def missing(self, info: TableInfo) -> list[RecordField]:
        """The fields for which the table has no column."""
        return [entry for entry in self.fields if entry.column not in info.schema.names]

    def columns_of(self, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        """Converts rows with the same fields to Arrow; times are epoch milliseconds."""
        known = {entry.name: entry for entry in self.fields}
        return pa.table(
            {
                known[name].column: pa.array(
                    [row[name] for row in rows], arrow_type(known[name].data_type)
                )
                for name in rows[0]
            }
        )

    def records_of(self, found: pa.Table) -> list[R]:
        """Converts Arrow to records; rows without a key are skipped, missing columns are null."""
        values: dict[str, list[Any]] = {}
        for entry in self.fields:
            if entry.column not in found.column_names:
                values[entry.name] = [None] * found.num_rows
                continue
            column = found[entry.column]
            values[entry.name] = (column.cast(pa.int64()) if entry.is_time else column).to_pylist()
        rows = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
        return [self.record(**row) for row in rows if row[self.key[0]] is not None]


class SystemTable(Generic[R]):
    """Reads and writes one such table. Safe for use by many threads."""

    def __init__(
        self, connection: Connection, admin: Admin, config: ClientConfig, layout: Layout[R]
    ) -> None:
        self._connection = connection
        self._admin = admin
        self._config = config
        self.layout = layout
        self._refused = ""  # why this user may not add columns
        self._seen: tuple[float, TableInfo] | None = None  # replaced as a whole, by any thread

    def reader(self) -> KvReader | None:
        """A reader of the table; None if the table does not exist.

        :raises InvalidTable: the table has another layout.
        """
        self._seen = None
        try:
            info = self._admin.table_info(self.layout.path)
        except (TableNotExist, DatabaseNotExist):
            return None  # nothing was recorded yet
        self.layout.check(info)
        self._seen = time.monotonic(), info
        return KvReader(self._connection, self._admin, self.layout.path, info)

    def upsert(
        self,
        rows: Sequence[Mapping[str, Any]],
        is_late: Callable[[], bool],
        needed: str | None = None,
    ) -> None:
        """Writes the given fields of rows, the same fields in each; creates the table if missing.

        A field for which the table has no column, and gets none, is left out.

        :param is_late: called before the rows are sent; returns whether the deadline has passed.
        :param needed: the field without which nothing is written.
        :raises RequestTimeOut: the deadline had passed, and nothing was written.
        :raises InvalidTable: the table has another layout; the message names the column.
        :raises LeaderNotAvailable: the new table got no leader.
        """
        info = self._ensure()
        missing = {entry.name for entry in self.layout.missing(info)}
        if needed in missing:
            raise InvalidTable(
                f"table {self.layout.path} has no column {needed}, and it was not added:"
                f" {self._refused or 'the cluster refused it'}. Nothing was written. Allow this"
                " user to alter the table"
            )
        rows = [{n: v for n, v in row.items() if n not in missing} for row in rows]
        columns = self.layout.columns_of(rows)
        with self._writer(info, columns.column_names) as writer:
            if is_late():
                raise RequestTimeOut(
                    f"table {self.layout.path}: the deadline has passed, the rows were not written"
                )
            writer.upsert(columns)
            writer.flush(self._config.retry_timeout_ms / 1000)

    def delete(self, keys: pa.Table) -> None:
        """Deletes the rows of these keys."""
        with self._writer(None, None) as writer:
            writer.delete(keys)
            writer.flush(self._config.retry_timeout_ms / 1000)

    def _writer(self, info: TableInfo | None, columns: Sequence[str] | None) -> KvWriter:
        return KvWriter(
            self._connection,
            self._admin,
            self.layout.path,
            info=info,
            target_columns=columns,
            idempotent=self.layout.idempotent,
        )

    # ---- creation ----

    def _ensure(self) -> TableInfo:
        """The table, created or with missing columns added as far as the cluster allows it."""
        path = self.layout.path
        seen = self._seen
        if seen is not None and time.monotonic() - seen[0] < INFO_KEPT_S:
            info = seen[1]
        else:
            try:
                info = self._admin.table_info(path)
            except (TableNotExist, DatabaseNotExist):
                self._create()
                info = self._admin.table_info(path)
            self.layout.check(info)
        for _ in range(2):  # another process may add some of the columns at the same time
            missing = self.layout.missing(info)
            if not missing or self._refused:
                break
            try:
                self._admin.add_columns(path, [_column(entry) for entry in missing])
            except (NetworkError, RequestTimeOut):
                raise
            except AuthorizationError as error:
                self._refused = str(error)
            except FlussError as error:
                _LOG.debug("table %s: cannot add columns: %s", path, error)
            info = self._admin.table_info(path)
        self._seen = time.monotonic(), info
        return info

    def _create(self) -> None:
        """Creates database and table, unless another process does so at the same time."""
        path = self.layout.path
        with suppress(DatabaseAlreadyExist):
            self._admin.create_database(path.database, ignore_if_exists=True)
        try:
            self._admin.create_table(path, self.layout.descriptor)
        except TableAlreadyExist:
            return
        except FlussError:
            if self._appears():
                return
            raise
        bucket = TableBucket(self._admin.table_info(path).table_id, None, 0)
        if self._is_led() or self._is_led_now(bucket):
            return
        # Fluss 0.9.1 may miss a new table, which then has no leader until the coordinator
        # restarts. Such a table is empty: drop it, and the next write creates it again.
        self._admin.drop_table(path, ignore_if_not_exists=True)
        raise LeaderNotAvailable(
            f"the cluster assigned no leader to the new table {path}: it was dropped, and the"
            " next write creates it again"
        )

    def _is_led_now(self, bucket: TableBucket) -> bool:
        """Returns whether the bucket has a leader, so that rows may have been written.

        :raises TableNotExist: the path has another table now.
        """
        try:
            self._connection.leader(self.layout.path, bucket)
        except LeaderNotAvailable:
            return False
        return True

    def _appears(self) -> bool:
        """Returns whether another process created the table.

        Fluss 0.9.1 reports an internal error to the second of two concurrent creators, and lists
        the table only a little later.
        """
        for _ in range(_LOOKS_MAX):
            if self._admin.table_exists(self.layout.path):
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
                Admin(connection).list_offsets(self.layout.path)
            except (LeaderNotAvailable, NotLeaderOrFollower, UnknownTableOrBucket):
                return False
        return True


def _column(entry: RecordField, column_id: int = -1) -> Column:
    return Column(entry.column, entry.data_type, column_id, entry.comment)
