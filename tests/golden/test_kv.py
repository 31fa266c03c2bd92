"""KV batches that pyfluss sent, and values that a real tablet server answered."""

from __future__ import annotations

import json

import pyarrow as pa

from sluice.formats.keys.keys import encode_key
from sluice.formats.kv.kv_batch import build_kv_batch, parse_kv_batch
from sluice.formats.kv.value_batch import (
    build_value_batch,
    decode_values,
    stored_values,
    values_of,
)
from sluice.formats.rows.arrays import COMPACTED, decode_rows, encode_rows
from sluice.formats.types.types import arrow_schema
from tests.golden import tables
from tests.golden.files import DATA, columns, read, read_arrow

SCHEMA = tables.KEYED
TYPES = [column.data_type for column in SCHEMA.columns]
WRITTEN = tables.for_python(tables.rows(SCHEMA, nulls=True))
NULLABLE = pa.schema([field.with_nullable(True) for field in arrow_schema(SCHEMA)])


def one_batch(table: pa.Table) -> pa.RecordBatch:
    [batch] = table.combine_chunks().to_batches()
    return batch


def keys_of(table: pa.Table) -> list[bytes]:
    return encode_key(one_batch(table), SCHEMA.primary_key, SCHEMA, None).to_pylist()


def columns_of(rows: pa.Array) -> pa.Table:
    """A row that is not there is null in every column, whatever the column says."""
    return pa.Table.from_arrays(decode_rows(rows, TYPES, COMPACTED), schema=NULLABLE)


def test_upserts_and_deletes_are_read_as_they_were_meant() -> None:
    batches = [parse_kv_batch(path.read_bytes()) for path in sorted(DATA.glob("kv/put_*.kv"))]
    found = pa.concat_tables([columns_of(batch.rows) for batch in batches]).combine_chunks()
    count = WRITTEN.num_rows
    expected = WRITTEN.cast(NULLABLE).take([*range(count), 1, 2, None, None])
    assert found.equals(expected.combine_chunks())
    keys = keys_of(WRITTEN)
    unknown = b"\x4d\x06nobody"
    assert [key for batch in batches for key in batch.keys.to_pylist()] == [
        *keys,
        *keys[1:3],
        unknown,
        keys[0],
    ]
    deletes = [row is None for batch in batches for row in batch.rows.to_pylist()]
    assert deletes == [False] * (count + 2) + [True, True]


def test_batches_are_written_byte_for_byte() -> None:
    for path in DATA.glob("kv/put_*.kv"):
        batch = parse_kv_batch(path.read_bytes())
        there = batch.rows.is_valid()
        again = encode_rows(one_batch(columns_of(batch.rows)), TYPES, COMPACTED)
        rows = pa.compute.if_else(there, again, None)
        content = build_kv_batch(
            batch.keys, rows, batch.schema_id, batch.writer_id, batch.batch_sequence
        )
        assert content == path.read_bytes(), path.name


def test_values_of_a_limit_scan() -> None:
    theirs = columns(read_arrow("kv/limit_scan.arrow"), SCHEMA)
    values = values_of(read("kv/limit_scan.values"))
    assert {value[:2] for value in values.to_pylist()} == {b"\1\0"}, "the schema id"
    found = decode_values(values, {1: SCHEMA}, SCHEMA, COMPACTED)
    assert pa.Table.from_batches([found]).equals(theirs)
    assert found.num_rows == WRITTEN.num_rows - 1, "one key is deleted"
    again = stored_values(encode_rows(found, TYPES, COMPACTED), 1)
    assert build_value_batch(again) == read("kv/limit_scan.values")


def test_keys_and_values_of_look_ups() -> None:
    asked = WRITTEN.slice(1, 3)
    found = sorted(json.loads(read("kv/lookup.json")), key=lambda entry: entry["key"])
    assert [bytes.fromhex(entry["key"]) for entry in found] == sorted(keys_of(asked))
    values = pa.array([bytes.fromhex(entry["value"]) for entry in found], pa.binary())
    batch = decode_values(values, {1: SCHEMA}, SCHEMA, COMPACTED)
    assert pa.Table.from_batches([batch]).equals(asked.combine_chunks())
    assert stored_values(encode_rows(batch, TYPES, COMPACTED), 1).equals(values)
