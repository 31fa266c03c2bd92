"""The lake table that a Fluss table needs, as Iceberg's JSON."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sluice.errors import UnsupportedLakeOption
from sluice.iceberg_rules.layout import Layout, part_fields
from sluice.lake.iceberg.schema import (
    schema_json,
    sort_order_json,
    spec_json,
    table_properties,
)
from sluice.model import DataType, TypeRoot
from sluice.model import types as t
from tests.support.models.tables import table_info

INFO = table_info({"id": t.BIGINT.not_null(), "name": t.STRING, "price": t.decimal(9, 2)})
CLEAN, LEGACY = Layout.CLEAN, Layout.LEGACY


def fields(schema: dict[str, Any]) -> list[tuple[int, str, Any, bool]]:
    return [(f["id"], f["name"], f["type"], f["required"]) for f in schema["fields"]]


def test_system_columns_follow_the_users_and_are_required() -> None:
    assert fields(schema_json(INFO, LEGACY)) == [
        (1, "id", "long", True),
        (2, "name", "string", False),
        (3, "price", "decimal(9, 2)", False),
        (4, "__bucket", "int", True),
        (5, "__offset", "long", True),
        (6, "__timestamp", "timestamptz", True),
    ]
    assert "identifier-field-ids" not in schema_json(INFO, LEGACY)


def test_a_clean_table_has_the_users_columns_and_no_order() -> None:
    """As Fluss 1.0 makes it (apache/fluss PR 4019)."""
    schema = schema_json(INFO, CLEAN)
    assert fields(schema) == [
        (1, "id", "long", True),
        (2, "name", "string", False),
        (3, "price", "decimal(9, 2)", False),
    ]
    assert spec_json(part_fields(INFO, CLEAN), schema)["fields"] == []
    assert sort_order_json(CLEAN, schema) == {"order-id": 0, "fields": []}


@pytest.mark.parametrize(
    ("fluss", "iceberg"),
    [
        (t.BOOLEAN, "boolean"), (t.TINYINT, "int"), (t.SMALLINT, "int"), (t.INT, "int"),
        (t.BIGINT, "long"), (t.FLOAT, "float"), (t.DOUBLE, "double"), (t.char(3), "string"),
        (t.STRING, "string"), (t.binary(4), "binary"), (t.BYTES, "binary"), (t.DATE, "date"),
        (t.decimal(38, 18), "decimal(38, 18)"), (t.time(3), "time"),
        (t.timestamp(9), "timestamp"), (t.timestamp_ltz(0), "timestamptz"),
    ],
)  # fmt: skip
def test_types_are_those_of_the_docs(fluss: DataType, iceberg: str) -> None:
    assert schema_json(table_info({"c": fluss}), LEGACY)["fields"][0]["type"] == iceberg


def test_nested_types_get_ids_behind_the_columns() -> None:
    row = DataType(TypeRoot.ROW, fields=(t.RowField("x", t.INT), t.RowField("y", t.STRING)))
    array = DataType(TypeRoot.ARRAY, element=row)
    schema = schema_json(table_info({"a": array}), LEGACY)
    assert schema["fields"][0]["type"] == {
        "type": "list",
        "element-id": 5,
        "element-required": False,
        "element": {
            "type": "struct",
            "fields": [
                {"id": 6, "name": "x", "required": False, "type": "int"},
                {"id": 7, "name": "y", "required": False, "type": "string"},
            ],
        },
    }


def test_identifier_fields_are_the_whole_primary_key() -> None:
    info = table_info(
        {"a": t.BIGINT.not_null(), "b": t.STRING.not_null()}, primary_key=("b", "a"), buckets=2
    )
    assert schema_json(info, LEGACY)["identifier-field-ids"] == [2, 1]
    assert table_properties(info)["write.delete.mode"] == "merge-on-read"


def test_partition_keys_come_before_the_bucket() -> None:
    info = table_info(
        {"id": t.BIGINT, "day": t.STRING}, partition_keys=("day",), bucket_keys=("id",), buckets=4
    )
    assert spec_json(part_fields(info, LEGACY), schema_json(info, LEGACY))["fields"] == [
        {"name": "day", "transform": "identity", "source-id": 2, "field-id": 1000},
        {"name": "id_bucket", "transform": "bucket[4]", "source-id": 1, "field-id": 1001},
    ]
    plain = spec_json(part_fields(INFO, LEGACY), schema_json(INFO, LEGACY))["fields"]
    assert [(f["name"], f["transform"], f["source-id"]) for f in plain] == [
        ("__bucket", "identity", 4)
    ]
    assert sort_order_json(LEGACY, schema_json(INFO, LEGACY))["fields"][0]["source-id"] == 5


def test_properties_keep_icebergs_own_and_prefix_the_rest() -> None:
    info = table_info(
        {"a": t.INT}, custom_properties={"iceberg.write.format.default": "parquet", "team": "x"}
    )
    assert table_properties(info) == {
        "fluss.table.datalake.enabled": "true",
        "write.format.default": "parquet",
        "fluss.team": "x",
    }


def test_the_lakes_own_options_are_no_properties_of_its_tables() -> None:
    """A cluster adds them to what it tells of a table, and does not store them."""
    told = {"table.datalake.enabled": "true", "table.datalake.iceberg.warehouse": "/lake"}
    info = table_info({"a": t.INT})
    info = replace(info, descriptor=replace(info.descriptor, properties=told))
    assert table_properties(info) == {"fluss.table.datalake.enabled": "true"}


def test_what_iceberg_cannot_take_is_named() -> None:
    two = table_info({"a": t.INT, "b": t.INT}, bucket_keys=("a", "b"))
    with pytest.raises(UnsupportedLakeOption, match="bucket keys a, b"):
        spec_json(part_fields(two, LEGACY), schema_json(two, LEGACY))
    number = table_info({"a": t.INT, "b": t.INT}, partition_keys=("b",))
    with pytest.raises(UnsupportedLakeOption, match="partition key b has type INT"):
        spec_json(part_fields(number, LEGACY), schema_json(number, LEGACY))


@pytest.mark.parametrize("key", [t.timestamp(7), t.timestamp_ltz(9)])
def test_a_bucket_key_finer_than_a_microsecond_is_refused(key: DataType) -> None:
    info = table_info({"at": key}, bucket_keys=("at",))
    with pytest.raises(UnsupportedLakeOption, match="bucket key at"):
        spec_json(part_fields(info, LEGACY), schema_json(info, LEGACY))
