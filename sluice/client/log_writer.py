"""Appends Arrow data to a log table: batches per bucket, idempotent, several on their way."""

from __future__ import annotations

import random as random_module
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa

from sluice.client.admin import Admin
from sluice.client.connection import Connection, table_path
from sluice.client.retry import interruptible
from sluice.client.row_buffers import RowBuffers
from sluice.client.sender import BatchSender
from sluice.errors import (
    CorruptMessage,
    DuplicateSequence,
    FlussError,
    InvalidTable,
    PartitionNotExists,
    RecordTooLarge,
    from_code,
)
from sluice.formats.bucketing import buckets_of
from sluice.formats.conform import conform
from sluice.formats.log_batch import encode_log_batch
from sluice.formats.partitions import partition_values
from sluice.model import TableBucket, TableInfo, TablePath
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb

_ACKS_ALL = -1
_BUFFERED_BATCHES_MAX = 64
"""Rows that wait for a full batch take at most this many batches' bytes."""
_CHUNK_BATCHES = 16
"""Rows are sorted by bucket this many batches' bytes at a time: bounds what a write copies."""
_SMALL_CHUNK_ROWS = 8192
"""A table of chunks smaller than this, on average, is copied into one first."""
_MESSAGE_OVERHEAD_BYTES = 1024
_SEQUENCE_MAX = 2**31 - 1

_Key = tuple[int | None, int | None]
"""Partition id and bucket; no bucket where the writer chooses one when a batch is full."""


class LogWriter:
    """Appends rows to one log table. Use it as a context manager: leaving it flushes.

    A row is stored once, also if a request has to be sent again. Rows of one bucket keep their
    order. Memory is bounded: about 64 batches of waiting rows, and twice
    ``writer_max_inflight`` encoded ones. A write waits while the cluster is slower than its caller.

    After an error the writer is of no more use: the error comes again at every call. Calls of
    several threads take turns.
    """

    def __init__(
        self,
        connection: Connection,
        admin: Admin,
        path: TablePath,
        *,
        dynamic_partitions: bool = False,
        random: Callable[[], float] = random_module.random,
    ) -> None:
        """:param dynamic_partitions: creates a partition when the first row for it comes.

        :raises TableNotExist: :raises InvalidTable: if this is not a log table in Arrow format.
        """
        self.info = admin.table_info(path)
        _check_table(self.info)
        self._connection = connection
        self._admin = admin
        self._dynamic_partitions = dynamic_partitions
        config = connection.config
        properties = self.info.descriptor.properties
        self._compression = properties.get("table.log.arrow.compression.type", "ZSTD").upper()
        self._level = int(properties.get("table.log.arrow.compression.zstd.level", "3"))
        self._batch_bytes = config.writer_batch_bytes
        self._lock = threading.RLock()  # guards all below
        self._closed = False
        self._writer_id: int | None = None
        self._sequences: dict[TableBucket, int] = {}
        self._partitions: dict[tuple[str, ...], int] = {}
        self._next_bucket = int(random() * self.info.bucket_count)
        self._buffers: RowBuffers[_Key] = RowBuffers(
            self._batch_bytes, _BUFFERED_BATCHES_MAX * self._batch_bytes
        )
        self._stop = threading.Event()
        self._sender = BatchSender(
            self._produce,
            threads=config.writer_max_inflight,
            queued_bytes_max=2 * config.writer_max_inflight * self._batch_bytes,
            name=f"sluice-append-{path}",
        )

    def __enter__(self) -> LogWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def write(self, data: pa.Table | pa.RecordBatch) -> None:
        """Takes rows; columns go by name and are cast where nothing is lost by it.

        Returns before they are stored: see :meth:`flush`. If the rows do not fit the table, or a
        partition is missing, none of them is taken.

        :raises FlussError: what is wrong with the rows, or the failure of an earlier batch, with
            the name of its bucket.
        """
        with self._lock:
            self._check_open()
            self._sender.check()
            rows = [self._partitioned(chunk) for chunk in self._chunks(data)]
            self._find_partitions([values for groups in rows for values, _ in groups])
            for groups in rows:
                for values, batch in groups:
                    self._add(self._partitions[values] if values else None, batch)

    def flush(self, timeout_s: float | None = None) -> None:
        """Sends what waits and returns when all of it is stored.

        :param timeout_s: by default as long as a call with all its retries may take.
        :raises FlussError: the failure of a batch; RequestTimeOut if it takes longer.
        """
        with self._lock:
            self._check_open()
            for key, batch in self._buffers.take_all():
                self._enqueue(key, batch)
            self._sender.drain(self._default_timeout_s() if timeout_s is None else timeout_s)

    def close(self, timeout_s: float | None = None) -> None:
        """Flushes and ends the writer; a second call does nothing."""
        with self._lock:
            if self._closed:
                return
            try:
                self.flush(timeout_s)
            finally:
                self.abort()

    def abort(self) -> None:
        """Ends the writer without sending what waits."""
        self._stop.set()
        with self._lock:
            self._closed = True
            self._sender.stop()

    # ---- rows into batches ----

    def _chunks(self, data: pa.Table | pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        batches = [data] if isinstance(data, pa.RecordBatch) else data.to_batches()
        if len(batches) > 1 and data.num_rows < len(batches) * _SMALL_CHUNK_ROWS:
            batches = data.combine_chunks().to_batches()
        for given in batches:
            batch = conform(given, self.info.schema)
            if not batch.num_rows:
                continue
            row_bytes = max(1, batch.nbytes // batch.num_rows)
            step = max(1, _CHUNK_BATCHES * self._batch_bytes // row_bytes)
            for start in range(0, batch.num_rows, step):
                yield batch.slice(start, step)

    def _partitioned(self, batch: pa.RecordBatch) -> list[tuple[tuple[str, ...], pa.RecordBatch]]:
        if not self.info.is_partitioned:
            return [((), batch)]
        groups = partition_values(batch, self.info)
        if len(groups) == 1:
            return [(groups[0][0], batch)]
        return [(values, batch.take(pa.array(indices))) for values, indices in groups]

    def _find_partitions(self, wanted: list[tuple[str, ...]]) -> None:
        if not self.info.is_partitioned or self._missing(wanted) == []:
            return
        self._load_partitions()
        for values in self._missing(wanted):
            if not self._dynamic_partitions:
                spec = ", ".join(f"{k}={v}" for k, v in self._spec(values).items())
                raise PartitionNotExists(
                    f"table {self.info.path} has no partition {spec}; create it first, or let the"
                    " writer do so (dynamic_partitions=True)"
                )
            self._admin.create_partition(self.info.path, self._spec(values), ignore_if_exists=True)
        if self._missing(wanted):
            self._load_partitions()
        for values in self._missing(wanted):
            raise PartitionNotExists(f"table {self.info.path}: partition {values} went away")

    def _missing(self, wanted: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
        return [values for values in dict.fromkeys(wanted) if values not in self._partitions]

    def _load_partitions(self) -> None:
        found = self._admin.partitions_of(self.info)
        self._partitions = {partition.values: partition.partition_id for partition in found}

    def _spec(self, values: tuple[str, ...]) -> dict[str, str]:
        return dict(zip(self.info.descriptor.partition_keys, values, strict=True))

    def _add(self, partition_id: int | None, batch: pa.RecordBatch) -> None:
        for bucket, rows in self._bucketed(batch):
            for key, full in self._buffers.add((partition_id, bucket), rows):
                self._enqueue(key, full)

    def _bucketed(self, batch: pa.RecordBatch) -> list[tuple[int | None, pa.RecordBatch]]:
        numbers = buckets_of(batch, self.info)
        if numbers is None:
            return [(None, batch)]
        counts = np.bincount(numbers, minlength=self.info.bucket_count)
        used = np.flatnonzero(counts)
        if len(used) == 1:
            return [(int(used[0]), batch)]
        # Stable: rows of one bucket keep their order. numpy sorts 16 bits ten times as fast as 32.
        narrow = numbers.astype(np.uint16) if len(counts) <= 1 << 16 else numbers
        by_bucket = batch.take(pa.array(np.argsort(narrow, kind="stable")))
        ends = np.cumsum(counts)
        return [(int(b), by_bucket.slice(int(ends[b] - counts[b]), int(counts[b]))) for b in used]

    # ---- batches onto their way ----

    def _enqueue(self, key: _Key, batch: pa.RecordBatch) -> None:
        partition_id, number = key
        if number is None:  # no bucket key: whole batches go round the buckets
            number = self._next_bucket % self.info.bucket_count
            self._next_bucket += 1
        bucket = TableBucket(self.info.table_id, partition_id, number)
        sequence = self._sequences.get(bucket, 0)
        records = encode_log_batch(
            batch,
            self.info.schema_id,
            writer_id=self._id(),
            batch_sequence=sequence,
            compression=self._compression,
            level=self._level,
        )
        limit = self._connection.config.max_message_bytes - _MESSAGE_OVERHEAD_BYTES
        if len(records) > limit:
            self._sender.fail(
                RecordTooLarge(
                    f"{self._name(bucket)}: a batch of {batch.num_rows} rows has {len(records):,}"
                    f" bytes, client.max_message_bytes allows {limit:,}"
                )
            )
        self._sender.put(bucket, records)
        self._sequences[bucket] = 0 if sequence == _SEQUENCE_MAX else sequence + 1

    def _id(self) -> int:
        if self._writer_id is None:
            request = pb.InitWriterRequest(table_path=[table_path(self.info.path)])
            self._writer_id = self._connection.call_tablet(
                apis.INIT_WRITER, request, lambda reply: int(reply.writer_id)
            )
        return self._writer_id

    def _produce(self, bucket: TableBucket, records: bytes) -> None:
        """Sends one batch until it is stored; runs on the sender's threads."""
        request = pb.ProduceLogRequest(
            acks=_ACKS_ALL,
            table_id=bucket.table_id,
            timeout_ms=self._connection.config.request_timeout_ms,
        )
        request.buckets_req.add(
            partition_id=bucket.partition_id, bucket_id=bucket.bucket, records=records
        )
        failures: list[FlussError] = []

        def unpack(reply: Any) -> None:
            if len(reply.buckets_resp) != 1:
                raise CorruptMessage(f"ProduceLog: {len(reply.buckets_resp)} answers for one batch")
            entry = reply.buckets_resp[0]
            if entry.error_code == DuplicateSequence.code and failures:
                return  # an earlier attempt had stored it, only its answer was lost
            if entry.error_code:
                raise from_code(entry.error_code, entry.error_message)

        try:
            # Writer id and sequence make it safe to send again whatever became of it.
            self._connection.call_leader(
                self.info.path,
                bucket,
                apis.PRODUCE_LOG,
                request,
                unpack,
                idempotent=True,
                sleep=interruptible(self._stop, f"append to {self._name(bucket)}"),
                on_failure=failures.append,
            )
        except FlussError as error:
            raise type(error)(f"{self._name(bucket)}: {error}", **error.details) from error

    def _name(self, bucket: TableBucket) -> str:
        partition = [v for v, id_ in self._partitions.items() if id_ == bucket.partition_id]
        where = f" partition {'$'.join(partition[0])}" if partition else ""
        return f"table {self.info.path}{where} bucket {bucket.bucket}"

    def _default_timeout_s(self) -> float:
        config = self._connection.config
        return (config.retry_timeout_ms + config.request_timeout_ms) / 1000

    def _check_open(self) -> None:
        if self._closed:
            self._sender.check()
            raise InvalidTable(f"the writer of {self.info.path} was closed")


def _check_table(info: TableInfo) -> None:
    if info.has_primary_key:
        raise InvalidTable(
            f"table {info.path} has a primary key: rows appended to its log would be missing in"
            " its KV store; a log writer is for log tables"
        )
    log_format = info.descriptor.properties.get("table.log.format", "ARROW").upper()
    if log_format != "ARROW":
        raise InvalidTable(
            f"table {info.path} has table.log.format {log_format}; only ARROW is written"
        )
