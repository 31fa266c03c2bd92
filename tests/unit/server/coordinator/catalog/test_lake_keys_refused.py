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
        (keyed(t.time(9)), r"two keys could become one; use TIME\(3\)"),
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


NAMES = {
    "the bucket's field": (("id", "id_bucket"), ("id",), "partition field that buckets by id"),
    "a dotted column": (("a", "a.element"), (), "two fields have the name a.element"),
}


@pytest.mark.parametrize("what", NAMES)
def test_names_that_no_lake_table_can_have(client: Client, what: str) -> None:
    """They were acknowledged before, and the first round failed for ever."""
    names, keys, why = NAMES[what]
    array = DataType(t.TypeRoot.ARRAY, element=t.INT)
    columns = tuple(
        Column(name, array if name == "a" else t.INT, i) for i, name in enumerate(names)
    )

    def table(count: int, enabled: str) -> TableDescriptor:
        schema = Schema(columns[:count], highest_field_id=count)
        properties = {"table.datalake.enabled": enabled}
        return TableDescriptor(schema, (), keys, 1, properties)

    with pytest.raises(InvalidTable, match=why):
        client.admin.create_table(PATH, table(2, "true"))
    client.admin.create_table(PATH, table(2, "false"))
    with pytest.raises(InvalidAlterTable, match=why):
        client.admin.set_options(PATH, ENABLED)
    client.admin.drop_table(PATH)
    client.admin.create_table(PATH, table(1, "true"))
    with pytest.raises(InvalidAlterTable, match=why):
        client.admin.add_columns(PATH, [columns[1]])
    client.admin.set_options(PATH, {"table.datalake.enabled": "false"})
    client.admin.add_columns(PATH, [columns[1]])


@pytest.mark.parametrize("name", ["ID", "_pos", "_row_id"])
def test_names_that_only_a_reader_suffers_from(client: Client, name: str) -> None:
    columns = (Column("id", t.INT, 0), Column(name, t.INT, 1))
    client.admin.create_table(PATH, TableDescriptor(Schema(columns), properties=ENABLED))


@pytest.mark.parametrize("kind", [t.timestamp(6), t.DATE, t.STRING, t.decimal(10, 2)])
def test_keys_that_a_lake_table_can_have(client: Client, kind: DataType) -> None:
    client.admin.create_table(PATH, replace(keyed(kind), properties=ENABLED))
    client.admin.set_options(PATH, {"table.datalake.enabled": "false"})
    client.admin.set_options(PATH, ENABLED)
    assert client.admin.table_info(PATH).datalake_enabled
