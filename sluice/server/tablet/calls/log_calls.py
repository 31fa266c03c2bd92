"""The tablet's calls on logs: ProduceLog, FetchLog, ListOffsets, InitWriter.

See docs/fluss/messages.md#produce-log-and-put-kv and docs/fluss/messages.md#fetch-log

A batch is stored as its client sent it, once the server has decoded it as a reader will do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from sluice.clock import Clock
from sluice.errors import (
    CorruptRecord,
    InvalidRequiredAcks,
    InvalidTable,
    InvalidTimestamp,
    RecordTooLarge,
    SchemaNotExist,
    UnknownServerError,
    UnknownTableOrBucket,
    UnknownWriterId,
)
from sluice.formats.log.batch import LogBatchHeader, check_crc, read_header
from sluice.model import TableBucket
from sluice.server.tablet.buckets.ports import HostedTable, Tables
from sluice.server.tablet.buckets.replicas import Replicas
from sluice.server.tablet.calls.kv_calls import ACKS, KvService
from sluice.server.tablet.calls.scan_calls import ScanService
from sluice.server.tablet.logs.batch_checker import BatchChecker
from sluice.server.tablet.logs.fetch import Fetcher
from sluice.server.tablet.logs.last_rows import last_rows
from sluice.server.tablet.logs.log import BucketLog
from sluice.server.tablet.logs.manager import LogManager
from sluice.server.writer_ids import StoredWriterIds
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Api
from sluice.wire.error_codes import errors_into
from sluice.wire.listeners.handlers import Handler
from sluice.wire.messages import values
from sluice.wire.messages.table_paths import bucket_in, refuse_history


class TabletService:
    """Handlers of the calls on logs. Stateless."""

    def __init__(
        self,
        tables: Tables,
        logs: LogManager,
        fetcher: Fetcher,
        kv: KvService,
        scans: ScanService,
        replicas: Replicas,
        writer_ids: StoredWriterIds,
        clock: Clock,
        *,
        max_batch_rows: int,
        max_bytes: int,
    ) -> None:
        self._tables = tables
        self._logs = logs
        self._fetcher = fetcher
        self._kv = kv
        self._scans = scans
        self._replicas = replicas
        self._writer_ids = writer_ids
        self._clock = clock
        self._max_batch_rows = max_batch_rows
        self._max_bytes = max_bytes
        self._checker = BatchChecker(max_bytes)

    def handlers(self) -> Mapping[Api, Handler]:
        return {
            apis.PRODUCE_LOG: self.produce_log,
            apis.FETCH_LOG: self._fetcher.fetch,
            apis.LIST_OFFSETS: self.list_offsets,
            apis.INIT_WRITER: self.init_writer,
            apis.LIMIT_SCAN: self.limit_scan,
            **self._kv.handlers(),
            **self._scans.handlers(),
        }

    def produce_log(self, request: pb.ProduceLogRequest) -> pb.ProduceLogResponse:
        """Stores one batch per bucket; each bucket has its own result or error.

        :raises InvalidRequiredAcks: acks is neither 0, 1 nor -1.
        """
        if request.acks not in ACKS:
            raise InvalidRequiredAcks(f"acks = {request.acks}: send 0, 1 or -1")
        response = pb.ProduceLogResponse()
        for item in request.buckets_req:
            bucket = bucket_in(item, request.table_id)
            answer = response.buckets_resp.add(
                bucket_id=bucket.bucket, partition_id=bucket.partition_id
            )
            with errors_into(answer):
                refuse_history(item, answer)
                # Before the bucket's lock is held: who drops the bucket must not wait for it.
                header = self._checked(self._table(bucket), bucket, item.records)
                with self._log(bucket) as log:
                    answer.base_offset = log.append(header, item.records)
        return response

    def list_offsets(self, request: pb.ListOffsetsRequest) -> pb.ListOffsetsResponse:
        response = pb.ListOffsetsResponse()
        partition_id = request.partition_id if request.HasField("partition_id") else None
        for bucket_id in request.bucket_id:
            answer = response.buckets_resp.add(bucket_id=bucket_id)
            where = TableBucket(request.table_id, partition_id, bucket_id)
            with errors_into(answer), self._log(where) as log:
                answer.offset = self._offset(log, request)
        return response

    def init_writer(self, request: pb.InitWriterRequest) -> pb.InitWriterResponse:  # noqa: ARG002
        return pb.InitWriterResponse(writer_id=self._writer_ids.issue())

    def limit_scan(self, request: pb.LimitScanRequest) -> pb.LimitScanResponse:
        """Returns the last rows of a log table, or the first ones by key with a primary key."""
        bucket = bucket_in(request)
        table = self._tables.find(request.table_id)
        if table is not None and table.info.has_primary_key:
            return self._kv.limit_scan(bucket, request.limit)
        response = pb.LimitScanResponse()
        with errors_into(response), self._log(bucket) as log:
            return last_rows(log, request, self._max_bytes)
        return response

    def _table(self, bucket: TableBucket) -> HostedTable:
        table = self._tables.find(bucket.table_id)
        if table is None:
            raise UnknownTableOrBucket(f"no table has the id {bucket.table_id}")
        return table

    @contextmanager
    def _log(self, bucket: TableBucket) -> Iterator[BucketLog]:
        """Yields the log of a bucket that this server leads, for one operation."""
        table = self._table(bucket)
        with self._replicas.leading(bucket):
            yield self._logs.find(table, bucket)

    def _checked(self, table: HostedTable, bucket: TableBucket, records: bytes) -> LogBatchHeader:
        """Validates a batch and returns its header."""
        where = f"table {table.info.path}, bucket {bucket}"
        if table.info.has_primary_key:
            raise InvalidTable(
                f"{where}: the table has a primary key, so rows cannot be appended to its log: use"
                " PutKv"
            )
        with _naming(where):
            header = read_header(records)
            if header.size != len(records):
                raise CorruptRecord(f"a batch of {header.size} bytes in {len(records)} bytes")
            check_crc(records, header)
        if header.schema_id not in table.schemas:
            raise SchemaNotExist(
                f"{where}: the batch has schema id {header.schema_id}; the table has schemas up to"
                f" {table.info.schema_id}"
            )
        if header.record_count > self._max_batch_rows:
            raise RecordTooLarge(
                f"{where}: the batch has {header.record_count} rows, more than the limit of"
                f" {self._max_batch_rows}: send smaller batches"
            )
        if not header.append_only:
            raise CorruptRecord(f"{where}: a batch of a log table must not have change types")
        if header.writer_id >= 0 and not self._writer_ids.is_issued(header.writer_id):
            raise UnknownWriterId(
                f"{where}: writer id {header.writer_id} was never issued: call InitWriter first"
            )
        with _naming(where):
            self._checker.check(table, header, records)
        return header

    def _offset(self, log: BucketLog, request: pb.ListOffsetsRequest) -> int:
        if request.offset_type == values.OFFSET_EARLIEST:
            return log.start_offset
        if request.offset_type in (values.OFFSET_LATEST, values.OFFSET_LEADER_END):
            return log.end_offset
        if request.offset_type != values.OFFSET_BY_TIMESTAMP or not request.HasField(
            "startTimestamp"
        ):
            raise UnknownServerError(
                f"offset_type = {request.offset_type}: send 0 (earliest), 1 (latest), or 2 with"
                " startTimestamp"
            )
        now = self._clock.now_ms()
        if request.startTimestamp > now:
            raise InvalidTimestamp(f"timestamp {request.startTimestamp} is in the future ({now})")
        return log.offset_at(request.startTimestamp)


@contextmanager
def _naming(where: str) -> Iterator[None]:
    """Puts the bucket before the text of an error about a batch."""
    try:
        yield
    except (CorruptRecord, RecordTooLarge) as error:
        raise type(error)(f"{where}: {error}") from error
