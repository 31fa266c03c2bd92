"""Writes every scalar type of docs/fluss/iceberg.md#types as Parquet and reads it with Spark."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluice.driver.lakes.jvm import Jvm
from sluice.iceberg_rules.layout import Layout
from sluice.lake.iceberg.catalog.java import iterate
from sluice.lake.iceberg.lake import IcebergLake
from sluice.model import TableBucket, TableInfo, TablePath
from sluice.model import types as t
from sluice.rounds.values.lake_files import DataFile
from sluice.rounds.values.types import LogRecords, Split
from tests.support.models.tables import table_info

pytestmark = pytest.mark.spark

UTC = dt.UTC
NOON = dt.datetime(2026, 3, 1, 12, 30, 15, 123456)
OLD = dt.datetime(1901, 2, 3, 4, 5, 6, 789000)

# Fluss type, Arrow type of the log (docs/fluss/log-batches.md#arrow-types), values as the log holds
# them, values as Spark reads
CASES: dict[str, tuple[Any, pa.DataType, list[Any], list[Any]]] = {
    "c_bool": (t.BOOLEAN, pa.bool_(), [True, False], [True, False]),
    "c_tiny": (t.TINYINT, pa.int8(), [-128, 127], [-128, 127]),
    "c_small": (t.SMALLINT, pa.int16(), [-32768, 32767], [-32768, 32767]),
    "c_int": (t.INT, pa.int32(), [-(2**31), 2**31 - 1], [-(2**31), 2**31 - 1]),
    "c_big": (t.BIGINT, pa.int64(), [-(2**63), 2**63 - 1], [-(2**63), 2**63 - 1]),
    "c_float": (t.FLOAT, pa.float32(), [1.5, -0.25], [1.5, -0.25]),
    "c_double": (t.DOUBLE, pa.float64(), [1e300, -2.5], [1e300, -2.5]),
    "c_char": (t.char(3), pa.string(), ["abc", "ä"], ["abc", "ä"]),
    "c_string": (t.STRING, pa.string(), ["", "zürich 漢字"], ["", "zürich 漢字"]),
    "c_binary": (t.binary(2), pa.binary(2), [b"\x00\x01", b"ab"], [b"\x00\x01", b"ab"]),
    "c_bytes": (t.BYTES, pa.binary(), [b"", b"\xff" * 5], [b"", b"\xff" * 5]),
    "c_date": (
        t.DATE,
        pa.date32(),
        [dt.date(1969, 12, 31), dt.date(2026, 3, 1)],
        [dt.date(1969, 12, 31), dt.date(2026, 3, 1)],
    ),
}
for p, s in ((5, 2), (9, 0), (10, 3), (18, 18), (19, 4), (38, 10)):
    big = Decimal((0, (9,) * p, -s))
    CASES[f"c_dec_{p}_{s}"] = (
        t.decimal(p, s),
        pa.decimal128(p, s),
        [big, Decimal((1, (1,), -s))],
        [big, Decimal((1, (1,), -s))],
    )
for precision, unit in ((0, "s"), (3, "ms"), (6, "us"), (9, "ns")):
    cut = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}[unit]

    def floor(value: dt.datetime, cut: int = cut) -> dt.datetime:
        return value.replace(microsecond=value.microsecond // cut * cut)

    values = [floor(NOON), floor(OLD)]
    CASES[f"c_ts_{precision}"] = (t.timestamp(precision), pa.timestamp(unit), values, values)
    CASES[f"c_ltz_{precision}"] = (
        t.timestamp_ltz(precision),
        pa.timestamp(unit),
        values,
        [v.replace(tzinfo=UTC) for v in values],
    )


def write_and_commit(
    lake: IcebergLake,
    info: TableInfo,
    batch: pa.RecordBatch,
    base_offset: int = 0,
    write_id: str = "w0",
    layout: Layout = Layout.CLEAN,
) -> tuple[DataFile, ...]:
    table = lake.load(info.path) or lake.create(info, layout)
    table.add_missing_columns(info)
    split = Split(TableBucket(info.table_id, None, 0), (), 0, base_offset + batch.num_rows)
    writer = table.writer_factory(write_id, [split])(split)
    next_offset = base_offset + batch.num_rows
    writer.write(LogRecords(batch, base_offset, next_offset, 1_700_000_000_123, 1))
    files = writer.close()
    table.commit(files, table.newest_tiering_snapshot(), {"fluss-offsets": f"/o/{base_offset}"})
    return files


@pytest.mark.parametrize("layout", list(Layout))
def test_spark_reads_every_scalar_type_with_nulls(
    jvm: Jvm, lake_sql: Callable[[Path, str], list[Any]], tmp_path: Path, layout: Layout
) -> None:
    info = table_info({name: case[0] for name, case in CASES.items()})
    arrays = {n: pa.array([*values, None], arrow) for n, (_, arrow, values, _) in CASES.items()}
    lake = IcebergLake(jvm.gateway, {"type": "hadoop", "warehouse": str(tmp_path)})
    batch, is_legacy = pa.RecordBatch.from_pydict(arrays), layout is Layout.LEGACY
    (file,) = write_and_commit(lake, info, batch, base_offset=40, layout=layout)

    # Timestamps as text: collect() would pass through this machine's own time zone.
    shown = [f"cast({n} AS string)" if "_ts_" in n or "_ltz_" in n else n for n in CASES]
    if is_legacy:
        shown += ["__bucket", "__offset", "cast(__timestamp AS string)"]
    rows = lake_sql(tmp_path, f"SELECT {', '.join(shown)} FROM lake.db.t ORDER BY _pos")
    for i in (0, 1):
        for (name, (_, _, _, expected)), value in zip(CASES.items(), rows[i], strict=False):
            assert value == _as_spark_shows(expected[i]), name
    assert list(rows[2][: len(CASES)]) == [None] * len(CASES)
    assert [tuple(r[len(CASES) :]) for r in rows] == [
        (0, 40 + i, "2023-11-14 22:13:20.123") if is_legacy else () for i in range(3)
    ]
    physical = {f.name: f for f in pq.read_schema(file.path)}
    assert physical["c_ltz_6"].type == pa.timestamp("us", tz="UTC")
    assert all(one.metadata[b"PARQUET:field_id"] for one in physical.values())
    metrics = lake_sql(tmp_path, "SELECT readable_metrics FROM lake.db.t.files")[0][0]
    assert str(2**31 - 1) in str(metrics["c_int"])
    if is_legacy:
        assert not physical["__offset"].nullable
        assert "42" in str(metrics["__offset"])


def _as_spark_shows(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        text = value.strftime("%Y-%m-%d %H:%M:%S")
        return (f"{text}.{value.microsecond:06d}".rstrip("0")) if value.microsecond else text
    if isinstance(value, bytes):
        return bytearray(value)
    return value


def test_spark_reads_numbers_that_are_written_as_differences(
    jvm: Jvm, lake_sql: Callable[[Path, str], list[Any]], tmp_path: Path
) -> None:
    """With Spark's and Iceberg's own settings, so by Iceberg's vectorized reader."""
    rows = 20_000
    rising = pa.array([None if i % 7 == 3 else i * 13 - 50_000 for i in range(rows)], pa.int64())
    types = {
        "c_int": (t.INT, pa.int32()),
        "c_big": (t.BIGINT, pa.int64()),
        "c_date": (t.DATE, pa.date32()),
        "c_dec_9": (t.decimal(9, 0), pa.decimal128(9, 0)),
        "c_dec_18": (t.decimal(18, 0), pa.decimal128(18, 0)),
        "c_ts": (t.timestamp(6), pa.timestamp("us")),
        "c_ltz": (t.timestamp_ltz(6), pa.timestamp("us")),
    }
    columns = {}
    for name, (_, arrow) in types.items():
        if pa.types.is_decimal(arrow):
            columns[name] = rising.cast(pa.decimal128(21, 0)).cast(arrow)
        else:
            columns[name] = (rising.cast(pa.int32()) if arrow.bit_width == 32 else rising).cast(
                arrow
            )
    batch = pa.RecordBatch.from_pydict(columns)
    info = table_info({name: fluss for name, (fluss, _) in types.items()})
    lake = IcebergLake(jvm.gateway, {"type": "hadoop", "warehouse": str(tmp_path)})
    (before,) = write_and_commit(lake, info, batch, layout=Layout.LEGACY)
    lake_sql(
        tmp_path, "ALTER TABLE lake.db.t SET TBLPROPERTIES ('write.parquet.page-version'='v2')"
    )
    (after,) = write_and_commit(lake, info, batch, rows, "w1")
    for file, differences in ((before, set()), (after, {*types, "__offset"})):
        group = pq.read_metadata(file.path).row_group(0)
        chunks = [group.column(i) for i in range(group.num_columns)]
        found = {c.path_in_schema for c in chunks if "DELTA_BINARY_PACKED" in c.encodings}
        assert found == differences

    [plain, delta] = [
        lake_sql(
            tmp_path,
            "SELECT c_int, c_big, datediff(c_date, '1970-01-01'), c_dec_9, c_dec_18,"
            " cast(c_ts AS string), unix_micros(c_ltz), __offset % 20000 FROM lake.db.t"
            f" WHERE __offset {condition} ORDER BY __offset",
        )
        for condition in ("< 20000", ">= 20000")
    ]
    assert len(delta) == rows
    assert delta == plain
    expected = rising.to_pylist()
    for number in (0, 1, 2, 3, 4, 6):
        assert [row[number] for row in delta] == expected
    wanted = "SELECT count(*), sum(c_big) FROM lake.db.t WHERE c_int > 100000 AND __offset >= 20000"
    above = [i for i in expected if i is not None and i > 100_000]
    assert tuple(lake_sql(tmp_path, wanted)[0]) == (len(above), sum(above))


def test_row_groups_are_no_larger_than_the_table_says(jvm: Jvm, tmp_path: Path) -> None:
    batch = pa.RecordBatch.from_pydict({"a": pa.array(range(1000), pa.int64())})
    lake = IcebergLake(jvm.gateway, {"type": "hadoop", "warehouse": str(tmp_path)})
    info = table_info({"a": t.BIGINT})
    for number, (size, groups) in enumerate([("8000", 4), (str(2**40), 1)]):
        own = {"iceberg.write.parquet.row-group-size-bytes": size}
        described = replace(info.descriptor, custom_properties=own)
        one = replace(info, path=TablePath("db", f"t{number}"), descriptor=described)
        split = Split(TableBucket(1, None, 0), (), 0, 4000)
        writer = lake.create(one).writer_factory("w0", [split])(split)
        for start in range(0, 4000, 1000):
            writer.write(LogRecords(batch, start, start + 1000, 1_700_000_000_123, 1))
        (file,) = writer.close()
        assert pq.read_metadata(file.path).num_row_groups == groups


def test_times_reach_the_file_as_iceberg_wants_them(jvm: Jvm, tmp_path: Path) -> None:
    """Spark has no reader for Iceberg's time type: Iceberg's own reader looks."""
    types = {"a": t.time(0), "b": t.time(3), "c": t.time(6), "d": t.time(9)}
    units = {"a": pa.time32("s"), "b": pa.time32("ms"), "c": pa.time64("us"), "d": pa.time64("ns")}
    value = dt.time(23, 59, 58)
    batch = pa.RecordBatch.from_pydict({n: pa.array([value, None], u) for n, u in units.items()})
    info = table_info(types)
    lake = IcebergLake(jvm.gateway, {"type": "hadoop", "warehouse": str(tmp_path)})
    write_and_commit(lake, info, batch)
    table = lake.load(TablePath("db", "t"))
    assert table is not None
    generics = jvm.gateway.jvm.org.apache.iceberg.data.IcebergGenerics
    records = list(iterate(generics.read(table._loaded.java).build()))
    assert [str(records[0].getField(n)) for n in types] == ["23:59:58"] * 4
    assert [records[1].getField(n) for n in types] == [None] * 4


def test_times_below_a_microsecond_are_cut_downwards(
    jvm: Jvm, lake_sql: Callable[[Path, str], list[Any]], tmp_path: Path
) -> None:
    batch = pa.RecordBatch.from_pydict({"a": pa.array([-1, 1999], pa.timestamp("ns"))})
    lake = IcebergLake(jvm.gateway, {"type": "hadoop", "warehouse": str(tmp_path)})
    write_and_commit(lake, table_info({"a": t.timestamp(9)}), batch)
    rows = lake_sql(tmp_path, "SELECT cast(a AS string) FROM lake.db.t ORDER BY _pos")
    assert [r[0] for r in rows] == ["1969-12-31 23:59:59.999999", "1970-01-01 00:00:00.000001"]


@pytest.mark.parametrize("layout", list(Layout))
def test_nested_types_are_read_back(
    jvm: Jvm, lake_sql: Callable[[Path, str], list[Any]], tmp_path: Path, layout: Layout
) -> None:
    item = t.DataType(
        t.TypeRoot.ROW, fields=(t.RowField("x", t.SMALLINT), t.RowField("y", t.STRING))
    )
    info = table_info(
        {
            "l": t.DataType(t.TypeRoot.ARRAY, element=t.TINYINT),
            "m": t.DataType(t.TypeRoot.MAP, key=t.STRING.not_null(), value=t.BIGINT),
            "r": item,
        }
    )
    row = pa.struct([("x", pa.int16()), ("y", pa.string())])
    batch = pa.RecordBatch.from_pydict(
        {
            "l": pa.array([[1, None], None], pa.list_(pa.field("element", pa.int8()))),
            "m": pa.array([[("k", 5)], None], pa.map_(pa.string(), pa.int64())),
            "r": pa.array([{"x": 7, "y": "z"}, None], row),
        }
    )
    lake = IcebergLake(jvm.gateway, {"type": "hadoop", "warehouse": str(tmp_path)})
    write_and_commit(lake, info, batch, layout=layout)
    rows = lake_sql(tmp_path, "SELECT l, m, r.x, r.y, r FROM lake.db.t ORDER BY _pos")
    assert (rows[0][0], rows[0][1], rows[0][2], rows[0][3]) == ([1, None], {"k": 5}, 7, "z")
    assert tuple(rows[1]) == (None, None, None, None, None)
