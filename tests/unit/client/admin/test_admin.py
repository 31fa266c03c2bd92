"""Admin against a real cluster: databases, tables, partitions, schemas, offsets."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from sluice.client import Client
from sluice.client.connection.addresses import Address
from sluice.errors import (
    DatabaseAlreadyExist,
    DatabaseNotEmpty,
    DatabaseNotExist,
    FlussError,
    InvalidTimestamp,
    PartitionAlreadyExists,
    PartitionNotExists,
    SchemaNotExist,
    TableAlreadyExist,
    TableNotExist,
    TableNotPartitioned,
    UnknownTableOrBucket,
)
from sluice.model import Column, Schema, TableBucket, TableDescriptor, TablePath
from sluice.model.types import BIGINT, INT, STRING

ORDERS = TablePath("shop", "orders")
SCHEMA = Schema((Column("id", BIGINT, 0), Column("region", STRING, 1)), highest_field_id=1)
PLAIN = TableDescriptor(SCHEMA, bucket_count=3)
BY_REGION = TableDescriptor(SCHEMA, partition_keys=("region",), bucket_count=2)


def test_databases(client: Client) -> None:
    admin = client.admin
    assert admin.list_databases() == ["fluss", "shop"]
    assert admin.database_exists("shop")
    assert not admin.database_exists("shed")
    admin.create_database("shop", ignore_if_exists=True)
    with pytest.raises(DatabaseAlreadyExist, match="shop"):
        admin.create_database("shop")
    admin.create_table(ORDERS, PLAIN)
    with pytest.raises(DatabaseNotEmpty, match="shop"):
        admin.drop_database("shop")
    admin.drop_database("shop", cascade=True)
    admin.drop_database("shop", ignore_if_not_exists=True)
    with pytest.raises(DatabaseNotExist, match="shop"):
        admin.drop_database("shop")
    with pytest.raises(DatabaseNotExist, match="shop"):
        admin.list_tables("shop")


def test_tables(client: Client) -> None:
    admin = client.admin
    assert not admin.table_exists(ORDERS)
    admin.create_table(ORDERS, PLAIN)
    admin.create_table(ORDERS, PLAIN, ignore_if_exists=True)
    with pytest.raises(TableAlreadyExist, match=r"shop\.orders"):
        admin.create_table(ORDERS, PLAIN)
    assert admin.table_exists(ORDERS)
    assert admin.list_tables("shop") == ["orders"]
    info = admin.table_info(ORDERS)
    assert info.schema == SCHEMA
    assert (info.path, info.bucket_count, info.schema_id) == (ORDERS, 3, 1)
    assert admin.schema(ORDERS) == SCHEMA
    admin.drop_table(ORDERS)
    admin.drop_table(ORDERS, ignore_if_not_exists=True)
    with pytest.raises(TableNotExist, match=r"shop\.orders"):
        admin.table_info(ORDERS)


def test_columns_are_added_behind_the_others(client: Client) -> None:
    admin = client.admin
    admin.create_table(ORDERS, PLAIN)
    admin.add_columns(ORDERS, [Column("amount", INT, -1, "in cents"), Column("note", STRING, -1)])
    assert admin.schema(ORDERS, 1) == SCHEMA
    now = admin.schema(ORDERS)
    assert now.names == ("id", "region", "amount", "note")
    assert [column.column_id for column in now.columns] == [0, 1, 2, 3]
    assert now.column("amount").comment == "in cents"
    assert admin.table_info(ORDERS).schema == now
    with pytest.raises(SchemaNotExist, match="7"):
        admin.schema(ORDERS, 7)


def test_partitions(client: Client) -> None:
    admin = client.admin
    admin.create_table(ORDERS, BY_REGION)
    assert admin.partitions(ORDERS) == []
    admin.create_partition(ORDERS, {"region": "eu"})
    admin.create_partition(ORDERS, {"region": "us"})
    admin.create_partition(ORDERS, {"region": "us"}, ignore_if_exists=True)
    with pytest.raises(PartitionAlreadyExists, match="us"):
        admin.create_partition(ORDERS, {"region": "us"})
    found = admin.partitions(ORDERS)
    assert [partition.values for partition in found] == [("eu",), ("us",)]
    assert client.tiering.partitions(ORDERS) == found
    eu = found[0].partition_id
    assert admin.list_offsets(ORDERS, partition_id=eu) == {0: 0, 1: 0}
    admin.drop_partition(ORDERS, {"region": "eu"})
    admin.drop_partition(ORDERS, {"region": "eu"}, ignore_if_not_exists=True)
    assert admin.partitions(ORDERS) == found[1:]
    with pytest.raises(PartitionNotExists):
        admin.drop_partition(ORDERS, {"region": "eu"})
    with pytest.raises(PartitionNotExists):
        admin.list_offsets(ORDERS, partition_id=eu)


def test_a_plain_table_has_no_partitions(client: Client) -> None:
    client.admin.create_table(ORDERS, PLAIN)
    assert client.tiering.partitions(ORDERS) == []
    with pytest.raises(TableNotPartitioned, match=r"shop\.orders"):
        client.admin.create_partition(ORDERS, {"region": "eu"})


def test_offsets_are_found_though_another_thread_learns_the_leaders_meanwhile(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.admin.create_table(ORDERS, PLAIN)
    connection = client.admin._connection
    known_leader = connection.known_leader

    def learns_after_the_first(bucket: TableBucket) -> Address | None:
        found = known_leader(bucket)
        monkeypatch.undo()
        connection.leader(ORDERS, bucket)
        return found

    monkeypatch.setattr(connection, "known_leader", learns_after_the_first)
    assert client.admin.list_offsets(ORDERS) == {0: 0, 1: 0, 2: 0}


def test_offsets_by_time(client: Client, cluster: Any) -> None:
    admin = client.admin
    admin.create_table(ORDERS, TableDescriptor(SCHEMA, bucket_count=1))
    began = cluster.clock.ms
    with client.log_writer(ORDERS) as writer:
        for _ in range(3):
            cluster.clock.ms += 1000
            writer.write(pa.table({"id": [1, 2]}))
            writer.flush()
    assert admin.list_offsets(ORDERS) == {0: 6}
    assert admin.list_offsets(ORDERS, timestamp_ms="latest") == {0: 6}
    assert admin.list_offsets(ORDERS, timestamp_ms="earliest") == {0: 0}
    assert admin.list_offsets(ORDERS, timestamp_ms=began + 2000) == {0: 2}
    with pytest.raises(InvalidTimestamp):
        admin.list_offsets(ORDERS, timestamp_ms=began + 9000)
    with pytest.raises(InvalidTimestamp, match="'newest'"):
        admin.list_offsets(ORDERS, timestamp_ms="newest")  # type: ignore[arg-type]


def test_offsets_of_all_partitions(client: Client, cluster: Any) -> None:
    admin = client.admin
    admin.create_table(ORDERS, BY_REGION)
    assert admin.table_offsets(admin.table_info(ORDERS)) == {}
    for region, rows in (("eu", 2), ("us", 3)):
        admin.create_partition(ORDERS, {"region": region})
        with client.log_writer(ORDERS) as writer:
            writer.write(pa.table({"id": range(rows), "region": [region] * rows}))
        cluster.clock.ms += 1000
    info = admin.table_info(ORDERS)
    eu, us = [partition.partition_id for partition in admin.partitions(ORDERS)]
    expected = {
        TableBucket(info.table_id, one, bucket): end
        for one in (eu, us)
        for bucket, end in admin.list_offsets(ORDERS, partition_id=one).items()
    }
    assert sum(expected.values()) == 5
    assert admin.table_offsets(info) == expected
    before = admin.table_offsets(info, cluster.clock.ms - 1000)
    assert sum(end for bucket, end in before.items() if bucket.partition_id == eu) == 2
    assert {end for bucket, end in before.items() if bucket.partition_id == us} == {0}
    assert set(admin.table_offsets(info, "earliest").values()) == {0}


@pytest.mark.parametrize("buckets", [[0], [2, 0], []])
def test_offsets_of_the_buckets_that_were_asked_for(client: Client, buckets: list[int]) -> None:
    client.admin.create_table(ORDERS, PLAIN)
    assert list(client.admin.list_offsets(ORDERS, buckets)) == buckets


@pytest.mark.parametrize(
    ("buckets", "table_id", "error"),
    [([9], None, UnknownTableOrBucket), ([0], 99, TableNotExist)],
)
def test_offsets_of_nothing(
    client: Client, buckets: list[int], table_id: int | None, error: type[FlussError]
) -> None:
    client.admin.create_table(ORDERS, PLAIN)
    with pytest.raises(error, match=r"shop\.orders"):
        client.admin.list_offsets(ORDERS, buckets, table_id=table_id)
