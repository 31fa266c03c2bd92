"""Reads the logs of buckets as Arrow record batches with offsets and timestamps."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from typing import Any

import pyarrow as pa

from sluice.client.admin.admin import Admin
from sluice.client.admin.schemas import TableSchemas
from sluice.client.connection.connection import Connection
from sluice.client.log.fetches import FetchedBatches, FetchRange, LogFetches
from sluice.client.log.prefetch import prefetched
from sluice.errors import CorruptRecord
from sluice.formats.log.batch import LogBatchHeader, check_crc
from sluice.formats.log.lake_values import lake_problem
from sluice.formats.log.log_format import LogFormat
from sluice.formats.types.evolution import align
from sluice.model import EARLIEST, Schema, TableBucket, TableInfo, TablePath
from sluice.rounds.values.types import LogRecords

_PREFETCHED = 1


class LogReader:
    """Reads the log of one table by bucket. Safe for use by many threads.

    The log of a primary-key table is its changelog: ``LogRecords.change_types`` has the change type
    of each row.

    Rows have the schema that the table had when the reader was created. Reading one bucket takes
    memory for about three fetches of ``fetch_max_bytes_per_bucket`` (or of one batch, if that is
    larger), plus the decoded batch. Reading many buckets takes three fetches of
    ``fetch_max_bytes``.
    """

    def __init__(
        self,
        connection: Connection,
        admin: Admin,
        path: TablePath,
        info: TableInfo | None = None,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """:param info: the table as planned, whose schema the rows get; by default the current one.

        :raises TableNotExist: the table does not exist.
        """
        self.connection, self.admin = connection, admin
        self.info = info or admin.table_info(path)
        self._log_format = LogFormat.of(self.info.descriptor.properties)
        self._fetches = LogFetches(connection, self.info, now)
        self._schemas = TableSchemas(admin, self.info)

    def read(
        self,
        bucket: TableBucket,
        start_offset: int = EARLIEST,
        stop_offset: int | None = None,
        *,
        whole_batches: bool = False,
    ) -> Iterator[LogRecords]:
        """Yields batches in offset order, empty ones included, from start to stop (exclusive).

        :param start_offset: -2 (``EARLIEST``) is the earliest offset of the log.
        :param stop_offset: by default the current end of the log. If it is beyond the end, the read
            waits for new rows.
        :param whole_batches: yield the first and the last batch complete, also if they contain
            offsets before the start or after the stop.
        :raises LogOffsetOutOfRange: the log does not have the start offset, or no longer.
        :raises CorruptRecord: a batch fails its checksum, or offsets are missing between batches.
        :raises StorageError: a remote log segment is missing or truncated, also after retries.
        :raises SchemaNotExist: a batch was written with a newer schema than this reader's.
        :raises RequestTimeOut: no data arrived for ``request_timeout_ms``.
        """
        window = {bucket: (start_offset, stop_offset)}
        with closing(self.read_many(window, whole_batches=whole_batches)) as found:
            for _, records in found:
                yield records

    def read_many(
        self,
        windows: Mapping[TableBucket, tuple[int, int | None]],
        *,
        whole_batches: bool = False,
    ) -> Generator[tuple[TableBucket, LogRecords], None, None]:
        """Reads several buckets; one request fetches all buckets with the same leader.

        Batches of one bucket arrive in offset order, batches of different buckets in any order.

        :param windows: start and stop offset of each bucket, as in :meth:`read`.
        :param whole_batches: as in :meth:`read`.
        :raises FlussError: see :meth:`read`; the error of one bucket ends the read of all buckets.
        """
        found = []
        for bucket, (start, stop) in windows.items():
            self.info.check_bucket(bucket)
            if start == EARLIEST:
                start = self._offset(bucket, "earliest")
            if stop is None:
                stop = self._offset(bucket, "latest")
            if start < stop:
                found.append(FetchRange(bucket, start, stop, offset=start))
        if not found:
            return
        name = f"sluice-fetch-{self.info.path}-{found[0].bucket}"
        fetches = prefetched(
            lambda abandoned: self._fetches.fetch(found, abandoned), _PREFETCHED, name
        )
        with closing(fetches):
            for fetched in fetches:
                for header, view in fetched.batches:
                    records = self._records(fetched, header, view, whole_batches)
                    yield fetched.window.bucket, records

    def check_for_lake(self, bucket: TableBucket, records: LogRecords) -> None:
        """Checks that the lake can hold a complete batch of a log table.

        Not for primary-key tables: only the last change of a key must fit, and a user can put it
        again.

        :raises CorruptRecord: it cannot.
        """
        if not self.info.has_primary_key and (problem := lake_problem(records.batch)):
            raise CorruptRecord.of_batch(
                f"bucket {bucket.name} of table {self.info.path}",
                records.base_offset,
                problem,
                bucket=bucket,
                next_offset=records.next_offset,
            )

    def _offset(self, bucket: TableBucket, which: Any) -> int:
        found = self.admin.list_offsets(
            self.info.path,
            [bucket.bucket],
            bucket.partition_id,
            which,
            table_id=bucket.table_id,
        )
        return found[bucket.bucket]

    # ---- on the consumer's thread ----

    def _records(
        self, fetched: FetchedBatches, header: LogBatchHeader, view: memoryview, whole: bool
    ) -> LogRecords:
        start, stop = fetched.window.start, fetched.window.stop
        try:
            check_crc(view, header)
            schema = self._schemas[header.schema_id]
            batch, kinds = self._decoded(header, view, schema)
        except CorruptRecord as error:
            where = f" (in {fetched.source})" if fetched.source else ""
            problem = str(error).removeprefix(f"log batch at offset {header.base_offset}: ")
            raise CorruptRecord.of_batch(
                self._fetches.name(fetched.window),
                header.base_offset,
                f"{problem}{where}",
                bucket=fetched.window.bucket,
                next_offset=header.next_offset,
            ) from error
        batch = align(batch, schema, self.info.schema)
        base_offset, next_offset = header.base_offset, header.next_offset
        if not whole and (base_offset < start or next_offset > stop):
            # Only if a caller's range ends within a batch.
            base_offset, next_offset = max(base_offset, start), min(next_offset, stop)
            if batch.num_rows:
                window = base_offset - header.base_offset, next_offset - base_offset
                batch = batch.slice(*window)
                kinds = None if kinds is None else kinds.slice(*window)
        return LogRecords(batch, base_offset, next_offset, header.timestamp_ms, header.size, kinds)

    def _decoded(
        self, header: LogBatchHeader, view: memoryview, schema: Schema
    ) -> tuple[pa.RecordBatch, pa.UInt8Array | None]:
        """Returns the rows of a batch and their change types.

        :raises CorruptRecord: the batch is not valid, or has change types in a log table.
        """
        batch, kinds = self._log_format.decode(view, header, schema)
        if not self.info.has_primary_key:
            if kinds is not None:
                raise CorruptRecord(
                    f"the batch at offset {header.base_offset} of a log table has change types"
                )
            return batch, None
        kinds = bytes(batch.num_rows) if kinds is None else kinds
        return batch, pa.UInt8Array.from_buffers(
            pa.uint8(), len(kinds), [None, pa.py_buffer(kinds)]
        )
