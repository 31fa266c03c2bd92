"""Generates rows of about 100 bytes, like those of an event log. Every run has the same rows."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from sluice.model import Column, Schema, TableDescriptor
from sluice.model import types as t

EVENTS = np.array(["view", "click", "cart", "buy", "refund"])
ARROW_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("user_id", pa.int32()),
        ("event", pa.string()),
        ("url", pa.string()),
        ("amount", pa.decimal128(12, 2)),
        ("score", pa.float64()),
        ("ok", pa.bool_()),
        ("ts", pa.timestamp("us")),
    ]
)
_TYPES = (
    t.BIGINT,
    t.INT,
    t.STRING,
    t.STRING,
    t.decimal(12, 2),
    t.DOUBLE,
    t.BOOLEAN,
    t.timestamp(6),
)
_START = np.datetime64("2026-01-01T00:00:00", "us")
BATCH_ROWS = 50_000
BODIES = 10
"""After so many batches the rows repeat, except for ``id`` and ``ts``."""


def descriptor(buckets: int) -> TableDescriptor:
    """Returns a log table without bucket key: the writer fills the buckets in turn."""
    columns = tuple(
        Column(name, data_type, i)
        for i, (name, data_type) in enumerate(zip(ARROW_SCHEMA.names, _TYPES, strict=True))
    )
    return TableDescriptor(
        Schema(columns, highest_field_id=len(columns) - 1),
        bucket_count=buckets,
        properties={"table.datalake.enabled": "true", "table.datalake.freshness": "1ms"},
    )


def keyed_descriptor(buckets: int) -> TableDescriptor:
    """Returns a table of the same rows with the primary key ``id``."""
    columns = descriptor(buckets).schema.columns
    key = Column("id", t.BIGINT.not_null(), 0)
    schema = Schema((key, *columns[1:]), ("id",), len(columns) - 1)
    return TableDescriptor(schema, bucket_count=buckets)


def batches(rows: int) -> Iterator[pa.RecordBatch]:
    """Yields about ``rows`` rows in batches of 50,000: ten different bodies, always new ids."""
    bodies = [_body(seed) for seed in range(min(BODIES, math.ceil(rows / BATCH_ROWS)))]
    for i, first in enumerate(range(0, rows, BATCH_ROWS)):
        count = min(BATCH_ROWS, rows - first)
        ids = np.arange(first, first + count)
        columns = [
            pa.array(ids),
            *(c.slice(0, count) for c in bodies[i % BODIES]),
            pa.array(times(ids)),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=ARROW_SCHEMA)


def times(rows: np.ndarray) -> np.ndarray:
    """The column ``ts`` of rows by their numbers."""
    return _START + rows


def _body(seed: int) -> list[pa.Array]:
    rng = np.random.default_rng(seed)
    n = BATCH_ROWS
    cents = np.zeros((n, 2), "<i8")  # decimal128: 16 bytes, little endian
    cents[:, 0] = rng.integers(0, 10_000_000, n)
    items, sessions = rng.integers(0, 500_000, n).tolist(), rng.integers(0, 2**62, n).tolist()
    urls = [f"/shop/item/{a:08d}?session={b:016x}" for a, b in zip(items, sessions, strict=True)]
    return [
        pa.array(rng.integers(0, 1_000_000, n, dtype="int32")),
        pa.array(EVENTS[rng.integers(0, 5, n)]),
        pa.array(urls),
        pa.Array.from_buffers(pa.decimal128(12, 2), n, [None, pa.py_buffer(cents)]),
        pa.array(rng.random(n)),
        pa.array(rng.random(n) < 0.9),
    ]
