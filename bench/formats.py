"""Log batches, keys and buckets alone, beside what pyarrow needs for the bare Arrow data."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from bench import data
from bench.measure import Line, report
from sluice.formats.bucketing import bucket_numbers
from sluice.formats.keys import encode_key
from sluice.formats.log_batch import (
    check_crc,
    decode_log_batch,
    encode_log_batch,
    iter_batches,
)
from sluice.formats.types import arrow_schema
from sluice.model import Column, Schema
from sluice.model.types import BIGINT, STRING

TRIES = 5


def best_cpu_s(work: Callable[[], object]) -> float:
    """The least CPU seconds of several tries."""
    found = []
    for _ in range(TRIES):
        started = time.process_time()
        work()
        found.append(time.process_time() - started)
    return min(found)


def run(rows: int) -> None:
    rows = min(rows, 1_000_000)
    batches = list(data.batches(rows))
    _log_batches(batches, rows)
    _buckets(rows)


def _log_batches(batches: list[pa.RecordBatch], rows: int) -> None:
    """Compressed by zstd at level 3, the default of a table, on both sides."""
    schema = arrow_schema(data.descriptor(1).schema)
    options = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", 3))

    def bare_encode() -> list[pa.Buffer]:
        return [_stream(batch, options) for batch in batches]

    def bare_decode() -> None:
        for stream in streams:
            pa.ipc.open_stream(stream).read_all()

    def encode() -> bytes:
        return b"".join(encode_log_batch(b, 1) for b in batches)

    def decode() -> None:
        for header, view in iter_batches(log):
            check_crc(view, header)
            decode_log_batch(view, header, schema)

    streams, log = bare_encode(), encode()
    m = rows / 1e6
    pairs = [("encode", encode, bare_encode), ("decode", decode, bare_decode)]
    for name, ours, bare in pairs:
        value, limit = m / best_cpu_s(ours), m / best_cpu_s(bare)
        report(
            Line(
                f"log_batch_{name}_zstd",
                value,
                "M rows/core-s",
                value / limit,
                "pyarrow's IPC stream",
            )
        )


def _stream(batch: pa.RecordBatch, options: pa.ipc.IpcWriteOptions) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _buckets(rows: int) -> None:
    schema = Schema((Column("n", BIGINT, 0), Column("s", STRING, 1)))
    numbers = np.arange(rows)
    texts = pa.array([f"customer-{n % 100_000:010d}" for n in range(rows)])
    batch = pa.record_batch([pa.array(numbers), texts], names=["n", "s"])
    m = rows / 1e6
    hashing = m / best_cpu_s(lambda: texts.dictionary_encode())
    for column in ("n", "s"):

        def work(column: str = column) -> object:
            return bucket_numbers(encode_key(batch, [column], schema, "iceberg"), 16, "iceberg")

        value = m / best_cpu_s(work)
        name = f"bucket_numbers_{'bigint' if column == 'n' else 'string'}"
        report(Line(name, value, "M rows/core-s", value / hashing, "dictionary_encode of the text"))
