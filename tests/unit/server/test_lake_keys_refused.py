"""A table that could never be tiered for its keys is refused when it is made, or when tiering is
switched on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from sluice.client import connect
from sluice.client.client import Client
from sluice.config import ServerConfig
from sluice.errors import InvalidAlterTable, InvalidTable
from sluice.model import Column, DataType, Schema, TableDescriptor, TablePath
from sluice.model import types as t
from sluice.server.cluster import EmbeddedCluster

ENABLED = {"table.datalake.enabled": "true"}
PATH = TablePath("shop", "keyed")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    config = ServerConfig(str(tmp_path_factory.mktemp("s")), listen="grpc://127.0.0.1:0")
    with EmbeddedCluster(config) as cluster, connect(cluster.address) as connected:
        connected.admin.create_database(PATH.database)
        yield connected


@pytest.fixture(autouse=True)
def dropped(client: Client) -> Iterator[None]:
    yield
    client.admin.drop_table(PATH, ignore_if_not_exists=True)


def keyed(kind: DataType) -> TableDescriptor:
    columns = (Column("id", t.BIGINT.not_null(), 0), Column("k", kind.not_null(), 1))
    return TableDescriptor(Schema(columns, ("id", "k"), 1), bucket_keys=("id",), bucket_count=1)


def log(kind: DataType) -> TableDescriptor:
    schema = Schema((Column("k", kind, 0),), highest_field_id=0)
    return TableDescriptor(schema, bucket_keys=("k",), bucket_count=1)


@pytest.mark.parametrize(
    ("descriptor", "why"),
    [
        (keyed(t.FLOAT), "column k of the primary key is FLOAT NOT NULL, which Iceberg does not"),
        (keyed(t.DOUBLE), "does not allow in a key; use DECIMAL or an integer type"),
        (keyed(t.timestamp(9)), r"two keys could become one; use TIMESTAMP\(6\)"),
        (keyed(t.timestamp_ltz(7)), r"two keys could become one; use TIMESTAMP_LTZ\(6\)"),
        (keyed(t.time(9)), r"two keys could become one; use TIME\(6\)"),
        (log(t.timestamp(9)), r"its buckets would differ from Fluss's; use TIMESTAMP\(6\)"),
        (log(t.FLOAT), "bucket key k is FLOAT, which Iceberg does not support"),
        (log(t.DOUBLE), "bucket key k is DOUBLE, which Iceberg does not support"),
    ],
)
def test_keys_that_no_lake_table_can_have(
    client: Client, descriptor: TableDescriptor, why: str
) -> None:
    with pytest.raises(InvalidTable, match=why) as refused:
        client.admin.create_table(PATH, replace(descriptor, properties=ENABLED))
    assert "leave table.datalake.enabled at false" in str(refused.value)
    assert client.admin.list_tables(PATH.database) == []
    client.admin.create_table(PATH, descriptor)
    with pytest.raises(InvalidAlterTable, match=why):
        client.admin.set_options(PATH, ENABLED)
    assert not client.admin.table_info(PATH).datalake_enabled
    client.admin.set_options(PATH, {"custom": "1"})


@pytest.mark.parametrize("kind", [t.timestamp(6), t.DATE, t.STRING, t.decimal(10, 2)])
def test_keys_that_a_lake_table_can_have(client: Client, kind: DataType) -> None:
    client.admin.create_table(PATH, replace(keyed(kind), properties=ENABLED))
    client.admin.set_options(PATH, {"table.datalake.enabled": "false"})
    client.admin.set_options(PATH, ENABLED)
    assert client.admin.table_info(PATH).datalake_enabled
