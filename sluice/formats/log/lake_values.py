"""Finds rows of log tables that Iceberg cannot hold, although they can be read."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from sluice.formats.types.nested import forbidden_null, leaves

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
        for stamps in leaves(column):
            unit = stamps.type.unit if pa.types.is_timestamp(stamps.type) else None
            if unit not in _PER_MICROSECOND:
                continue
            limit = _MICROSECONDS_MAX // _PER_MICROSECOND[unit]
            found = pc.min_max(stamps.view(pa.int64()))
            for value in (found["min"].as_py(), found["max"].as_py()):
                if value is not None and abs(value) > limit:
                    return (
                        f"column {field.name!r} has the timestamp {value} {unit}, which does not"
                        " fit the microseconds of the lake"
                    )
    return ""
