"""KV batches that pyfluss sent, and values that a real tablet server answered."""

from __future__ import annotations

import json

import pyarrow as pa

from sluice.formats.keys import encode_key
from sluice.formats.kv_batch import (
    decode_kv_batch,
    decode_value,
    decode_value_batch,
    encode_kv_batch,
    encode_value,
    encode_value_batch,
)
from sluice.formats.rows import COMPACTED, decode_row, encode_row
from tests.golden import tables
from tests.golden.files import DATA, columns, read, read_arrow

SCHEMA = tables.KEYED
TYPES = [column.data_type for column in SCHEMA.columns]
WRITTEN = tables.for_python(tables.rows(SCHEMA, nulls=True))


def keys_of(table: pa.Table) -> list[bytes]:
    [batch] = table.combine_chunks().to_batches()
    return encode_key(batch, SCHEMA.primary_key, SCHEMA, None).to_pylist()


def test_upserts_and_deletes_are_read_as_they_were_meant() -> None:
    records = [
        (bytes(key), None if row is None else decode_row(row, TYPES, COMPACTED))
        for number in range(len(list(DATA.glob("kv/put_*.kv"))))
        for key, row in decode_kv_batch(read(f"kv/put_{number}.kv")).records
    ]
    rows, keys = tables.plain_rows(WRITTEN, SCHEMA), keys_of(WRITTEN)
    upserts = list(zip(keys, rows, strict=True))
    unknown = b"\x4d\x06nobody"
    assert records == [*upserts, *upserts[1:3], (unknown, None), (keys[0], None)]


def test_batches_are_written_byte_for_byte() -> None:
    for path in DATA.glob("kv/put_*.kv"):
        batch = decode_kv_batch(path.read_bytes())
        records = [
            (
                bytes(key),
                None
                if row is None
                else encode_row(decode_row(row, TYPES, COMPACTED), TYPES, COMPACTED),
            )
            for key, row in batch.records
        ]
        again = encode_kv_batch(
            records,
            batch.schema_id,
            writer_id=batch.writer_id,
            batch_sequence=batch.batch_sequence,
        )
        assert again == path.read_bytes(), path.name


def test_values_of_a_limit_scan() -> None:
    theirs = columns(read_arrow("kv/limit_scan.arrow"), SCHEMA)
    values = decode_value_batch(read("kv/limit_scan.values"))
    assert {schema_id for schema_id, _ in values} == {1}
    rows = [decode_row(row, TYPES, COMPACTED) for _, row in values]
    assert rows == tables.plain_rows(theirs, SCHEMA)
    assert len(rows) == WRITTEN.num_rows - 1, "one key is deleted"
    again = encode_value_batch([encode_value(1, encode_row(r, TYPES, COMPACTED)) for r in rows])
    assert again == read("kv/limit_scan.values")


def test_keys_and_values_of_look_ups() -> None:
    asked = WRITTEN.slice(1, 3)
    found = sorted(json.loads(read("kv/lookup.json")), key=lambda entry: entry["key"])
    assert [bytes.fromhex(entry["key"]) for entry in found] == sorted(keys_of(asked))
    for entry, row in zip(found, tables.plain_rows(asked, SCHEMA), strict=True):
        schema_id, value = decode_value(bytes.fromhex(entry["value"]))
        assert (schema_id, decode_row(value, TYPES, COMPACTED)) == (1, row)
