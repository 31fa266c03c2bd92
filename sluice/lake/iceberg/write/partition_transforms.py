"""Which partition each row is in: Iceberg's transforms, for all rows of a column at once.

Source: Iceberg's table specification, partition transforms and appendix B.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluice.errors import UnsupportedLakeOption
from sluice.formats.keys.bucketing import bucket_numbers

_DAY_US, _HOUR_US = 86_400_000_000, 3_600_000_000
_INT_MAX = 2**31 - 1


def partition_codes(column: pa.ChunkedArray, transform: str) -> tuple[np.ndarray, list[str | None]]:
    """The number of each row's partition value, and the values as Iceberg's texts; null is None.

    :raises UnsupportedLakeOption: rounds do not support the transform for this type, or Iceberg
        has no hour of a time.
    """
    values = _transformed(column.combine_chunks(), transform)
    encoded = pc.dictionary_encode(values, null_encoding="encode")
    found = encoded.dictionary
    if pa.types.is_date32(found.type):
        texts = [_date(days) for days in found.view(pa.int32()).to_pylist()]
    else:
        texts = [_text(value) for value in found.to_pylist()]
    codes: np.ndarray = encoded.indices.to_numpy(zero_copy_only=False)
    return codes, texts


def _transformed(column: pa.Array, transform: str) -> pa.Array:
    name, _, rest = transform.partition("[")
    if name == "identity":
        return column
    if name == "void":
        return pa.nulls(len(column), pa.string())
    if name == "bucket":
        return _bucket(column, int(rest.rstrip("]")))
    if name == "truncate":
        return _truncate(column, int(rest.rstrip("]")))
    if name in ("year", "month", "day", "hour"):
        return _time(column, name)
    raise UnsupportedLakeOption(f"rounds do not support partition transform {transform}")


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _date(days: int | None) -> str | None:
    """As Java reads it, also before year 0 and after year 9999 (``ISO_LOCAL_DATE``)."""
    if days is None:
        return None
    year, month, day = str(np.datetime64(days, "D")).rsplit("-", 2)
    sign = "+" if int(year) > 9999 else "-" if int(year) < 0 else ""
    return f"{sign}{abs(int(year)):04d}-{month}-{day}"


def _bucket(column: pa.Array, count: int) -> pa.Array:
    """As Fluss's buckets of a table with this bucket key, except that null has none."""
    present = column.drop_null()
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        keys = present.cast(pa.binary())
    else:
        wide = _as_int64(present)
        buffers = [None, pa.py_buffer(np.ascontiguousarray(wide))]
        keys = pa.FixedSizeBinaryArray.from_buffers(pa.binary(8), len(wide), buffers)
        keys = keys.cast(pa.binary())
    numbers = np.zeros(len(column), np.int32)
    is_null = column.is_null().to_numpy(zero_copy_only=False)
    numbers[~is_null] = bucket_numbers(keys, count, "iceberg")
    return pa.array(numbers, mask=is_null)


def _as_int64(column: pa.Array) -> np.ndarray:
    """Numbers, dates and times as the long that Iceberg hashes; null as 0."""
    if pa.types.is_date32(column.type):
        column = column.view(pa.int32())
    elif pa.types.is_temporal(column.type):
        column = column.view(pa.int64())
    found: np.ndarray = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return found


def _truncate(column: pa.Array, width: int) -> pa.Array:
    if pa.types.is_string(column.type):
        return pc.utf8_slice_codeunits(column, 0, width)
    is_null = column.is_null().to_numpy(zero_copy_only=False)
    values = column.fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array(values - values % width, column.type, mask=is_null)


def _time(column: pa.Array, name: str) -> pa.Array:
    """Years and months since 1970, days as dates, hours since 1970."""
    is_null = column.is_null().to_numpy(zero_copy_only=False)
    values = _as_int64(column)
    days = values if pa.types.is_date32(column.type) else values // _DAY_US
    if name == "hour":
        hours = values // _HOUR_US
        if (beyond := np.flatnonzero(np.abs(hours) > _INT_MAX)).size:
            raise UnsupportedLakeOption(
                f"a time on {_date(int(days[beyond[0]]))} has no hour in Iceberg, which counts them"
                " in 32 bits from 1970: partition by days"
            )
        return pa.array(hours.astype(np.int32), mask=is_null)
    if name == "day":
        return pa.array(days.astype(np.int32), pa.int32(), mask=is_null).view(pa.date32())
    months = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
    found = months if name == "month" else months // 12
    return pa.array(found.astype(np.int32), mask=is_null)
