"""Appends Arrow data to a log table."""

from __future__ import annotations

import random as random_module
from collections.abc import Callable

import pyarrow as pa

from sluice.client.admin.admin import Admin
from sluice.client.batches.bucket_writer import BucketWriter
from sluice.client.connection.connection import Connection
from sluice.errors import InvalidTable
from sluice.formats.log.log_format import LogFormat
from sluice.model import TableInfo, TablePath
from sluice.wire import apis


class LogWriter(BucketWriter):
    """Appends rows to one log table; a ``with`` block flushes at its end.

    See :class:`BucketWriter` for the guarantees of every writer.
    """

    _API = apis.PRODUCE_LOG

    def __init__(
        self,
        connection: Connection,
        admin: Admin,
        path: TablePath,
        *,
        dynamic_partitions: bool = False,
        random: Callable[[], float] = random_module.random,
    ) -> None:
        """:param dynamic_partitions: create a partition when its first row arrives.

        :raises TableNotExist: the table does not exist.
        :raises InvalidTable: the table has a primary key.
        """
        info = admin.table_info(path)
        _check_table(info)
        self._format = LogFormat.of(info.descriptor.properties)
        super().__init__(
            connection, admin, info, dynamic_partitions=dynamic_partitions, random=random
        )

    def write(self, data: pa.Table | pa.RecordBatch) -> None:
        """Appends rows; columns are matched by name and cast where no value changes.

        The call returns before the rows are stored: see :meth:`flush`. If the rows do not fit the
        table, or a partition is missing, no row is accepted.

        :raises FlussError: the rows are not valid, or an earlier batch failed; the message names
            the column or the bucket.
        """
        self._take(data, self.info.schema, self._rows)

    def check(self, data: pa.Table | pa.RecordBatch) -> set[tuple[str, ...]]:
        """Validates rows as :meth:`write` does, without writing them.

        :returns: the partitions of the rows, which need not exist.
        :raises FlussError: the rows are not valid.
        """
        return self._check(data, self.info.schema, self._rows)

    def _rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows as they are buffered: encoded already if the log stores them row by row."""
        return self._format.rows(rows, self.info.schema)

    def _batch(self, content: pa.RecordBatch, writer_id: int, sequence: int) -> bytes:
        return self._format.encode(
            content, self.info.schema_id, writer_id=writer_id, batch_sequence=sequence
        )


def _check_table(info: TableInfo) -> None:
    if info.has_primary_key:
        raise InvalidTable(
            f"table {info.path} has a primary key: rows appended to its log would be missing from"
            " its KV store; write them with kv_writer"
        )
