"""What our encoders write, a real tablet server takes and the official client reads."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from sluice.formats.keys.keys import encode_key
from sluice.formats.kv.kv_batch import build_kv_batch
from sluice.formats.kv.value_batch import decode_values
from sluice.formats.log.batch import (
    change_types,
    check_crc,
    decode_log_batch,
    encode_log_batch,
    iter_batches,
)
from sluice.formats.rows.arrays import encode_rows
from sluice.formats.types.types import arrow_schema, arrow_type
from sluice.model import Column, DataType, RowField, Schema, TypeRoot
from sluice.model import types as t
from tests.golden import tables
from tests.golden.files import columns
from tests.real_fluss.raw import RawCluster
from tests.support.clients.official_client import OfficialClient
from tests.support.fluss.real_fluss import RealFluss
from tests.support.harness.needs import needs_pyfluss

COMPRESSION = "table.log.arrow.compression.type"
pytestmark = pytest.mark.real_fluss
SCHEMAS = {"nullable": tables.NULLABLE, "not_null": tables.NOT_NULL}
TYPES = [column.data_type for column in tables.KEYED.columns]


@pytest.fixture(scope="module")
def raw(real_fluss: RealFluss) -> Iterator[RawCluster]:
    cluster = RawCluster(real_fluss, "encoders")
    yield cluster
    cluster.close()


def one_batch(table: pa.Table) -> pa.RecordBatch:
    [batch] = table.combine_chunks().to_batches()
    return batch


@needs_pyfluss
def test_pyfluss_reads_log_batches_of_every_type(real_fluss: RealFluss, raw: RawCluster) -> None:
    """With nulls and without, in each compression: one process of pyfluss reads them all."""
    written = {}
    for label, schema in SCHEMAS.items():
        for compression in tables.COMPRESSIONS:
            name = f"{label}_{compression.lower()}"
            table_id = raw.create(name, schema, {COMPRESSION: compression})
            rows = tables.rows(schema, nulls=label == "nullable")
            for part in (rows, rows.slice(1, 3), rows.slice(2, 1)):
                raw.produce(table_id, encode_log_batch(one_batch(part), 1, compression=compression))
            written[name] = (schema, pa.concat_tables([rows, rows.slice(1, 3), rows.slice(2, 1)]))
    scans = [{"op": "scan", "path": f"encoders.{name}"} for name in written]
    answers = OfficialClient(real_fluss.bootstrap).run(scans)
    for (name, (schema, rows)), theirs in zip(written.items(), answers, strict=True):
        assert columns(theirs, schema).equals(rows.combine_chunks()), name
        assert theirs["_offset"].to_pylist() == list(range(rows.num_rows)), name


@pytest.mark.slow
@pytest.mark.parametrize("compression", tables.COMPRESSIONS)
@pytest.mark.parametrize("label", SCHEMAS)
def test_server_projects_our_batches(raw: RawCluster, label: str, compression: str) -> None:
    """The server rewrites the Arrow part itself: it must understand how we laid it out.

    It takes the codec from the table, not from the batch: a batch must have the table's.
    """
    schema = SCHEMAS[label]
    name = f"projected_{label}_{compression.lower()}"
    table_id = raw.create(name, schema, {COMPRESSION: compression})
    rows = tables.rows(schema, nulls=label == "nullable")
    raw.produce(table_id, encode_log_batch(one_batch(rows), 1, compression=compression))
    whole = arrow_schema(schema)
    for projected in ((0,), (1, 9, 12, 25), tuple(range(1, len(whole), 3))):
        some = pa.schema([whole.field(position) for position in projected])
        [(header, view)] = iter_batches(raw.fetch(table_id, projected))
        found = pa.Table.from_batches([decode_log_batch(view, header, some)])
        assert found.equals(rows.select(projected))


def padded(table: pa.Table) -> pa.Table:
    """CHAR and BINARY as long as their columns: Fluss itself trips over padding in INDEXED rows.

    It gives zeros for an empty CHAR, and cannot put a BINARY without its last zeros into Arrow.
    """
    columns_of = {"char_5": ["abcde", "grün", "x.ä.", "12345"], "binary_4": [b"abcd", b"\0\0\0\1"]}
    for name, values in columns_of.items():
        position = table.schema.get_field_index(name)
        field = table.schema.field(position)
        old = table[name].to_pylist()
        new = [v if v is None else values[row % len(values)] for row, v in enumerate(old)]
        table = table.set_column(position, field, pa.array(new, field.type))
    return table


@pytest.mark.slow
@pytest.mark.parametrize("kv_format", ["COMPACTED", "INDEXED"])
def test_server_reads_our_rows(raw: RawCluster, kv_format: str) -> None:
    """It turns the rows of our KV batches into a changelog of Arrow, and answers look-ups."""
    schema = tables.KEYED
    table_id = raw.create(
        f"rows_{kv_format.lower()}", schema, {"table.kv.format": kv_format}, ["name"]
    )
    written = tables.rows(schema, nulls=True)
    if kv_format == "INDEXED":
        written = padded(written)
    rows = encode_rows(one_batch(written), TYPES, kv_format)
    keys = encode_key(one_batch(written), schema.primary_key, schema, None)
    raw.put(table_id, build_kv_batch(keys, rows, 1))
    deleted = pa.array([None, rows[1].as_py()], pa.binary())
    raw.put(table_id, build_kv_batch(keys.slice(0, 2), deleted, 1))

    changes, found = b"", []
    for header, view in iter_batches(raw.fetch(table_id)):
        check_crc(view, header)
        changes += change_types(view, header) or b""
        found.append(decode_log_batch(view, header, arrow_schema(schema)))
    count = written.num_rows
    assert changes == bytes([1] * count + [4, 2, 3])
    expected = written.take([*range(count), 0, 1, 1])
    assert pa.Table.from_batches(found).combine_chunks().equals(expected)

    values = raw.lookup(table_id, [keys[0].as_py(), keys[2].as_py(), b"\x63\x01x"])
    assert values[0] is None
    assert values[2] is None
    assert values[1] == b"\x01\x00" + rows[2].as_py()
    found_row = decode_values(pa.array(values[1:2]), {1: schema}, schema, kv_format)
    assert found_row.equals(one_batch(written.slice(2, 1)))


@pytest.mark.slow
@needs_pyfluss
def test_pyfluss_reads_rows_that_we_put(real_fluss: RealFluss, raw: RawCluster) -> None:
    schema = tables.KEYED
    table_id = raw.create("put_by_us", schema, bucket_keys=["name"])
    written = tables.for_python(tables.rows(schema, nulls=True))
    rows = encode_rows(one_batch(written), TYPES, "COMPACTED")
    keys = encode_key(one_batch(written), schema.primary_key, schema, None)
    raw.put(table_id, build_kv_batch(keys, rows, 1))
    theirs, there = OfficialClient(real_fluss.bootstrap).run(
        [
            {"op": "scan", "path": "encoders.put_by_us"},
            {
                "op": "lookup",
                "path": "encoders.put_by_us",
                "rows": written.select(schema.primary_key),
            },
        ]
    )
    assert set(theirs["_change"].to_pylist()) == {"+I"}
    assert columns(theirs, schema).equals(written.combine_chunks())
    assert there == [True] * written.num_rows


def xy(field_id: int) -> DataType:
    """ROW<x, y>; a table's field ids must differ."""
    fields = RowField("x", t.BIGINT, None, field_id), RowField("y", t.STRING, None, field_id + 1)
    return DataType(TypeRoot.ROW, fields=fields)


NESTED_COLUMNS: dict[str, tuple[DataType, list[Any]]] = {
    "texts": (
        DataType(TypeRoot.ARRAY, element=t.STRING),
        [["short", None, "more than seven bytes"], [], None],
    ),
    "stamps": (
        DataType(TypeRoot.ARRAY, element=t.timestamp(6)),
        [[dt.datetime(2026, 1, 2, 3, 4, 5, 678901), None], None, []],
    ),
    "numbers": (
        DataType(TypeRoot.ARRAY, element=t.decimal(30, 2)),
        [[Decimal("-1.50"), Decimal("12345678901234567890.12")], [None], None],
    ),
    "counts": (
        DataType(TypeRoot.MAP, key=t.STRING.not_null(), value=t.INT),
        [[("a", 1), ("b", None)], None, []],
    ),
    "pair": (xy(20), [{"x": 2**40, "y": "why"}, {"x": None, "y": None}, None]),
    "pairs": (
        DataType(TypeRoot.ARRAY, element=xy(22)),
        [[{"x": 1, "y": "one"}, None], [], [{"x": None, "y": "a longer text of a row"}]],
    ),
    "deep": (
        DataType(TypeRoot.ARRAY, element=DataType(TypeRoot.ARRAY, element=t.SMALLINT)),
        [[[1, 2], None, []], None, [[-3]]],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kv_format", ["COMPACTED", "INDEXED"])
def test_server_reads_our_nested_values(raw: RawCluster, kv_format: str) -> None:
    """It turns them into Arrow, and keeps the bytes that it was given."""
    columns_of = (Column("id", t.INT.not_null(), 0),) + tuple(
        Column(name, of, number + 1)
        for number, (name, (of, _)) in enumerate(NESTED_COLUMNS.items())
    )
    schema = Schema(columns_of, ("id",), highest_field_id=30)
    arrays = [pa.array(range(3), pa.int32())]
    arrays += [pa.array(values, arrow_type(of)) for of, values in NESTED_COLUMNS.values()]
    batch = pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(schema))
    table_id = raw.create(f"nested_{kv_format.lower()}", schema, {"table.kv.format": kv_format})
    rows = encode_rows(batch, [column.data_type for column in schema.columns], kv_format)
    keys = encode_key(batch, ["id"], schema, None)
    raw.put(table_id, build_kv_batch(keys, rows, 1))
    [(header, view)] = iter_batches(raw.fetch(table_id))
    assert change_types(view, header) == bytes([1] * 3)
    assert decode_log_batch(view, header, arrow_schema(schema)).equals(batch)
    values = raw.lookup(table_id, keys.to_pylist())
    found = decode_values(pa.array(values, pa.binary()), {1: schema}, schema, kv_format)
    assert found.equals(batch)
