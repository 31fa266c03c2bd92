"""Computes facts of a table twice, with pyarrow from the source and with Spark SQL from the lake.

Every fact is a whole number or a string, so that both sides must be exactly equal. Doubles are
summed as millionths, strings as CRC-32, timestamps as milliseconds, and dates as days.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Value = int | float | str | None
Sql = Callable[[str], Sequence[Mapping[str, Any]]]
MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Facts:
    """Row count; sum, minimum, maximum and nulls per column; row count per origin."""

    rows: int
    columns: Mapping[str, Mapping[str, Value]]
    by_origin: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Difference:
    """A number that differs between source and lake."""

    table: str
    where: str
    measure: str
    source: Value
    lake: Value

    def __str__(self) -> str:
        return (
            f"{self.table}, {self.where}: {self.measure} is {self.lake} in the lake and "
            f"{self.source} in the source"
        )


def facts_of(rows: pa.Table) -> Facts:
    """Computes the facts of Arrow rows."""
    counts = pc.value_counts(rows["origin"].combine_chunks())
    by_origin = {entry["values"].as_py(): entry["counts"].as_py() for entry in counts}
    columns = {name: _measures(rows[name].combine_chunks()) for name in rows.column_names}
    return Facts(rows.num_rows, columns, by_origin)


def _measures(values: pa.Array) -> dict[str, Value]:
    comparable = values
    if pa.types.is_timestamp(values.type):
        comparable = pc.cast(values, pa.timestamp("ms", values.type.tz)).cast(pa.int64())
    elif pa.types.is_date(values.type):
        comparable = pc.cast(values, pa.int32())
    extremes = pc.min_max(comparable).as_py()
    return {
        "sum": _sum(comparable),
        "min": extremes["min"],
        "max": extremes["max"],
        "nulls": values.null_count,
    }


def _sum(values: pa.Array) -> int:
    present = values.drop_null()
    if pa.types.is_floating(present.type):
        return int(np.floor(present.to_numpy() * MILLION).astype(np.int64).sum())
    if pa.types.is_string(present.type):
        counted = present.value_counts()
        checksums = [zlib.crc32(text.encode()) for text in counted.field("values").to_pylist()]
        return int(np.dot(np.array(checksums, np.int64), counted.field("counts").to_numpy()))
    return int(pc.sum(pc.cast(present, pa.int64())).as_py() or 0)


def lake_facts(sql: Sql, table: str, schema: pa.Schema) -> Facts:
    """Computes the facts with Spark SQL. ``table`` is the full name of the table in Spark."""
    parts = [part for column in schema for part in _expressions(column)]
    row = sql(f"SELECT count(*) AS n, {', '.join(parts)} FROM {table}")[0]
    columns = {
        name: {measure: row[f"{name}__{measure}"] for measure in ("sum", "min", "max", "nulls")}
        for name in schema.names
    }
    counts = sql(f"SELECT origin, count(*) AS n FROM {table} GROUP BY origin")
    return Facts(row["n"], columns, {count["origin"]: count["n"] for count in counts})


def _expressions(column: pa.Field) -> list[str]:
    name, value = column.name, f"`{column.name}`"
    summed, compared = value, value
    if pa.types.is_timestamp(column.type):
        summed = compared = f"unix_millis({value})"
    elif pa.types.is_date(column.type):
        summed = compared = f"unix_date({value})"
    elif pa.types.is_floating(column.type):
        summed = f"CAST(floor({value} * {MILLION}D) AS BIGINT)"
    elif pa.types.is_string(column.type):
        summed = f"crc32(CAST({value} AS BINARY))"
    return [
        f"coalesce(sum(CAST({summed} AS BIGINT)), 0) AS {name}__sum",
        f"min({compared}) AS {name}__min",
        f"max({compared}) AS {name}__max",
        f"count_if({value} IS NULL) AS {name}__nulls",
    ]


def with_joined_rows(rows: pa.Table) -> pa.Table:
    """Adds a column ``whole`` that joins all values of a row to one string."""
    texts = [pc.cast(rows[name], pa.string()) for name in rows.column_names]
    whole = pc.binary_join_element_wise(*texts, "|", null_handling="replace", null_replacement="-")
    return rows.append_column(pa.field("whole", pa.string()), whole)


def joined_rows_sql(table: str, schema: pa.Schema, snapshot_id: int | None = None) -> str:
    """Returns the SQL of :func:`with_joined_rows`, to use in place of a table name."""
    texts = ", ".join(f"coalesce(CAST(`{name}` AS STRING), '-')" for name in schema.names)
    version = "" if snapshot_id is None else f" VERSION AS OF {snapshot_id}"
    return f"(SELECT *, concat_ws('|', {texts}) AS whole FROM {table}{version})"


def differences(table: str, source: Facts, lake: Facts) -> list[Difference]:
    """Returns every number that differs between source and lake."""
    found = []
    if source.rows != lake.rows:
        found.append(Difference(table, "all rows", "count", source.rows, lake.rows))
    for name in sorted(source.columns.keys() | lake.columns.keys()):
        in_source, in_lake = source.columns.get(name, {}), lake.columns.get(name, {})
        for measure in sorted(in_source.keys() | in_lake.keys()):
            if in_source.get(measure) != in_lake.get(measure):
                where = f"column {name}"
                found.append(
                    Difference(table, where, measure, in_source.get(measure), in_lake.get(measure))
                )
    for origin in sorted(source.by_origin.keys() | lake.by_origin.keys()):
        source_rows, lake_rows = source.by_origin.get(origin, 0), lake.by_origin.get(origin, 0)
        if source_rows != lake_rows:
            found.append(Difference(table, f"origin {origin}", "count", source_rows, lake_rows))
    return found


def offset_differences(
    sql: Sql, name: str, table: str, partition: str | None, end_offsets: int
) -> list[Difference]:
    """Checks that the lake has each offset of each bucket exactly once.

    A clean lake table does not say the offsets of its rows: it has as many rows as the logs.
    ``end_offsets`` is the sum of the log's end offsets over all buckets.
    """
    columns = {row["col_name"] for row in sql(f"DESCRIBE TABLE {table}")}
    if "__offset" not in columns:
        rows = sql(f"SELECT count(*) AS n FROM {table}")[0]["n"]
        if rows == end_offsets:
            return []
        return [Difference(name, "all buckets", "rows", end_offsets, rows)]
    keys = ", ".join(filter(None, (partition, "__bucket")))
    buckets = sql(
        f"SELECT {keys}, count(*) AS n, count(DISTINCT __offset) AS offsets,"
        f" min(__offset) AS first, max(__offset) AS last FROM {table} GROUP BY {keys}"
    )
    found = []
    for bucket in buckets:
        where = ", ".join(f"{key.strip('_')} {bucket[key]}" for key in keys.split(", "))
        want = bucket["last"] + 1
        for measure, seen, wanted in (
            ("first offset", bucket["first"], 0),
            ("rows", bucket["n"], want),
            ("distinct offsets", bucket["offsets"], want),
        ):
            if seen != wanted:
                found.append(Difference(name, where, measure, wanted, seen))
    total = sum(bucket["last"] + 1 for bucket in buckets)
    if total != end_offsets:
        found.append(Difference(name, "all buckets", "end offsets", end_offsets, total))
    return found
