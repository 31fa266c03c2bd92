"""Common part of the writers: Arrow data to idempotent batches per bucket, sent in parallel."""

from __future__ import annotations

import random as random_module
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa

from sluice.client.admin.admin import Admin
from sluice.client.batches.pending_batches import PendingBatches
from sluice.client.batches.row_buffers import RowBuffers
from sluice.client.batches.sender import BatchSender
from sluice.client.connection.connection import Connection
from sluice.client.connection.retry import interruptible_sleep
from sluice.errors import (
    CorruptMessage,
    DuplicateSequence,
    FlussError,
    InvalidTable,
    PartitionNotExists,
    RecordTooLarge,
    from_code,
)
from sluice.failpoints import failpoint
from sluice.formats.keys.bucketing import bucket_hashes, bucket_keys, numbered
from sluice.formats.keys.partitions import partition_values
from sluice.formats.log.log_format import LogFormat
from sluice.formats.types.conform import check_whole_milliseconds, conform
from sluice.model import Partition, Schema, TableBucket, TableInfo, bucket_count_in
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Api
from sluice.wire.messages.table_paths import table_path

ACKS_ALL = -1
_BUFFERED_BATCHES_MAX = 64
"""Buffered rows take at most the bytes of this many batches."""
_CHUNK_BATCHES = 16
"""Rows are sorted by bucket in chunks of this many batches, which bounds the copied bytes."""
_SMALL_CHUNK_ROWS = 8192
"""A table whose chunks have fewer rows than this on average is first copied into one chunk."""
_MESSAGE_OVERHEAD_BYTES = 1024
_BATCHES_IN_MESSAGE = 4
"""How many usual batches a message holds at least: a batch may have twice the usual size."""
_SEQUENCE_MAX = 2**31 - 1
NO_WRITER_ID = NO_SEQUENCE = -1
"""Those of a batch that a server stores again if it arrives twice."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows of one partition with the hashes of their keys; ``values`` is () without partitions."""

    values: tuple[str, ...]
    hashes: np.ndarray | None
    content: pa.RecordBatch
    mark: int
    """The number of given rows before the chunk of this part."""
    is_chunk: bool
    """Whether this part holds all rows of its chunk, in their order."""


_Key = tuple[int | None, int | None]
"""Partition id and bucket; no bucket where the writer chooses one when a batch is full."""


class BucketWriter(ABC):
    """Base class of the writers for log tables and primary-key tables.

    Each row is stored exactly once, also if a request is sent again. Rows of one bucket keep their
    order. Memory is bounded: about 64 batches of buffered rows plus twice ``writer_max_inflight``
    encoded batches. A write blocks while the cluster is slower than the caller.

    After an error the writer is unusable: every call raises that error again. Calls from several
    threads are serialized.

    A partition is looked up once. If it is dropped later, its next rows are such an error, also
    with ``dynamic_partitions``: a new writer creates it again. Apache Fluss deletes a dropped
    partition some moments later, and accepts rows until then, which are deleted with it.
    """

    _API: Api
    """The call that stores a batch."""

    def __init__(
        self,
        connection: Connection,
        admin: Admin,
        info: TableInfo,
        *,
        dynamic_partitions: bool = False,
        random: Callable[[], float] = random_module.random,
    ) -> None:
        """:param dynamic_partitions: create a partition when its first row arrives."""
        self.info = info
        is_arrow = LogFormat.of(info.descriptor.properties).is_arrow
        self._keeps_milliseconds = info.has_primary_key or not is_arrow
        self._connection = connection
        self._admin = admin
        self._dynamic_partitions = dynamic_partitions
        config = connection.config
        self._batch_bytes = min(config.writer_batch_bytes, self._records_max // _BATCHES_IN_MESSAGE)
        self._pending = PendingBatches()
        self._lock = threading.RLock()  # guards all below
        self._closed = False
        self._writer_id: int | None = None
        self._sequences: dict[TableBucket, int] = {}
        self._taken_rows = self._given_rows = 0
        self._partitions: dict[tuple[str, ...], Partition] = {}
        self._counts: dict[int | None, int] = {}  # of buckets, by the partition's id
        self._next_bucket = int(random() * self.info.bucket_count)
        self._buffers: RowBuffers[_Key] = RowBuffers(
            self._batch_bytes, _BUFFERED_BATCHES_MAX * self._batch_bytes
        )
        self._stop = threading.Event()
        self._sender = BatchSender(
            self._send,
            threads=config.writer_max_inflight,
            queued_bytes_max=2 * config.writer_max_inflight * self._batch_bytes,
            name=f"sluice-write-{info.path}",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def flush(self, timeout_s: float | None = None) -> None:
        """Sends the buffered rows and returns when all rows are stored.

        :param timeout_s: by default the maximum time of one call with its retries.
        :raises FlussError: the error of a failed batch.
        :raises RequestTimeOut: not all rows were stored in time.
        """
        with self._lock:
            self._check_open()
            for key, batch, mark in self._buffers.take_all():
                self._enqueue(key, batch, mark)
            self._raise_floor(self._taken_rows)
            self._sender.drain(self._default_timeout_s() if timeout_s is None else timeout_s)

    def close(self, timeout_s: float | None = None) -> None:
        """Flushes and closes the writer; a second call does nothing."""
        with self._lock:
            if self._closed:
                return
            try:
                self.flush(timeout_s)
            finally:
                self.abort()

    def abort(self) -> None:
        """Closes the writer without sending the buffered rows."""
        self._stop.set()
        with self._lock:
            self._closed = True
            self._sender.stop()

    @property
    def stored_rows(self) -> int:
        """The number of rows, from the first given row on, that are stored without a gap.

        Later rows may be stored as well. The number never decreases. It stays correct after a
        failure or an interruption.
        """
        return self._pending.stored_rows

    @property
    def has_begun(self) -> bool:
        """Whether the cluster has given it an id; before that, nothing was sent."""
        return self._writer_id is not None

    @property
    def sent_rows(self) -> int:
        """An upper bound on the rows sent so far, counted from the first given row."""
        return self._given_rows

    def missing_partitions(self, wanted: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
        """Returns the partitions that the table lacks, as values in partition key order."""
        with self._lock:
            wanted = list(wanted)
            if self._missing(wanted):
                self._load_partitions()
            return self._missing(wanted)

    def ensure_partitions(self, wanted: Iterable[tuple[str, ...]]) -> None:
        """Creates missing partitions before their rows arrive.

        :raises PartitionNotExists: one is missing, and ``dynamic_partitions`` is not set.
        :raises FlussError: the cluster refuses to create a partition.
        """
        with self._lock:
            self._find_partitions(list(wanted))

    # ---- rows into batches ----

    @abstractmethod
    def _batch(self, content: pa.RecordBatch, writer_id: int, sequence: int) -> bytes:
        """Encodes the buffered rows of a bucket as one batch."""

    def _request(self, bucket: TableBucket, records: bytes) -> Any:
        """Returns the request that stores an encoded batch of one bucket."""
        timeout_ms = self._connection.config.request_timeout_ms
        request: Any = self._API.request(
            acks=ACKS_ALL, table_id=bucket.table_id, timeout_ms=timeout_ms
        )
        request.buckets_req.add(
            partition_id=bucket.partition_id, bucket_id=bucket.bucket, records=records
        )
        return request

    def _take(
        self,
        data: pa.Table | pa.RecordBatch,
        schema: Schema,
        content_of: Callable[[pa.RecordBatch], pa.RecordBatch],
        *,
        where_partitions_are: bool = False,
    ) -> None:
        """Buffers rows, all or none.

        :param schema: the columns that the rows must have.
        :param content_of: converts rows to the form in which they are buffered, row by row.
        :param where_partitions_are: skip rows of partitions that do not exist.
        """
        with self._lock:
            self._check_open()
            self._sender.check()
            given = data.num_rows
            # Everything is encoded before anything is buffered, so an invalid row leaves no trace.
            parts, mark = list[_Part](), self._taken_rows
            for chunk in self._chunks(data, schema):
                for values, rows in self._partitioned(chunk):
                    is_chunk = rows.num_rows == chunk.num_rows
                    hashes = bucket_hashes(rows, self.info)
                    parts.append(_Part(values, hashes, content_of(rows), mark, is_chunk))
                mark += chunk.num_rows
            if self.info.is_partitioned:
                wanted = [part.values for part in parts]
                if where_partitions_are:
                    if self._missing(wanted):
                        self._load_partitions()
                    parts = [part for part in parts if part.values in self._partitions]
                else:
                    self._find_partitions(wanted)
            self._given_rows = self._taken_rows + given
            for part in parts:
                self._raise_floor(part.mark)
                self._place(part)
            self._taken_rows += given
            self._raise_floor(self._taken_rows)

    def _place(self, part: _Part) -> None:
        """Buffers the rows of a part by bucket and sends the batches that are full."""
        partition = self._partitions[part.values] if part.values else None
        partition_id = None if partition is None else partition.partition_id
        count = self._counts[partition_id] = bucket_count_in(self.info, partition)
        numbers = None if part.hashes is None else numbered(part.hashes, count)
        by_bucket = _by_bucket(numbers, part.content)
        in_order = part.is_chunk and len(by_bucket) == 1
        for number, content in by_bucket:
            waiting = self._buffers.add(
                (partition_id, number), content, part.mark, in_order=in_order
            )
            for key, full, first in waiting:
                self._enqueue(key, full, first)
                if in_order:
                    self._raise_floor(max(part.mark, first + full.num_rows))

    def _raise_floor(self, placed: int) -> None:
        """Notes that this many rows are in batches or buffered."""
        lowest = self._buffers.lowest_mark
        self._pending.raise_floor(placed if lowest is None else min(placed, lowest))

    def _check(
        self,
        data: pa.Table | pa.RecordBatch,
        schema: Schema,
        content_of: Callable[[pa.RecordBatch], pa.RecordBatch],
    ) -> set[tuple[str, ...]]:
        """Raises the errors that :meth:`_take` would raise for these rows, without buffering them.

        :returns: the partitions of the rows.
        """
        partitions = set()
        for chunk in self._chunks(data, schema):
            for values, _ in self._groups(chunk):
                partitions.add(values)
            # Keys are only checked for nulls and for their type; one row is enough for the type.
            keys = [chunk.column(name) for name in bucket_keys(self.info)]
            has_nulls = any(key.null_count for key in keys)
            bucket_hashes(chunk if has_nulls else chunk.slice(0, 1), self.info)
            self._check_size(content_of(chunk))
        return partitions

    def _check_size(self, content: pa.RecordBatch) -> None:
        """:raises RecordTooLarge: a single row does not fit into one request."""
        if content.nbytes <= self._records_max or not content.num_rows:
            return
        if content.num_rows > 1:
            half = content.num_rows // 2
            self._check_size(content.slice(0, half))
            self._check_size(content.slice(half))
            return
        size = len(self._batch(content, 0, 0))
        if size > self._records_max:
            raise RecordTooLarge(
                f"a row has {size:,} bytes; client.max_message_bytes allows {self._records_max:,}:"
                " raise it here and on the server"
            )

    def _chunks(self, data: pa.Table | pa.RecordBatch, schema: Schema) -> Iterator[pa.RecordBatch]:
        batches = [data] if isinstance(data, pa.RecordBatch) else data.to_batches()
        if len(batches) > 1 and data.num_rows < len(batches) * _SMALL_CHUNK_ROWS:
            batches = data.combine_chunks().to_batches()
        for given in batches:
            batch = conform(given, schema)
            if self._keeps_milliseconds:
                check_whole_milliseconds(batch)
            if not batch.num_rows:
                continue
            row_bytes = max(1, batch.nbytes // batch.num_rows)
            step = max(1, _CHUNK_BATCHES * self._batch_bytes // row_bytes)
            for start in range(0, batch.num_rows, step):
                yield batch.slice(start, step)

    def _partitioned(
        self, batch: pa.RecordBatch
    ) -> Iterator[tuple[tuple[str, ...], pa.RecordBatch]]:
        groups = self._groups(batch)
        for values, indices in groups:
            yield values, batch if len(groups) == 1 else batch.take(pa.array(indices))

    def _groups(self, batch: pa.RecordBatch) -> list[tuple[tuple[str, ...], np.ndarray]]:
        if not self.info.is_partitioned:
            return [((), np.zeros(0, np.int64))]
        return partition_values(batch, self.info)

    def _find_partitions(self, wanted: list[tuple[str, ...]]) -> None:
        if not self._missing(wanted):
            return
        self._load_partitions()
        for values in self._missing(wanted):
            if not self._dynamic_partitions:
                spec = ", ".join(f"{k}={v}" for k, v in self._spec(values).items())
                raise PartitionNotExists(
                    f"table {self.info.path} has no partition {spec}: create it, or let the writer"
                    " create it (dynamic_partitions=True)",
                    partition=spec,
                )
            self._admin.create_partition(self.info.path, self._spec(values), ignore_if_exists=True)
        if self._missing(wanted):
            self._load_partitions()
        for values in self._missing(wanted):
            raise PartitionNotExists(f"table {self.info.path}: partition {values} was dropped")

    def _missing(self, wanted: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
        return [values for values in dict.fromkeys(wanted) if values not in self._partitions]

    def _load_partitions(self) -> None:
        found = self._admin.partitions_of(self.info)
        self._partitions = {partition.values: partition for partition in found}

    def _spec(self, values: tuple[str, ...]) -> dict[str, str]:
        return dict(zip(self.info.descriptor.partition_keys, values, strict=True))

    # ---- sending of batches ----

    def _enqueue(self, key: _Key, batch: pa.RecordBatch, mark: int) -> None:
        partition_id, number = key
        if number is None:  # no bucket key: batches are assigned to the buckets in turn
            number = self._next_bucket % self._counts[partition_id]
            self._next_bucket += 1
        bucket = TableBucket(self.info.table_id, partition_id, number)
        sequence = self._sequences.get(bucket, 0)
        writer_id = self._id()
        records = self._batch(
            batch, writer_id, NO_SEQUENCE if writer_id == NO_WRITER_ID else sequence
        )
        if len(records) > self._records_max:
            self._sender.fail(
                RecordTooLarge(
                    f"{self._name(bucket)}: a batch of {batch.num_rows} rows has {len(records):,}"
                    f" bytes; client.max_message_bytes allows {self._records_max:,}:"
                    " raise it, or lower client.writer_batch_bytes"
                )
            )
        self._pending.add(bucket, mark)
        self._sender.put(bucket, records)
        self._sequences[bucket] = 0 if sequence == _SEQUENCE_MAX else sequence + 1

    @property
    def _records_max(self) -> int:
        """The maximum size of an encoded batch in bytes."""
        return self._connection.config.max_message_bytes - _MESSAGE_OVERHEAD_BYTES

    def _id(self) -> int:
        if self._writer_id is None:
            request = pb.InitWriterRequest(table_path=[table_path(self.info.path)])
            self._writer_id = self._connection.call_tablet(
                apis.INIT_WRITER, request, lambda reply: int(reply.writer_id)
            )
        return self._writer_id

    def _send(self, bucket: TableBucket, records: bytes) -> None:
        """Sends one batch until it is stored; runs on the sender's threads."""
        failpoint("client.write.sending")
        failures: list[FlussError] = []

        def unpack(reply: Any) -> None:
            if len(reply.buckets_resp) != 1:
                count = len(reply.buckets_resp)
                raise CorruptMessage(
                    f"{self._API.name}: the server returned {count} results for one batch"
                )
            entry = reply.buckets_resp[0]
            if entry.error_code == DuplicateSequence.code and failures:
                return  # an earlier attempt had stored it; only the response was lost
            if entry.error_code:
                raise from_code(entry.error_code, entry.error_message)

        try:
            # Writer id and sequence number make it safe to send the batch again.
            self._connection.call_leader(
                self.info.path,
                bucket,
                self._API,
                self._request(bucket, records),
                unpack,
                idempotent=True,
                routed_by=self._counts[bucket.partition_id],
                sleep=interruptible_sleep(self._stop, f"write to {self._name(bucket)}"),
                on_failure=failures.append,
            )
        except PartitionNotExists as error:
            why = f"{self._name(bucket)} was dropped while this writer was open"
            how = "create the partition, then give" if not self._dynamic_partitions else "give"
            raise PartitionNotExists(
                f"{why}: its rows are deleted; {how} those that are wanted to a new writer"
                f" ({error})",
                **error.details,
            ) from error
        except FlussError as error:
            raise type(error)(f"{self._name(bucket)}: {error}", **error.details) from error
        failpoint("client.write.answered")
        self._pending.stored(bucket)

    def _name(self, bucket: TableBucket) -> str:
        partitions = self._partitions.values()
        names = [one.name for one in partitions if one.partition_id == bucket.partition_id]
        where = f" partition {names[0]}" if names else ""
        return f"table {self.info.path}{where} bucket {bucket.bucket}"

    def _default_timeout_s(self) -> float:
        config = self._connection.config
        return (config.retry_timeout_ms + config.request_timeout_ms) / 1000

    def _check_open(self) -> None:
        if self._closed:
            self._sender.check()
            raise InvalidTable(f"the writer of table {self.info.path} is closed")


def _by_bucket(
    numbers: np.ndarray | None, rows: pa.RecordBatch
) -> list[tuple[int | None, pa.RecordBatch]]:
    """Groups rows by bucket; rows of one bucket keep their order."""
    if numbers is None:
        return [(None, rows)]
    counts = np.bincount(numbers)
    used = np.flatnonzero(counts)
    if len(used) == 1:
        return [(int(used[0]), rows)]
    # Stable: rows of one bucket keep their order. numpy sorts 16 bits ten times as fast as 32.
    narrow = numbers.astype(np.uint16) if len(counts) <= 1 << 16 else numbers
    sorted_rows = rows.take(pa.array(np.argsort(narrow, kind="stable")))
    ends = np.cumsum(counts)
    return [(int(b), sorted_rows.slice(int(ends[b] - counts[b]), int(counts[b]))) for b in used]
