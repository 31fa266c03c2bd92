"""A table whose partitions have different numbers of buckets, on the embedded server."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pytest

from sluice.client import Client
from sluice.client.leases.snapshot_lease import bucket_selections
from sluice.client.tiering.idle import IdleCheck
from sluice.errors import BucketMaxNum, InvalidAlterTable, InvalidBucketRouting
from sluice.formats.keys.bucketing import bucket_numbers
from sluice.formats.keys.keys import encode_key
from sluice.model import Column, Schema, TableBucket, TableDescriptor, TablePath
from sluice.model import types as t
from sluice.page.tables.splits import read_splits
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.messages.table_paths import table_path
from tests.unit.client.conftest import Cluster

PATH = TablePath("shop", "orders")
COLUMNS = tuple(
    Column(name, kind.not_null(), number)
    for number, (name, kind) in enumerate({"day": t.STRING, "id": t.BIGINT, "n": t.BIGINT}.items())
)
ROWS = 100


@dataclass
class Orders:
    """Partition d1 was created with 2 buckets, d2 with 4."""

    client: Client

    def create(self, *, keyed: bool = False, **more: str) -> None:
        descriptor = TableDescriptor(
            Schema(COLUMNS, ("day", "id", "n") if keyed else (), 2),
            partition_keys=("day",),
            bucket_keys=("id",) if keyed else (),
            bucket_count=2,
            properties=more,
        )
        self.client.admin.create_table(PATH, descriptor)
        self.client.admin.create_partition(PATH, {"day": "d1"})

    def rescale(self) -> None:
        admin = self.client.admin
        admin.set_bucket_count(PATH, 4)
        admin.create_partition(PATH, {"day": "d2"})
        assert {one.name: one.bucket_count for one in admin.partitions(PATH)} == {"d1": 2, "d2": 4}
        assert admin.table_info(PATH).bucket_count == 4

    @staticmethod
    def rows(day: str) -> pa.Table:
        ids = pa.array(range(ROWS), pa.int64())
        return pa.table({"day": pa.array([day] * ROWS), "id": ids, "n": ids})

    def fill(self) -> None:
        keyed = self.client.admin.table_info(PATH).has_primary_key
        if keyed:
            with self.client.kv_writer(PATH) as writer:
                writer.upsert(pa.concat_tables([self.rows("d1"), self.rows("d2")]))
            return
        with self.client.log_writer(PATH) as log:
            for day in ("d1", "d2"):
                for at in range(0, ROWS, 10):  # a batch of its own, each to the next bucket
                    log.write(self.rows(day).slice(at, 10))
                    log.flush()

    def ends(self, day: str) -> dict[int, int]:
        return self.client.admin.list_offsets(PATH, None, self.id_of(day))

    def id_of(self, day: str) -> int:
        [found] = [one for one in self.client.admin.partitions(PATH) if one.name == day]
        return found.partition_id

    def bucket(self, day: str, number: int) -> TableBucket:
        return TableBucket(self.client.admin.table_info(PATH).table_id, self.id_of(day), number)


@pytest.fixture
def orders(client: Client) -> Orders:
    return Orders(client)


def test_rows_go_to_the_buckets_of_their_partition(orders: Orders, cluster: Cluster) -> None:
    orders.create()
    with orders.client.log_writer(PATH) as early:  # knows only d1, and 2 buckets
        early.write(orders.rows("d1").slice(0, 10))
        orders.rescale()
        early.write(orders.rows("d2").slice(0, 10))
    orders.fill()
    for _ in range(2):
        assert sorted(orders.ends("d1")) == [0, 1]
        assert sorted(orders.ends("d2")) == [0, 1, 2, 3]
        assert all((*orders.ends("d1").values(), *orders.ends("d2").values()))
        info = orders.client.admin.table_info(PATH)
        offsets = orders.client.admin.table_offsets(info)
        assert (len(offsets), sum(offsets.values())) == (6, 2 * ROWS + 20)
        reader, read = orders.client.log_reader(PATH), 0
        for bucket, end in offsets.items():
            read += sum(one.batch.num_rows for one in reader.read(bucket, 0, end))
        assert read == 2 * ROWS + 20
        cluster.stop()
        cluster.start()


def test_look_ups_find_each_row_in_its_partition(orders: Orders) -> None:
    orders.create(keyed=True)
    early = orders.client.kv_reader(PATH)
    orders.rescale()
    orders.fill()
    for day in ("d1", "d2"):
        for reader in (early, orders.client.kv_reader(PATH)):
            assert reader.lookup(orders.rows(day)).equals(
                orders.rows(day).cast(reader.lookup(orders.rows(day)).schema)
            )
            found = reader.prefix_lookup(orders.rows(day).select(["day", "id"]))
            assert found.column("n").to_pylist() == list(range(ROWS))
            assert reader.limit_scan(1_000, day).num_rows == ROWS
    info = orders.client.admin.table_info(PATH)
    leased = bucket_selections(orders.client.admin, info)
    assert [sorted(one.buckets) for one in leased] == [[0, 1], [0, 1, 2, 3]]
    request = pb.GetLatestKvSnapshotsRequest(table_path=table_path(PATH), partition_name="d2")
    ask = orders.client._connection.call_coordinator
    reply = ask(apis.GET_LATEST_KV_SNAPSHOTS, request, lambda answer: answer)
    assert [one.bucket_id for one in reply.latest_snapshots] == [0, 1, 2, 3]
    keys = encode_key(
        orders.rows("d1").combine_chunks().to_batches()[0], ("id",), info.schema,
        info.datalake_format,
    )  # fmt: skip
    for day, count in (("d1", 2), ("d2", 4)):
        of_key = bucket_numbers(keys, count, info.datalake_format).tolist()
        for number in range(count):
            bucket = orders.bucket(day, number)
            with orders.client.scan_kv(PATH, bucket) as scan:
                ids = [one for each in scan.batches() for one in each.column("id").to_pylist()]
            assert sorted(ids) == [one for one in range(ROWS) if of_key[one] == number]


def test_statuses_the_idle_check_and_the_page_count_all_buckets(
    orders: Orders, cluster: Cluster
) -> None:
    orders.create(**{"table.datalake.freshness": "1min"})
    orders.rescale()
    orders.fill()
    client = orders.client
    client.admin.set_options(PATH, {"table.datalake.enabled": "true"})
    assert client.statuses.list(PATH)[0].lag_rows == 2 * ROWS
    found = read_splits(client, PATH, 0, 100)
    assert (found.total, sum(one.lag_rows or 0 for one in found.splits)) == (6, 2 * ROWS)
    cluster.clock.ms += 60_000
    with client.tiering.claim_session([PATH]) as session:
        [claim] = session.take(1)
    with IdleCheck(client.config, client._recorded, cluster.clock) as check:
        waiting = check.check([claim])[claim]
    assert (waiting.rows, waiting.buckets, waiting.is_idle) == (2 * ROWS, 6, False)


def test_a_page_of_splits_begins_within_a_partition(
    orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluice.page.tables.splits.WHOLE_SPLITS_MAX", 5)
    orders.create()
    orders.rescale()
    whole = [("d2", number) for number in range(4)] + [("d1", number) for number in range(2)]
    for offset in range(8):
        for limit in range(1, 8):
            page = read_splits(orders.client, PATH, offset, limit)
            seen = [(one.partition, one.bucket) for one in page.splits]
            assert (seen, page.total) == (whole[offset : offset + limit], 6)


def test_what_cannot_be_altered_says_why(orders: Orders) -> None:
    admin = orders.client.admin
    orders.create(**{"table.datalake.enabled": "true"})
    with pytest.raises(InvalidAlterTable, match="not supported by the Iceberg lake catalog yet"):
        admin.set_bucket_count(PATH, 4)
    admin.set_options(PATH, {"table.datalake.enabled": "false"})
    with pytest.raises(InvalidAlterTable, match="bucket.num cannot be altered to 0: use 1"):
        admin.set_bucket_count(PATH, 0)
    with pytest.raises(BucketMaxNum, match="the maximum is"):
        admin.set_bucket_count(PATH, 1 << 20)
    plain = TablePath("shop", "plain")
    admin.create_table(plain, TableDescriptor(Schema(COLUMNS, highest_field_id=2)))
    with pytest.raises(InvalidAlterTable, match="has no partitions"):
        admin.set_bucket_count(plain, 4)
    admin.set_bucket_count(PATH, 4)


def test_a_tiered_table_with_a_key_needs_one_number_of_buckets(orders: Orders) -> None:
    orders.create(keyed=True)
    orders.rescale()
    admin, enabled = orders.client.admin, {"table.datalake.enabled": "true"}
    with pytest.raises(InvalidAlterTable) as refused:
        admin.set_options(PATH, enabled)
    words = "table shop.orders: partition d1 has 2 buckets, but the table has 4"
    assert words in str(refused.value)
    assert "Create a table with one number of buckets and copy the rows" in str(refused.value)
    admin.drop_partition(PATH, {"day": "d1"})
    admin.set_options(PATH, enabled)
    assert admin.table_info(PATH).datalake_enabled


def test_a_request_that_was_routed_by_another_number_is_refused(orders: Orders) -> None:
    orders.create()
    client, bucket = orders.client, orders.bucket("d1", 0)
    call = client._connection._call
    address = client._connection.leader(PATH, bucket)

    def ask(count: int | None) -> None:
        request = pb.ListOffsetsRequest(
            follower_server_id=-1,
            offset_type=1,
            table_id=bucket.table_id,
            partition_id=bucket.partition_id,
            bucket_id=[0],
            routing_bucket_count=count,
        )
        call(address, apis.Role.TABLET, apis.LIST_OFFSETS, request)

    ask(None)  # of a client that does not know the field
    ask(2)
    orders.rescale()
    ask(2)
    with pytest.raises(InvalidBucketRouting, match="has 2 buckets, but .* chosen among 4"):
        ask(4)
    with pytest.raises(InvalidBucketRouting, match="does not name the number"):
        ask(None)
