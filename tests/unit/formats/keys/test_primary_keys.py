"""Which encoder makes a primary key: by KV format, lake format and bucket key.

See docs/fluss/keys-and-buckets.md#key-encoders
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from sluice.errors import InvalidConfig, InvalidTable
from sluice.formats.keys.primary_keys import KV_FORMAT_VERSION, physical_primary_key, primary_keys
from sluice.model import Column, Schema, TableDescriptor, TableInfo, TablePath
from sluice.model import types as t

LAKE = "table.datalake.format"
SCHEMA = Schema(
    (
        Column("v", t.STRING, 0),
        Column("day", t.STRING.not_null(), 1),
        Column("n", t.INT.not_null(), 2),
        Column("s", t.STRING.not_null(), 3),
    ),
    ("n", "day", "s"),
)
ROWS = pa.record_batch(
    [pa.array(["hi"]), pa.array([1], pa.int32()), pa.array(["2026"])], ["s", "n", "day"]
)
COMPACTED = "01 026869"
PAIMON = "0000000000000000 0100000000000000 6869000000000082"


def table(schema: Schema = SCHEMA, **changes: Any) -> TableInfo:
    changes.setdefault("partition_keys", ("day",))
    descriptor = TableDescriptor(schema, bucket_count=3, **changes)
    return TableInfo(TablePath("shop", "orders"), 1, 1, descriptor, 0, 0)


@pytest.mark.parametrize(
    ("version", "lake", "bucket_keys", "expected"),
    [
        (None, None, (), COMPACTED),
        ("1", "paimon", (), PAIMON),
        ("1", "paimon", ("n",), PAIMON),
        (None, "paimon", ("n",), PAIMON),
        ("2", None, ("n",), COMPACTED),
        ("2", "paimon", (), PAIMON),
        ("2", "paimon", ("n", "s"), PAIMON),
        ("2", "paimon", ("n",), COMPACTED),
        ("2", "iceberg", ("n",), COMPACTED),
        ("2", "lance", (), COMPACTED),
        ("1", "hudi", (), COMPACTED),
        ("2", "hudi", (), COMPACTED),
    ],
)
def test_the_encoder_is_that_of_the_docs(
    version: str | None, lake: str | None, bucket_keys: tuple[str, ...], expected: str
) -> None:
    options = {KV_FORMAT_VERSION: version, LAKE: lake}
    properties = {name: value for name, value in options.items() if value}
    info = table(bucket_keys=bucket_keys, properties=properties)
    assert physical_primary_key(info) == ("n", "s")
    assert primary_keys(ROWS, info).to_pylist() == [bytes.fromhex(expected)]


def test_a_key_of_one_column_may_be_icebergs() -> None:
    schema = Schema((Column("n", t.INT.not_null(), 0),), ("n",))
    info = table(schema, partition_keys=(), properties={KV_FORMAT_VERSION: "2", LAKE: "iceberg"})
    rows = pa.record_batch([pa.array([42], pa.int32())], ["n"])
    assert primary_keys(rows, info).to_pylist() == [bytes.fromhex("2A00000000000000")]


def test_what_is_not_known_is_refused() -> None:
    with pytest.raises(
        InvalidConfig, match=r"shop\.orders: .*format-version '3' is not supported, only 1 and 2"
    ):
        primary_keys(ROWS, table(properties={KV_FORMAT_VERSION: "3"}))
    with pytest.raises(InvalidTable, match="key column 'n' has 1 nulls"):
        nulls = ROWS.set_column(1, "n", pa.array([None], pa.int32()))
        primary_keys(nulls, table())
