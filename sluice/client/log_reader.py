"""Reads the log of a bucket as Arrow record batches with offsets and timestamps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from typing import Any

from sluice.client.admin import Admin
from sluice.client.connection import Connection
from sluice.client.log_fetches import Fetched, LogFetches, Window
from sluice.client.prefetch import prefetched
from sluice.errors import CorruptRecord, InvalidTable, SchemaNotExist, TableNotExist
from sluice.formats.evolution import align
from sluice.formats.log_batch import LogBatchHeader, check_crc, decode_log_batch
from sluice.formats.types import arrow_schema
from sluice.model import EARLIEST, Schema, TableBucket, TableInfo, TablePath
from sluice.rounds.types import LogRecords

_PREFETCHED = 1


class LogReader:
    """Reads the log of one log table, a bucket at a time. Safe for use by many threads.

    Rows come in the schema that the table had when the reader was made. Memory of a read is about
    three fetches of ``fetch_max_bytes_per_bucket`` (or of one batch, if that is larger), plus the
    decoded batch; of a read of many buckets, three fetches of ``fetch_max_bytes``.
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
        """:param info: the table as it was planned with, where it must not be asked for anew.

        :raises TableNotExist: :raises InvalidTable: for a table with a primary key.
        """
        self._admin = admin
        self.info = info or admin.table_info(path)
        if self.info.has_primary_key:
            raise InvalidTable(
                f"table {path} has a primary key: its log is a changelog, not rows to read as such"
            )
        self._fetches = LogFetches(connection, self.info, now)
        self._lock = threading.Lock()  # guards _schemas
        self._schemas: dict[int, Schema] = {self.info.schema_id: self.info.schema}

    def read(
        self, bucket: TableBucket, start_offset: int = EARLIEST, stop_offset: int | None = None
    ) -> Iterator[LogRecords]:
        """Batches in offset order, empty ones included, from start to below stop.

        :param start_offset: -2 is the earliest there is.
        :param stop_offset: exclusive; by default the end of the log as it is now. Where it lies
            ahead of the log, rows are awaited.
        :raises LogOffsetOutOfRange: the log does not hold the start offset (any more).
        :raises CorruptRecord: a batch fails its checksum, or offsets are missing in between.
        :raises StorageError: a remote log segment is gone or cut, and stays so.
        :raises SchemaNotExist: a batch is newer than the schema that this reader reads in.
        :raises RequestTimeOut: nothing came for the time of one call.
        """
        with closing(self.read_many({bucket: (start_offset, stop_offset)})) as found:
            for _, records in found:
                yield records

    def read_many(
        self, windows: Mapping[TableBucket, tuple[int, int | None]]
    ) -> Generator[tuple[TableBucket, LogRecords], None, None]:
        """As ``read`` for several buckets: one request fetches from all that one server leads.

        Batches of one bucket come in offset order, those of different buckets in any.

        :param windows: start and stop of each bucket, as in ``read``.
        :raises FlussError: as ``read``; one bucket's error ends the reading of all.
        """
        found = []
        for bucket, (start, stop) in windows.items():
            if bucket.table_id != self.info.table_id:
                raise TableNotExist(
                    f"bucket {bucket} is not of {self.info.path}, which has table id"
                    f" {self.info.table_id}"
                )
            if start == EARLIEST:
                start = self._offset(bucket, "earliest")
            if stop is None:
                stop = self._offset(bucket, "latest")
            if start < stop:
                found.append(Window(bucket, start, stop, offset=start))
        if not found:
            return
        name = f"sluice-fetch-{self.info.path}-{found[0].bucket}"
        fetches = prefetched(
            lambda abandoned: self._fetches.fetch(found, abandoned), _PREFETCHED, name
        )
        with closing(fetches):
            for fetched in fetches:
                for header, view in fetched.batches:
                    yield fetched.window.bucket, self._records(fetched, header, view)

    def _offset(self, bucket: TableBucket, which: Any) -> int:
        found = self._admin.list_offsets(
            self.info.path,
            [bucket.bucket],
            bucket.partition_id,
            which,
            table_id=bucket.table_id,
        )
        return found[bucket.bucket]

    # ---- on the consumer's thread ----

    def _records(self, fetched: Fetched, header: LogBatchHeader, view: memoryview) -> LogRecords:
        start, stop = fetched.window.start, fetched.window.stop
        try:
            check_crc(view, header)
            if not header.append_only:
                raise CorruptRecord(f"batch at offset {header.base_offset} has change types")
            schema = self._schema(header.schema_id)
            batch = decode_log_batch(view, header, arrow_schema(schema))
        except CorruptRecord as error:
            where = f" (in {fetched.source})" if fetched.source else ""
            raise CorruptRecord(f"{self._fetches.name(fetched.window)}: {error}{where}") from error
        batch = align(batch, schema, self.info.schema)
        base_offset, next_offset = header.base_offset, header.next_offset
        if base_offset < start or next_offset > stop:
            # Only when a caller's window does not end where batches do.
            base_offset, next_offset = max(base_offset, start), min(next_offset, stop)
            if batch.num_rows:
                batch = batch.slice(base_offset - header.base_offset, next_offset - base_offset)
        return LogRecords(batch, base_offset, next_offset, header.timestamp_ms, header.size)

    def _schema(self, schema_id: int) -> Schema:
        with self._lock:
            found = self._schemas.get(schema_id)
        if found is None:
            if schema_id > self.info.schema_id:
                raise SchemaNotExist(
                    f"table {self.info.path} has rows of schema {schema_id}, but is read in schema"
                    f" {self.info.schema_id}, which would drop columns: read it anew"
                )
            found = self._admin.schema(self.info.path, schema_id)
            with self._lock:
                self._schemas[schema_id] = found
        return found
