"""Descriptors of new tables from Arrow columns."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from sluice.client import connect, table_descriptor
from sluice.config import ServerConfig
from sluice.errors import InvalidTable, UnsupportedType
from sluice.model import TablePath
from sluice.server.cluster import EmbeddedCluster

PATH = TablePath("shop", "users")
COLUMNS = pa.schema({"name": pa.string(), "no": pa.int64(), "day": pa.string()})


def test_every_part_of_a_table_arrives_at_the_server(tmp_path: Path) -> None:
    descriptor = table_descriptor(
        COLUMNS,
        primary_key=["name", "day"],
        auto_increment="no",
        partition_by=["day"],
        bucket_key=["name"],
        buckets=3,
        datalake=True,
        properties={"table.datalake.freshness": "30s"},
        custom_properties={"owner": "shop"},
    )
    with (
        EmbeddedCluster(ServerConfig(str(tmp_path), "grpc://127.0.0.1:0")) as cluster,
        connect(cluster.address) as client,
    ):
        client.admin.create_database(PATH.database)
        client.admin.create_table(PATH, descriptor)
        info = client.admin.table_info(PATH)
    made, schema = info.descriptor, info.schema
    assert (schema.names, schema.primary_key, schema.auto_increment) == (
        ("name", "no", "day"),
        ("name", "day"),
        ("no",),
    )
    assert [column.data_type.nullable for column in schema.columns] == [False, True, False]
    assert (made.partition_keys, made.bucket_keys, made.bucket_count) == (("day",), ("name",), 3)
    assert info.datalake_enabled
    assert made.properties["table.datalake.freshness"] == "30s"
    assert made.custom_properties == {"owner": "shop"}


def test_a_table_without_a_key_is_a_log_that_is_not_tiered() -> None:
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    descriptor = table_descriptor(columns)
    assert (descriptor.schema.primary_key, descriptor.bucket_count) == ((), None)
    assert descriptor.properties == {"table.datalake.enabled": "false"}
    assert not descriptor.schema.column("id").data_type.nullable


def test_what_cannot_be_a_table_is_refused_by_name() -> None:
    with pytest.raises(InvalidTable, match="primary key column 'nam' is missing"):
        table_descriptor(COLUMNS, primary_key=["nam"])
    with pytest.raises(InvalidTable, match="auto-increment column 'non' is missing"):
        table_descriptor(COLUMNS, primary_key=["name"], auto_increment="non")
    with pytest.raises(TypeError, match=r"primary_key: 'name' is a text; write \['name'\]"):
        table_descriptor(COLUMNS, primary_key="name")
    with pytest.raises(UnsupportedType, match="x"):
        table_descriptor(pa.schema({"x": pa.duration("s")}))
