"""Finds rows of log tables that Iceberg cannot hold, although they can be read."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from sluice.formats.log.checks import forbidden_null, map_entries

_PER_MICROSECOND = {"s": 1_000_000, "ms": 1_000}
_MICROSECONDS_MAX = 2**63 - 1


def lake_problem(batch: pa.RecordBatch) -> str:
    """Why the lake cannot hold a batch; empty if it can.

    A NOT NULL column may have nulls if a server does not check them. A TIMESTAMP(0) to (3) may be
    beyond the microseconds that Iceberg has.
    """
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if named := forbidden_null(field, column):
            return f"column {named} is NOT NULL but contains nulls"
        for stamps in _coarse_stamps(column):
            unit = stamps.type.unit
            limit = _MICROSECONDS_MAX // _PER_MICROSECOND[unit]
            found = pc.min_max(stamps.view(pa.int64()))
            for value in (found["min"].as_py(), found["max"].as_py()):
                if value is not None and abs(value) > limit:
                    return (
                        f"column {field.name!r} has the timestamp {value} {unit}, which does not"
                        " fit the microseconds of the lake"
                    )
    return ""


def _coarse_stamps(array: pa.Array) -> Iterator[pa.Array]:
    """The timestamps of seconds or milliseconds in a column, at any depth."""
    data_type = array.type
    if pa.types.is_timestamp(data_type):
        if data_type.unit in _PER_MICROSECOND:
            yield array
    elif pa.types.is_struct(data_type):
        for index in range(data_type.num_fields):
            yield from _coarse_stamps(array.field(index))
    elif pa.types.is_map(data_type):
        for entries in map_entries(array):
            yield from _coarse_stamps(entries)
    elif pa.types.is_list(data_type):
        yield from _coarse_stamps(array.flatten())
