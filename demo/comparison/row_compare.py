"""Compares all rows of two tables, whatever their order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from demo.comparison.compare import Difference, differences, facts_of

_COPIES = "__copies"


def row_differences(table: str, source: pa.Table, lake: pa.Table) -> list[Difference]:
    """Returns what differs, with each value of each row compared, and nulls equal to nulls.

    :param table: names the table in the differences.
    """
    plain = pa.schema([pa.field(field.name, field.type) for field in source.schema])
    source, lake = source.cast(plain), lake.select(plain.names).cast(plain)
    missing, extra = _alone(source, lake)
    if not missing and not extra:
        return []
    return [
        Difference(table, "rows that are not in the lake", "count", missing, 0),
        Difference(table, "rows that are not in the source", "count", 0, extra),
        *differences(table, facts_of(source), facts_of(lake)),
    ]


def _alone(source: pa.Table, lake: pa.Table) -> tuple[int, int]:
    """How many rows only the source has, and how many only the lake."""
    counted = pa.concat_tables([_with_copies(source, 1), _with_copies(lake, -1)])
    found = counted.group_by(source.column_names).aggregate([(_COPIES, "sum")])
    copies = found[f"{_COPIES}_sum"].to_numpy()
    return int(copies[copies > 0].sum()), int(-copies[copies < 0].sum())


def _with_copies(rows: pa.Table, copies: int) -> pa.Table:
    return rows.append_column(_COPIES, pa.array(np.full(rows.num_rows, copies, np.int64)))
