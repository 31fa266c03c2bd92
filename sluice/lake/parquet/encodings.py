"""Chooses how Parquet files store each column, by its type and the first rows."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

DELTA = "DELTA_BINARY_PACKED"
_SAMPLE_ROWS = 20_000
_DICTIONARY_RATIO = (
    4  # a column gets a dictionary if each value of its sample occurs 4 times on average
)
_FEW_ROWS = _SAMPLE_ROWS // 10
_FEW_MAX = _FEW_ROWS * 9 // 10
_DECIMAL_DIGITS_MAX = 18
"""The most digits of a DECIMAL that Parquet stores as an integer."""


def dictionary_columns(table: pa.Table) -> list[str]:
    """The columns to write with a dictionary: those whose values repeat in the first rows.

    A dictionary costs a hash per value and only pays off if values repeat. Parquet itself drops a
    dictionary only after a megabyte of distinct values.
    """
    sample = table.slice(0, _SAMPLE_ROWS)
    limit = max(1, sample.num_rows // _DICTIONARY_RATIO)
    # a random tenth of the sample of such a column has fewer than 90 % distinct values
    few = sample.take(_few()) if sample.num_rows == _SAMPLE_ROWS else None
    found = []
    for field, column in zip(sample.schema, sample.columns, strict=True):
        if pa.types.is_nested(field.type) or pa.types.is_boolean(field.type):
            continue
        if pa.types.is_dictionary(field.type):
            found.append(field.name)
            continue
        if few is not None and pc.count_distinct(few.column(field.name)).as_py() > _FEW_MAX:
            continue
        if pc.count_distinct(column).as_py() <= limit:
            found.append(field.name)
    return found


@functools.cache
def _few() -> pa.Array:
    """Positions of a random tenth of a sample, always the same ones."""
    return pa.array(np.random.default_rng(0).choice(_SAMPLE_ROWS, _FEW_ROWS, replace=False))


def delta_columns(
    table: pa.Table, dictionaries: Sequence[str], compression: str, level: int | None
) -> list[str]:
    """The columns to write as differences: numbers whose first rows take fewer bytes that way.

    Text stays as it is: of the columns that were tried, none became smaller and cheaper.
    """
    names = [f.name for f in table.schema if f.name not in dictionaries and _is_integer(f.type)]
    if not names or not table.num_rows:
        return []
    sample = table.select(names).slice(0, _SAMPLE_ROWS)
    plain, delta = (_sizes(sample, e, compression, level) for e in ("PLAIN", DELTA))
    return [name for name, a, b in zip(names, plain, delta, strict=True) if b < a]


def _is_integer(kind: pa.DataType) -> bool:
    """Whether Parquet stores a type as an integer of 32 or 64 bits."""
    if pa.types.is_decimal128(kind):
        return bool(kind.precision <= _DECIMAL_DIGITS_MAX)
    return bool(pa.types.is_integer(kind) or pa.types.is_temporal(kind))


def _sizes(sample: pa.Table, encoding: str, compression: str, level: int | None) -> list[int]:
    """The bytes of each column in a file with this encoding."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        sample.schema,
        compression=compression,
        compression_level=level,
        use_dictionary=False,
        column_encoding=dict.fromkeys(sample.schema.names, encoding),
        store_schema=False,
        store_decimal_as_integer=True,
        version="2.6",
    ) as writer:
        writer.write_table(sample, row_group_size=sample.num_rows)
    group = pq.read_metadata(pa.BufferReader(sink.getvalue())).row_group(0)
    return [group.column(i).total_compressed_size for i in range(group.num_columns)]
