"""Log writer and reader against a real cluster: what goes in comes out, once, in order."""

from __future__ import annotations

import datetime as dt
import pickle
import threading
from dataclasses import replace
from decimal import Decimal
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sluice.client import Client, ClientLogSource, connect
from sluice.config import ClientConfig
from sluice.errors import (
    InvalidTable,
    LogOffsetOutOfRange,
    PartitionNotExists,
    RequestTimeOut,
    SchemaNotExist,
    TableNotExist,
)
from sluice.formats.keys.bucketing import bucket_numbers
from sluice.formats.keys.keys import encode_key
from sluice.formats.log.batch import encode_log_batch
from sluice.formats.types.descriptors import descriptor_to_json
from sluice.formats.types.types import arrow_schema
from sluice.model import Column, Schema, TableDescriptor
from sluice.model import types as t
from sluice.rounds.values.types import Split, SplitPart
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Role
from sluice.wire.error_codes import raise_in_body
from tests.support.models.tables import table_info
from tests.support.network.wire_server import WireServer
from tests.support.tables.orders import PATH, PLAIN, SCHEMA, bucket, create, ids, orders, write

# ---- round trips ----


@pytest.mark.parametrize("log_format", ["ARROW", "INDEXED", "COMPACTED"])
def test_every_scalar_type_comes_back_as_it_was(client: Client, log_format: str) -> None:
    day = dt.date(2024, 2, 29)
    stamp = dt.datetime(2024, 2, 29, 23, 59, 59, 123456)
    values: list[tuple[t.DataType, Any]] = [
        (t.BOOLEAN, True),
        (t.TINYINT, -128),
        (t.SMALLINT, -32768),
        (t.INT, -(2**31)),
        (t.BIGINT, 2**63 - 1),
        (t.FLOAT, 0.5),
        (t.DOUBLE, -1e300),
        (t.STRING, "größe"),
        (t.BYTES, b"\x00\xff"),
        (t.DATE, day),
        (t.char(5), "abc"),
        (t.binary(3), b"abc"),
        (t.decimal(5, 2), Decimal("-999.99")),
        (t.decimal(38, 10), Decimal("12345678901234567890.0123456789")),
        *[(t.time(p), dt.time(23, 59, 59)) for p in (0, 3, 6, 9)],
        *[(t.timestamp(p), stamp.replace(microsecond=0)) for p in (0, 3, 6, 9)],
        *[(t.timestamp_ltz(p), stamp.replace(microsecond=0)) for p in (0, 3, 6, 9)],
    ]
    schema = Schema(
        tuple(Column(f"c{i}", data_type, i) for i, (data_type, _) in enumerate(values)),
        highest_field_id=len(values) - 1,
    )
    properties = {"table.log.format": log_format}
    create(client, TableDescriptor(schema, bucket_count=1, properties=properties))
    columns = {
        field.name: pa.array([value, None, value], field.type)
        for field, (_, value) in zip(arrow_schema(schema), values, strict=True)
    }
    table = pa.table(columns)
    write(client, table)
    (records,) = client.log_reader(PATH).read(bucket(client))
    assert pa.Table.from_batches([records.batch]).equals(table)


@pytest.mark.parametrize("compression", ["ZSTD", "NONE", "LZ4_FRAME"])
def test_every_compression_can_be_read(client: Client, compression: str) -> None:
    create(client, PLAIN, properties={"table.log.arrow.compression.type": compression})
    write(client, orders(0, 1000))
    assert ids(client.log_reader(PATH).read(bucket(client))) == list(range(1000))


def test_large_data_is_cut_into_batches_of_about_the_wanted_size(client: Client) -> None:
    create(client, PLAIN, properties={"table.log.arrow.compression.type": "NONE"})
    text = "x" * 992
    with client.log_writer(PATH) as writer:
        writer.write(pa.table({"id": range(10_000), "region": [text] * 10_000}))
    read = list(client.log_reader(PATH).read(bucket(client)))
    assert 8 <= len(read) <= 12
    assert all(records.size_bytes < 1_100_000 for records in read)
    assert ids(read) == list(range(10_000))
    assert [r.base_offset for r in read[1:]] == [r.next_offset for r in read[:-1]]


def test_rows_go_to_the_bucket_that_their_key_says(client: Client) -> None:
    create(client, PLAIN, bucket_keys=("id",), bucket_count=7)
    table = orders(0, 20_000)
    with client.log_writer(PATH) as writer:
        for start in range(0, 20_000, 1700):
            writer.write(table.slice(start, 1700))
    info = client.admin.table_info(PATH)
    (batch,) = table.combine_chunks().to_batches()
    keys = encode_key(batch, ["id"], info.schema, info.datalake_format)
    expected = bucket_numbers(keys, 7, info.datalake_format)
    counts = []
    for number in range(7):
        found = ids(client.log_reader(PATH).read(bucket(client, number)))
        assert found == np.flatnonzero(expected == number).tolist()
        counts.append(len(found))
    assert sum(counts) == 20_000
    assert min(counts) > 20_000 / 7 * 0.9


def test_without_a_bucket_key_batches_go_round_the_buckets(client: Client) -> None:
    create(client, PLAIN, bucket_count=3)
    write(client, *[orders(i * 100, 100) for i in range(6)])
    assert client.admin.list_offsets(PATH) == {0: 200, 1: 200, 2: 200}
    found = [ids(client.log_reader(PATH).read(bucket(client, number))) for number in range(3)]
    assert sorted(chain.from_iterable(found)) == list(range(600))


def test_partitions_each_have_their_rows(client: Client) -> None:
    create(client, PLAIN, partition_keys=("region",), bucket_count=2)
    mixed = pa.table({"id": range(900), "region": [f"r{i % 3}" for i in range(900)]})
    with client.log_writer(PATH, dynamic_partitions=True) as writer:
        writer.write(mixed)
    partitions = client.admin.partitions(PATH)
    assert [partition.values for partition in partitions] == [("r0",), ("r1",), ("r2",)]
    reader = client.log_reader(PATH)
    for at, partition in enumerate(partitions):
        found = [ids(reader.read(bucket(client, n, partition.partition_id))) for n in range(2)]
        assert sorted(chain.from_iterable(found)) == list(range(at, 900, 3))


def test_an_unknown_partition_costs_no_row_of_the_others(client: Client) -> None:
    create(client, PLAIN, partition_keys=("region",))
    client.admin.create_partition(PATH, {"region": "eu"})
    with client.log_writer(PATH) as writer:
        both = pa.concat_tables([orders(0, 10, "eu"), orders(10, 10, "us")])
        with pytest.raises(PartitionNotExists, match=r"shop\.orders has no partition region=us"):
            writer.write(both)
        client.admin.create_partition(PATH, {"region": "us"})
        writer.write(both)
    offsets = [
        client.admin.list_offsets(PATH, partition_id=partition.partition_id)
        for partition in client.admin.partitions(PATH)
    ]
    assert offsets == [{0: 10}, {0: 10}]


@pytest.mark.parametrize("dynamic", [True, False])
def test_a_partition_that_is_dropped_under_a_writer_needs_a_new_one(
    client: Client, dynamic: bool
) -> None:
    create(client, PLAIN, partition_keys=("region",))
    client.admin.create_partition(PATH, {"region": "eu"})
    with (
        pytest.raises(PartitionNotExists) as caught,
        client.log_writer(PATH, dynamic_partitions=dynamic) as writer,
    ):
        writer.write(orders(0, 10, "eu"))
        writer.flush()
        client.admin.drop_partition(PATH, {"region": "eu"})
        writer.write(orders(10, 10, "eu"))
    text = str(caught.value)
    assert "shop.orders partition eu bucket 0 was dropped while this writer was open" in text
    assert ("create the partition, then give those" in text) is not dynamic
    assert writer.stored_rows == 10
    with client.log_writer(PATH, dynamic_partitions=True) as again:
        again.write(orders(10, 10, "eu"))
    [partition] = client.admin.partitions(PATH)
    assert client.admin.list_offsets(PATH, partition_id=partition.partition_id) == {0: 10}


# ---- windows ----


def test_a_window_is_exact_even_inside_batches(client: Client) -> None:
    create(client, PLAIN)
    write(client, orders(0, 10), orders(10, 10), orders(20, 10))
    reader = client.log_reader(PATH)
    read = list(reader.read(bucket(client), 5, 25))
    assert ids(read) == list(range(5, 25))
    assert [(r.base_offset, r.next_offset) for r in read] == [(5, 10), (10, 20), (20, 25)]
    assert ids(reader.read(bucket(client), 10, 20)) == list(range(10, 20))
    assert ids(reader.read(bucket(client), 30, 30)) == []
    assert ids(reader.read(bucket(client))) == list(range(30))
    whole = list(reader.read(bucket(client), 5, 25, whole_batches=True))
    assert [(r.base_offset, r.next_offset) for r in whole] == [(0, 10), (10, 20), (20, 30)]
    assert ids(whole) == list(range(30))


def test_a_part_of_a_window_reads_whole_batches(client: Client, cluster: Any) -> None:
    create(client, PLAIN)
    write(client, orders(0, 10), orders(10, 10), orders(20, 10))
    source = ClientLogSource(cluster.address, PATH)
    split = Split(bucket(client), (), 15, 25)
    assert ids(source.read(split)) == list(range(15, 25))
    assert ids(source.read(replace(split, part=SplitPart(1, 30)))) == list(range(10, 30))


def test_many_fetches_follow_one_another(client: Client, cluster: Any) -> None:
    create(client, PLAIN)
    write(client, *[orders(i * 10, 10) for i in range(50)])
    config = ClientConfig(bootstrap=cluster.address, fetch_max_bytes_per_bucket=1)
    with connect(config) as small:  # one batch a fetch
        assert ids(small.log_reader(PATH).read(bucket(client))) == list(range(500))


def test_an_empty_batch_moves_the_offset(client: Client) -> None:
    create(client, PLAIN)
    write(client, orders(0, 3))
    append_raw(client, empty())
    write(client, orders(4, 2))
    read = list(client.log_reader(PATH).read(bucket(client)))
    assert [(r.base_offset, r.next_offset, r.batch.num_rows) for r in read] == [
        (0, 3, 3),
        (3, 4, 0),
        (4, 6, 2),
    ]
    assert read[1].batch.schema == arrow_schema(SCHEMA)


def empty() -> bytes:
    schema = arrow_schema(SCHEMA)
    batch = pa.record_batch([pa.array([], field.type) for field in schema], schema=schema)
    return encode_log_batch(batch, 1)


def append_raw(client: Client, records: bytes) -> None:
    where = bucket(client)
    request = pb.ProduceLogRequest(acks=-1, table_id=where.table_id, timeout_ms=1000)
    request.buckets_req.add(bucket_id=0, records=records)
    client._connection.call_leader(
        PATH, where, apis.PRODUCE_LOG, request, lambda r: raise_in_body(r.buckets_resp[0])
    )


def test_offsets_that_the_log_does_not_hold(client: Client) -> None:
    create(client, PLAIN)
    write(client, orders(0, 10))
    with pytest.raises(LogOffsetOutOfRange, match=r"bucket 0 of table shop\.orders"):
        list(client.log_reader(PATH).read(bucket(client), 50, 60))


def test_a_stop_ahead_of_the_log_is_awaited(client: Client, cluster: Any) -> None:
    create(client, PLAIN)
    write(client, orders(0, 10))
    read = client.log_reader(PATH).read(bucket(client), 0, 20)
    assert next(read).next_offset == 10
    write(client, orders(10, 10))
    assert ids(read) == list(range(10, 20))


def test_a_stop_that_is_never_reached_has_a_deadline(client: Client, cluster: Any) -> None:
    create(client, PLAIN)
    write(client, orders(0, 10))
    config = ClientConfig(bootstrap=cluster.address, request_timeout_ms=1_500)
    with connect(config) as hasty, pytest.raises(RequestTimeOut, match="the log ends at 10"):
        list(hasty.log_reader(PATH).read(bucket(client), 0, 20))


def test_commit_timestamps_are_the_clusters(client: Client, cluster: Any) -> None:
    create(client, PLAIN)
    write(client, orders(0, 1))
    cluster.clock.ms += 5000
    write(client, orders(1, 1))
    read = list(client.log_reader(PATH).read(bucket(client)))
    assert [r.timestamp_ms for r in read] == [cluster.clock.ms - 5000, cluster.clock.ms]


# ---- schemas ----


def test_old_rows_come_in_the_schema_of_today(client: Client) -> None:
    create(client, PLAIN)
    write(client, orders(0, 2))
    with client.log_writer(PATH) as before:
        client.admin.add_columns(PATH, [Column("amount", t.INT, -1)])
        before.write(orders(2, 1))  # a writer from before the change goes on in its schema
    write(client, orders(3, 1).append_column("amount", pa.array([7], pa.int32())))
    read = list(client.log_reader(PATH).read(bucket(client)))
    assert pa.Table.from_batches([r.batch for r in read]).to_pydict() == {
        "id": [0, 1, 2, 3],
        "region": ["eu"] * 4,
        "amount": [None, None, None, 7],
    }


def test_newer_rows_are_not_read_in_an_older_schema(client: Client) -> None:
    create(client, PLAIN)
    reader = client.log_reader(PATH)
    client.admin.add_columns(PATH, [Column("amount", t.INT, -1)])
    write(client, orders(0, 1))
    with pytest.raises(SchemaNotExist, match="rows of schema 2, but the reader uses schema 1"):
        list(reader.read(bucket(client)))


def test_data_that_do_not_fit_are_refused_whole(client: Client) -> None:
    create(client, PLAIN)
    with client.log_writer(PATH) as writer:
        with pytest.raises(InvalidTable, match="'colour'"):
            writer.write(pa.table({"id": [1], "colour": ["red"]}))
        with pytest.raises(InvalidTable, match="'id'"):
            writer.write(pa.table({"id": ["one"]}))
    assert client.admin.list_offsets(PATH) == {0: 0}


def test_a_table_with_a_primary_key_is_refused() -> None:
    info = table_info({"id": t.BIGINT.not_null()}, path=PATH, primary_key=["id"])
    answer = pb.GetTableInfoResponse(
        table_id=1,
        schema_id=1,
        table_json=descriptor_to_json(info.descriptor),
        created_time=0,
        modified_time=0,
    )
    handlers = {(Role.COORDINATOR, apis.GET_TABLE_INFO): lambda _: answer}
    with (
        WireServer(handlers) as server,
        connect(server.address) as client,
        pytest.raises(InvalidTable, match=r"table shop\.orders has a primary key"),
    ):
        client.log_writer(PATH)


def test_a_table_that_is_not_there(client: Client) -> None:
    with pytest.raises(TableNotExist, match=r"shop\.orders"):
        client.log_writer(PATH)
    with pytest.raises(TableNotExist, match=r"shop\.orders"):
        client.log_reader(PATH)


def test_a_table_dropped_under_a_writer_and_a_reader(client: Client) -> None:
    create(client, PLAIN)
    writer, reader, where = client.log_writer(PATH), client.log_reader(PATH), bucket(client)
    client.admin.drop_table(PATH)
    create(client, PLAIN)
    writer.write(orders(0, 1))
    with pytest.raises(TableNotExist, match=r"table shop\.orders bucket 0: .*was dropped"):
        writer.flush()
    with pytest.raises(TableNotExist):
        writer.write(orders(0, 1))
    with pytest.raises(TableNotExist):
        writer.close()
    with pytest.raises(TableNotExist, match="was dropped"):
        list(reader.read(where, 0, 10))
    with pytest.raises(TableNotExist, match="does not belong to table"):
        list(client.log_reader(PATH).read(where))
    assert client.admin.list_offsets(PATH) == {0: 0}


# ---- on an executor ----


def test_a_log_source_travels_by_pickle_before_and_after_use(client: Client, cluster: Any) -> None:
    create(client, PLAIN)
    write(client, orders(0, 10))
    split = Split(bucket(client), (), -2, 10)
    source = ClientLogSource(cluster.address, PATH, client.admin.table_info(PATH))
    for _ in range(3):
        source = pickle.loads(pickle.dumps(source))
        assert ids(source.read(split)) == list(range(10))


def test_threads_share_a_log_source(client: Client, cluster: Any) -> None:
    create(client, PLAIN, bucket_count=4)
    write(client, *[orders(i * 100, 100) for i in range(8)])
    source = ClientLogSource(ClientConfig(bootstrap=cluster.address), PATH)
    found: list[int] = []
    splits = [Split(bucket(client, number), (), 0, 200) for number in range(4)]
    threads = [
        threading.Thread(target=lambda s=s: found.extend(ids(source.read(s)))) for s in splits
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(800))
