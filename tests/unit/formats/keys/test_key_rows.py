"""Primary keys, encoded and decoded again."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from sluice.errors import CorruptRecord, UnsupportedLakeOption, UnsupportedType
from sluice.formats.keys.key_rows import decode_keys
from sluice.formats.keys.primary_keys import KV_FORMAT_VERSION, primary_keys
from sluice.formats.types.types import arrow_type
from sluice.model import Column, DataType, Schema, TableInfo, TypeRoot
from sluice.model import types as t
from tests.conformance.every_type import EVERY_TYPE, every_value
from tests.support.models.tables import table_info

MORE: dict[str, DataType] = {
    "a small decimal": t.decimal(5, 2),
    "a large decimal": t.decimal(38, 10),
    "seconds": t.timestamp(0),
    "milliseconds": t.timestamp(3),
    "nanoseconds": t.timestamp(9),
    "zoned nanoseconds": t.timestamp_ltz(9),
    "time in seconds": t.time(0),
}
EVERY_VALUE = every_value()


def info_of(columns: dict[str, DataType], lake: str | None = None) -> TableInfo:
    names = tuple(columns)
    fields = (Column(name, kind.not_null(), i) for i, (name, kind) in enumerate(columns.items()))
    schema = Schema(tuple(fields), names, len(names) - 1)
    info = table_info(columns)
    properties = {KV_FORMAT_VERSION: "2"} | ({"table.datalake.format": lake} if lake else {})
    descriptor = replace(info.descriptor, schema=schema, properties=properties, bucket_keys=names)
    return replace(info, descriptor=descriptor)


def values_of(kind: DataType, name: str) -> pa.Array:
    if name in EVERY_VALUE.column_names:
        return EVERY_VALUE[name].combine_chunks().drop_null()
    numbers = pa.array([0, 1, 7, 40_000, 86_399], pa.int64())
    if kind.root is TypeRoot.DECIMAL:
        texts = ["0.00", "1.50", "-1.50", "999.99", "-999.99"]
        return pa.array(texts).cast(pa.decimal128(38, 10)).cast(arrow_type(kind))
    if kind.root is TypeRoot.TIME:
        return numbers.cast(pa.int32()).cast(arrow_type(kind))
    return numbers.cast(arrow_type(kind))


ALL = EVERY_TYPE | MORE


@pytest.mark.parametrize("lake", [None, "iceberg"])
@pytest.mark.parametrize("name", ALL)
def test_a_key_of_one_column(name: str, lake: str | None) -> None:
    kind = ALL[name]
    info, values = info_of({name: kind}, lake), values_of(kind, name)
    assert len(values)
    try:
        keys = primary_keys(pa.record_batch({name: values}), info)
    except UnsupportedType:
        assert lake == "iceberg"
        return
    [(found, column)] = decode_keys(keys, info).items()
    assert found == name
    assert column.type == values.type
    again = primary_keys(pa.record_batch({name: column}), info)
    assert again.equals(keys)
    if name != "nanoseconds" or lake is None:  # Iceberg's keys have microseconds
        assert column.equals(values)


def test_keys_of_several_columns() -> None:
    kinds = {"a": t.INT, "b": t.STRING, "c": t.decimal(20, 3), "d": t.BOOLEAN, "e": t.timestamp(9)}
    info = info_of(kinds)
    columns = {
        "a": pa.array([-1, 2**31 - 1], pa.int32()),
        "b": pa.array(["", "é" * 300]),
        "c": pa.array(["-1.5", "12345678901234567.125"]).cast(pa.decimal128(20, 3)),
        "d": pa.array([True, False]),
        "e": pa.array([-1, 10**18 + 1], pa.timestamp("ns")),
    }
    keys = primary_keys(pa.record_batch(columns), info)
    assert decode_keys(keys, info) == columns
    assert decode_keys(keys[1:], info) == {name: column[1:] for name, column in columns.items()}
    assert all(len(column) == 0 for column in decode_keys(keys[:0], info).values())


@pytest.mark.parametrize(
    ("kind", "lake", "key"),
    [
        (t.STRING, None, b"\x05ab"),
        (t.BIGINT, None, b""),
        (t.BIGINT, "iceberg", b"\x01"),
        (t.INT, "iceberg", (2**40).to_bytes(8, "little")),
        (t.STRING, "iceberg", b"\xff"),
        (t.decimal(3, 0), "iceberg", b"\x7f" * 9),
    ],
)
def test_bytes_that_are_no_key(kind: DataType, lake: str | None, key: bytes) -> None:
    with pytest.raises(CorruptRecord):
        decode_keys(pa.array([key], pa.binary()), info_of({"k": kind}, lake))


def test_the_keys_of_paimon_are_not_decoded() -> None:
    with pytest.raises(UnsupportedLakeOption, match="'paimon' cannot be decoded"):
        decode_keys(pa.array([b"x"], pa.binary()), info_of({"k": t.INT}, "paimon"))
