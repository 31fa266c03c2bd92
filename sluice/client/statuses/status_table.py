"""The table ``sluice.tiering_status``, in which Sluice's rounds record tiering statuses.

An Apache Fluss coordinator reports no statuses and does not store the error of a failed round. The
key of the table is the id of a lake table, so a table that is dropped and created again starts with
a new row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from sluice.client.admin.admin import Admin
from sluice.client.admin.missing_leaders import Described, tables_without_leaders
from sluice.client.connection.connection import Connection
from sluice.client.log.reader import LogReader
from sluice.client.statuses.round_table import LAYOUT as ROUND_LAYOUT
from sluice.client.statuses.round_table import RoundTable
from sluice.client.statuses.system_table import Layout, SystemTable
from sluice.config import ClientConfig
from sluice.errors import AuthorizationError, CorruptRecord, DatabaseNotExist, TableNotExist
from sluice.model import TableBucket, TableInfo, TablePath
from sluice.statuses import RecordedStatus

PATH = TablePath("sluice", "tiering_status")
KEY = "table_id"
LAYOUT = Layout(
    PATH, RecordedStatus, (KEY,), "Tiering status of lake tables, written by Sluice's rounds."
)

ROWS_MAX = 100_000
SCANNED_MAX = 1_000
DATABASES_MAX = 20
DELETED_ROWS_MAX = 100
"""Limits of one search for rows of dropped tables."""

_SMALL_BYTES = 64 * 1024


class StatusTable:
    """Reads and writes status rows on a separate connection with short time-outs.

    Safe for use by many threads. Rows are few and small, so each method needs a few requests.
    """

    def __init__(self, config: ClientConfig, sleep: Callable[[float], object] = time.sleep) -> None:
        """:param config: its ``tiering_status_timeout_ms`` is the deadline of each request.

        :param sleep: waits between retries.
        """
        self._config = replace(
            config.within(config.tiering_status_timeout_ms),
            writer_max_inflight=1,
            writer_batch_bytes=_SMALL_BYTES,
            fetch_max_bytes_per_bucket=_SMALL_BYTES,
        )
        self._connection = Connection(self._config, sleep=sleep)
        self.admin = Admin(self._connection)
        self._rows = SystemTable(self._connection, self.admin, self._config, LAYOUT)
        self.rounds = RoundTable(
            SystemTable(self._connection, self.admin, self._config, ROUND_LAYOUT)
        )

    def connect(self) -> None:
        """Connects to the coordinator and, if the table exists, to its leader.

        :raises FlussError: one of them cannot be reached, or the table has no leader.
        """
        try:
            info = self.admin.table_info(PATH)
        except (TableNotExist, DatabaseNotExist):
            return
        if not info.is_partitioned:  # else it is not Sluice's table, and the first read says so
            self._connection.connect_leader(PATH, TableBucket(info.table_id, None, 0))

    def close(self) -> None:
        """Closes the connection; running calls fail."""
        self._connection.close()

    def read(self, ids: Sequence[int]) -> dict[int, RecordedStatus]:
        """Returns the rows of these table ids; missing rows are left out.

        :raises InvalidTable: the table has another layout; the message names the column.
        """
        reader = self._rows.reader()
        if reader is None or not ids:
            return {}
        found = reader.lookup(pa.table({KEY: pa.array(ids, pa.int64())}))
        return {row.table_id: row for row in LAYOUT.records_of(found)}

    def upsert(
        self,
        rows: Sequence[Mapping[str, Any]],
        is_late: Callable[[], bool],
        needed: str | None = None,
    ) -> None:
        """Writes the given fields of rows: see :meth:`SystemTable.upsert`."""
        self._rows.upsert(rows, is_late, needed)

    def all(self) -> list[RecordedStatus]:
        """Returns all rows, up to a limit."""
        reader = self._rows.reader()
        return [] if reader is None else LAYOUT.records_of(reader.limit_scan(ROWS_MAX))

    def delete_dropped(self) -> list[RecordedStatus]:
        """Deletes rows of dropped tables, up to the limits; returns these rows."""
        reader = self._rows.reader()
        if reader is None:
            return []
        rows = LAYOUT.records_of(reader.limit_scan(SCANNED_MAX))
        # Tables are listed after the rows were read, so a table of a row existed before the list.
        seen = dropped_rows(rows, self._tables_of)[:DELETED_ROWS_MAX]
        dropped = [row for row in seen if self._is_dropped(row)]
        if dropped:
            ids = pa.array([row.table_id for row in dropped], pa.int64())
            self._rows.delete(pa.table({KEY: ids}))
        return dropped

    def without_leaders(
        self, infos: Sequence[Described], may_be_missed: bool, is_late: Callable[[], bool]
    ) -> dict[int, str]:
        """The tables without leaders: see :func:`tables_without_leaders`."""
        return tables_without_leaders(
            self._connection, infos, may_be_missed=may_be_missed, is_late=is_late
        )

    def written_ms(self, info: TableInfo, begins: Mapping[TableBucket, int]) -> list[int]:
        """Returns the write times, in epoch ms, of the batches at these offsets of another table.

        :raises SluiceError: see ``LogReader.read``.
        """
        reader = LogReader(self._connection, self.admin, info.path, info)
        windows = {bucket: (offset, offset + 1) for bucket, offset in begins.items()}
        try:
            return [records.timestamp_ms for _, records in reader.read_many(windows)]
        except CorruptRecord:  # of several buckets, Fluss completes the batch of one only
            alone = [reader.read_many({bucket: window}) for bucket, window in windows.items()]
            return [records.timestamp_ms for found in alone for _, records in found]

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
