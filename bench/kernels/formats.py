"""Measures log batches, rows, keys and buckets, relative to pyarrow with the same Arrow data."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench import data
from bench.measure import Line, report
from sluice.formats.keys.bucketing import bucket_numbers
from sluice.formats.keys.keys import encode_key
from sluice.formats.kv.kv_batch import build_kv_batch, parse_kv_batch
from sluice.formats.kv.value_batch import decode_values, stored_values
from sluice.formats.log.batch import (
    check_crc,
    decode_log_batch,
    encode_log_batch,
    iter_batches,
    read_header,
)
from sluice.formats.log.log_format import ARROW, LogFormat
from sluice.formats.rows.arrays import COMPACTED, INDEXED, decode_rows, encode_rows
from sluice.formats.types.types import arrow_schema
from sluice.model import Column, DataType, Schema
from sluice.model.types import BIGINT, STRING

TRIES = 5


def best_cpu_s(work: Callable[[], object]) -> float:
    """Returns the least CPU seconds of several tries."""
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
    _row_logs(batches, rows)
    _rows(batches, rows)
    _kernels()
    _buckets(rows)


def _log_batches(batches: list[pa.RecordBatch], rows: int) -> None:
    """Measures log batches. Both sides use zstd level 3, the default of a table."""
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


def _rows(batches: list[pa.RecordBatch], rows: int) -> None:
    """Measures rows to Arrow and back, relative to pyarrow that writes them to zstd Parquet."""
    schema = data.descriptor(1).schema
    types = [column.data_type for column in schema.columns]
    m = rows / 1e6
    limit = m / best_cpu_s(lambda: _parquet(batches))
    encoded = {of: encode(batches, types, of) for of in (COMPACTED, INDEXED)}
    keys = [encode_key(b, ["id"], schema, None) for b in batches]
    values = [stored_values(each, 1) for each in encoded[COMPACTED]]
    pairs = list(zip(keys, encoded[COMPACTED], strict=True))
    puts = [build_kv_batch(key, each, 1) for key, each in pairs]
    work: dict[str, Callable[[], object]] = {
        "kv_batch_build": lambda: [build_kv_batch(key, each, 1) for key, each in pairs],
        "kv_batch_parse": lambda: [parse_kv_batch(put) for put in puts],
        "stored_values_decode": lambda: [
            decode_values(each, {1: schema}, schema, COMPACTED) for each in values
        ],
    }
    for of, arrays in encoded.items():
        name = f"rows_{of.lower()}"
        work[f"{name}_encode"] = partial(encode, batches, types, of)
        work[f"{name}_decode"] = partial(decode, arrays, types, of)
    report(Line("rows_as_parquet", limit, "M rows/core-s", None, "pyarrow, zstd: the reference"))
    for name in sorted(work):
        value = m / best_cpu_s(work[name])
        report(Line(name, value, "M rows/core-s", value / limit, "pyarrow's zstd Parquet"))


def _row_logs(batches: list[pa.RecordBatch], rows: int) -> None:
    """Measures log batches in the row formats, as a writer and a reader of the log use them."""
    schema, m = data.descriptor(1).schema, rows / 1e6
    arrow_s: list[float] = []
    for name in (ARROW, COMPACTED, INDEXED):
        of = LogFormat(name)
        log = _written(of, batches, schema)
        found_s = [
            best_cpu_s(partial(_written, of, batches, schema)),
            best_cpu_s(partial(_read, of, log, schema)),
        ]
        arrow_s = arrow_s or found_s
        beside = f"ARROW with zstd; {sum(map(len, log)) / rows:.0f} bytes a row"
        for what, took_s, reference_s in zip(("encode", "decode"), found_s, arrow_s, strict=True):
            line = f"log_{name.lower()}_{what}"
            report(Line(line, m / took_s, "M rows/core-s", reference_s / took_s, beside))


def _written(of: LogFormat, batches: list[pa.RecordBatch], schema: Schema) -> list[bytes]:
    return [of.encode(of.rows(batch, schema), 1) for batch in batches]


def _read(of: LogFormat, log: list[bytes], schema: Schema) -> None:
    for content in log:
        header = read_header(content)
        check_crc(content, header)
        of.decode(content, header, schema)


def encode(batches: list[pa.RecordBatch], types: list[DataType], row_format: str) -> list[pa.Array]:
    return [encode_rows(batch, types, row_format) for batch in batches]


def decode(arrays: list[pa.Array], types: list[DataType], row_format: str) -> None:
    for rows in arrays:
        decode_rows(rows, types, row_format)


def _parquet(batches: list[pa.RecordBatch]) -> None:
    with pq.ParquetWriter(io.BytesIO(), data.ARROW_SCHEMA, compression="zstd") as writer:
        writer.write_table(pa.Table.from_batches(batches))


_LOAD = """
import json, sys, time
from sluice.formats.rows.column_memory import load_kernels
started = time.process_time(), time.perf_counter()
load_kernels()
print(json.dumps([time.process_time() - started[0], time.perf_counter() - started[1]]))
"""


def _kernels() -> None:
    """Measures the start of a process: the first one compiles the loops, others load them."""
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as cache:
        environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
        for name, text in (("compile", "once per user and machine"), ("load", "once per process")):
            command = [sys.executable, "-c", _LOAD]
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=True
            )
            cpu_s, wall_s = json.loads(done.stdout)
            report(Line(f"kernels_{name}", cpu_s, "core-s", None, f"{text}; {wall_s:.2f} s wall"))


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
