"""What a writer knows of its rows: how many are stored, and which it would refuse."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest

from sluice.client import Client, connect
from sluice.client.batches.pending_batches import PendingBatches
from sluice.config import ClientConfig
from sluice.errors import InvalidTable, PartitionNotExists, RecordTooLarge
from sluice.model import Column, Schema, TableBucket, TableDescriptor
from sluice.model import types as t
from tests.support.tables.orders import PATH, PLAIN, create, orders


@pytest.fixture
def small(client: Client) -> Iterator[Client]:
    """A client that cuts small batches."""
    settings = ClientConfig(bootstrap=client.config.bootstrap, writer_batch_bytes=4096)
    with connect(settings) as made:
        yield made


def test_rows_are_stored_up_to_a_number_for_certain(client: Client, small: Client) -> None:
    create(client, PLAIN, bucket_count=3, bucket_keys=("id",))
    with small.log_writer(PATH) as writer:
        assert writer.stored_rows == 0
        writer.write(orders(0, 1000))
        assert writer.stored_rows == 0, "rows of this call wait for a full batch"
        writer.flush()
        assert writer.stored_rows == 1000
        with pytest.raises(InvalidTable):
            writer.write(pa.table({"id": ["no number"], "region": ["eu"]}))
        writer.write(orders(1000, 10))
        assert writer.stored_rows == 1000
        writer.flush()
        assert writer.stored_rows == 1010


def test_the_lowest_batch_that_is_not_stored_bounds_what_is() -> None:
    outstanding = PendingBatches()
    one, two = TableBucket(1, None, 1), TableBucket(1, None, 2)
    outstanding.add(one, 0)
    outstanding.add(two, 10)
    outstanding.add(one, 20)
    outstanding.raise_floor(30)
    told = [outstanding.stored_rows]
    for place in (one, two, one):
        outstanding.stored(place)
        told.append(outstanding.stored_rows)
    assert told == [0, 10, 20, 30]


# ---- what a writer would say of rows ----

WIDE = Schema(
    (
        Column("id", t.BIGINT, 0),
        Column("region", t.STRING, 1),
        Column("code", t.char(3), 2),
        Column("blob", t.BYTES, 3),
    ),
    highest_field_id=3,
)


def wide(*rows: tuple[object, ...]) -> pa.Table:
    names = ["id", "region", "code", "blob"]
    types = [pa.int64(), pa.string(), pa.string(), pa.binary()]
    columns = zip(*rows, strict=True)
    return pa.table({n: pa.array(c, ty) for n, c, ty in zip(names, columns, types, strict=True)})


def test_a_check_says_what_a_write_would_and_takes_nothing(client: Client) -> None:
    create(client, TableDescriptor(WIDE, ("region",), ("id",), bucket_count=2))
    with connect(ClientConfig(client.config.bootstrap, max_message_bytes=100_000)) as other:
        writer = other.log_writer(PATH)
        good = wide((1, "eu", "abc", b"x"), (2, "us", "abc", b""))
        assert writer.check(good) == {("eu",), ("us",)}
        assert writer.missing_partitions([("eu",), ("us",)]) == [("eu",), ("us",)]
        with pytest.raises(PartitionNotExists, match="region=eu"):
            writer.ensure_partitions([("eu",)])
        for row, told in (
            ((None, "eu", "abc", b""), "key column 'id' has 1 nulls"),
            ((1, None, "abc", b""), "'region' has 1 nulls"),
            ((1, "e/u", "abc", b""), "'e/u': use 1 to 200 letters"),
        ):
            with pytest.raises(Exception, match=told):
                writer.check(wide((1, "eu", "abc", b""), row))
        # compressible: it is large, but its batch is not
        assert writer.check(wide((1, "eu", "abc", bytes(300_000)))) == {("eu",)}
        noise = random.Random(1).randbytes(200_000)
        with pytest.raises(RecordTooLarge, match="a row has .* bytes; client.max_message_bytes"):
            writer.check(wide((1, "eu", "abc", b""), (2, "eu", "abc", noise)))
        assert writer.stored_rows == 0
    assert client.admin.partitions(PATH) == []


def test_a_check_of_keyed_rows_and_of_deletes(client: Client) -> None:
    keyed = Schema(
        tuple(
            Column(c.name, c.data_type.not_null() if c.name == "id" else c.data_type, c.column_id)
            for c in WIDE.columns
        ),
        primary_key=("id",),
        highest_field_id=3,
    )
    create(
        client, TableDescriptor(keyed, bucket_count=2, properties={"table.kv.format": "INDEXED"})
    )
    writer = client.kv_writer(PATH)
    assert writer.check_upsert(wide((1, "eu", "abc", b"x"))) == {()}
    with pytest.raises(InvalidTable, match="'code' does not fit CHAR"):
        writer.check_upsert(wide((1, "eu", "abcd", b"x")))
    assert writer.check_delete(pa.table({"id": [1]})) == {()}
    with pytest.raises(InvalidTable, match="NOT NULL"):
        writer.check_delete(pa.table({"id": pa.array([None], pa.int64())}))
    with client.kv_writer(PATH, dynamic_partitions=True) as other:
        other.upsert(wide((1, "eu", "abc", b"x"), (2, "eu", "abc", b"x")))
        other.flush()
        assert other.stored_rows == 2


def test_partitions_are_made_ahead_where_the_writer_may(client: Client) -> None:
    create(client, PLAIN, bucket_count=2, partition_keys=("region",))
    with client.log_writer(PATH, dynamic_partitions=True) as writer:
        writer.ensure_partitions([("eu",), ("us",)])
        assert writer.missing_partitions([("eu",), ("asia",)]) == [("asia",)]
    assert [p.values for p in client.admin.partitions(PATH)] == [("eu",), ("us",)]
