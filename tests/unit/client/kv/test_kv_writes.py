"""KV writer, look-ups and the changelog against a real cluster, over both transports."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest

from sluice.client import Client, connect
from sluice.config import ClientConfig
from sluice.errors import (
    DeletionDisabled,
    InvalidScanRequest,
    InvalidTable,
    InvalidTargetColumn,
    NonPrimaryKeyTable,
    PartitionNotExists,
    RequestTimeOut,
    SchemaNotExist,
)
from sluice.formats.types.types import arrow_schema
from sluice.model import ChangeType, Column, Schema, TableBucket, TableDescriptor
from sluice.model import types as t
from tests.conformance.every_type import EVERY_TYPE, every_value
from tests.support.tables.keyed_orders import (
    KEYED,
    PATH,
    REGIONAL,
    changelog,
    changes_of,
    create,
    keys,
    replayed,
    rows,
    tuples,
)


def bucket(client: Client, number: int = 0, partition_id: int | None = None) -> TableBucket:
    return TableBucket(client.admin.table_info(PATH).table_id, partition_id, number)


# ---- writing ----


def test_upserts_and_deletes_come_in_their_order(client: Client) -> None:
    create(client)
    with client.kv_writer(PATH) as writer:
        writer.upsert(rows((1, "a", 1), (2, "b", None)))
        writer.upsert(rows((1, "c", 3)))
        writer.delete(keys(2, 9))
        writer.upsert(rows((2, "d", 4)))
        writer.delete(rows((1, "passed over", 0)))
    assert changelog(client) == [
        ("+I", (1, "a", 1)),
        ("+I", (2, "b", None)),
        ("-U", (1, "a", 1)),
        ("+U", (1, "c", 3)),
        ("-D", (2, "b", None)),
        ("+I", (2, "d", 4)),
        ("-D", (1, "c", 3)),
    ]
    assert tuples(client.limit_scan(PATH, 10)) == [(2, "d", 4)]


def test_a_partial_update_leaves_the_other_columns(client: Client) -> None:
    create(client)
    with client.kv_writer(PATH) as writer:
        writer.upsert(rows((1, "a", 1), (2, "b", 2)))
    with client.kv_writer(PATH, ["id", "n"]) as writer:
        writer.upsert(pa.table({"n": [10, 30], "id": [1, 3]}))
        writer.delete(keys(2))
        with pytest.raises(InvalidTable, match="'item'"):
            writer.upsert(rows((1, "x", 1)))
    assert tuples(client.lookup(PATH, keys(1, 2, 3))) == [
        (1, "a", 10),
        (2, "b", None),
        (3, None, 30),
    ]


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (["n"], "add the key column 'id'"),
        (["id", "colour"], "no column 'colour'"),
        ([], "target_columns is empty"),
    ],
)
def test_target_columns_that_cannot_be(client: Client, names: list[str], problem: str) -> None:
    create(client)
    with pytest.raises(InvalidTargetColumn, match=problem):
        client.kv_writer(PATH, names)


def test_a_column_that_may_not_be_null_is_in_each_write(client: Client) -> None:
    columns = (*KEYED.schema.columns, Column("must", t.INT.not_null(), 3))
    create(client, schema=Schema(columns, ("id",), 3))
    with pytest.raises(InvalidTargetColumn, match="'must' to the target columns: it is NOT NULL"):
        client.kv_writer(PATH, ["id", "n"])


@pytest.mark.parametrize("row_format", ["COMPACTED", "INDEXED"])
@pytest.mark.parametrize("lake", [None, "iceberg"])
def test_every_type_comes_back(client: Client, row_format: str, lake: str | None) -> None:
    kinds = {"id": t.BIGINT.not_null()} | EVERY_TYPE
    schema = Schema(
        tuple(Column(name, kind, i) for i, (name, kind) in enumerate(kinds.items())),
        ("id",),
        len(kinds) - 1,
    )
    lakes = {"table.datalake.format": lake} if lake else {}
    properties = {"table.kv.format": row_format} | lakes
    create(client, TableDescriptor(schema, bucket_count=3, properties=properties))
    written = every_value().add_column(0, schema_field(schema, "id"), [pa.array([7, 8])])
    with client.kv_writer(PATH) as writer:
        writer.upsert(written)
    assert tuples(client.lookup(PATH, keys(8, 1, 7))) == [
        tuples(written)[1],
        (None,) * len(kinds),
        tuples(written)[0],
    ]
    assert sorted(tuples(client.limit_scan(PATH, 5))) == tuples(written)
    read = {row[0]: (kind, row) for kind, row in changelog(client)}
    assert read == {row[0]: ("+I", row) for row in tuples(written)}


def schema_field(schema: Schema, name: str) -> pa.Field:
    return arrow_schema(schema).field(name)


def test_a_row_that_does_not_fit_costs_no_other(client: Client) -> None:
    columns = (Column("id", t.BIGINT.not_null(), 0), Column("code", t.char(2), 1))
    properties = {"table.kv.format": "INDEXED"}  # its rows have room for two characters
    schema = Schema(columns, ("id",), 1)
    create(client, TableDescriptor(schema, bucket_count=1, properties=properties))
    with client.kv_writer(PATH) as writer:
        with pytest.raises(InvalidTable, match="'id' is NOT NULL"):
            writer.upsert(pa.table({"id": [1, None], "code": ["a", "b"]}))
        with pytest.raises(InvalidTable, match="'code'"):
            writer.upsert(pa.table({"id": [1, 2], "code": ["a", "long"]}))
        with pytest.raises(InvalidTable, match="'id'"):
            writer.delete(pa.table({"code": ["a"]}))
    assert client.admin.list_offsets(PATH) == {0: 0}


def test_a_delete_that_the_table_forbids_is_named(client: Client) -> None:
    create(client, properties={"table.delete.behavior": "DISABLE"})
    writer = client.kv_writer(PATH)
    writer.delete(keys(1))
    with pytest.raises(DeletionDisabled, match=r"table shop\.orders bucket 0: .*DISABLE"):
        writer.flush()
    with pytest.raises(DeletionDisabled):
        writer.close()


def test_log_tables_are_refused(client: Client) -> None:
    create(client, schema=Schema(KEYED.schema.columns, (), 2))
    with pytest.raises(NonPrimaryKeyTable, match=r"shop\.orders has no primary key"):
        client.kv_writer(PATH)
    with pytest.raises(NonPrimaryKeyTable, match=r"shop\.orders has no primary key"):
        client.lookup(PATH, keys(1))


@pytest.mark.parametrize("buckets", [1, 4])
def test_no_change_is_lost_or_doubled_when_the_server_restarts(
    client: Client, cluster: Any, buckets: int
) -> None:
    create(client, bucket_count=buckets)
    written = threading.Event()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            with client.kv_writer(PATH) as writer:
                for i in range(200):
                    # each key is put twice, and every tenth goes again
                    writer.upsert(rows(*((k, "first", i) for k in range(i * 10, i * 10 + 10))))
                    writer.upsert(rows(*((k, "second", i) for k in range(i * 10, i * 10 + 10))))
                    writer.delete(keys(i * 10))
                    if i % 3 == 0:
                        writer.flush()
                    if i == 60:
                        written.set()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert written.wait(60)
    for _ in range(2):
        cluster.stop(grace_s=0)
        cluster.start()
    thread.join(60)
    assert errors == []
    changes = changelog(client)
    assert len(changes) == 2000 * 3 + 200
    expected = {k: (k, "second", k // 10) for k in range(2000) if k % 10}
    assert replayed(changes) == expected
    assert {row[0]: row for row in tuples(client.limit_scan(PATH, 5000))} == expected


def test_a_put_whose_answer_is_late_is_stored_once(client: Client, cluster: Any) -> None:
    create(client)
    begun, release = threading.Event(), threading.Event()
    appends: list[None] = []

    def hold() -> None:
        appends.append(None)
        if len(appends) == 2:
            begun.set()
            release.wait(60)

    cluster.files.before_append = hold
    config = ClientConfig(bootstrap=cluster.address, request_timeout_ms=300)
    with connect(config) as hasty, hasty.kv_writer(PATH) as writer:
        writer.upsert(rows((1, "a", 1)))
        writer.flush()
        writer.upsert(rows((1, "b", 2)))
        with pytest.raises(RequestTimeOut, match="not all batches were stored"):
            writer.flush(timeout_s=1.0)  # long enough for a second try
        assert begun.wait(60)
        release.set()
        writer.upsert(rows((1, "c", 3)))
        writer.flush()
    assert len(appends) == 3
    assert [kind for kind, _ in changelog(client)] == ["+I", "-U", "+U", "-U", "+U"]


# ---- partitions and prefixes ----


def regional(*rows: tuple[Any, ...]) -> pa.Table:
    names = REGIONAL.schema.names
    return pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))


def test_partitions_each_have_their_rows(client: Client) -> None:
    create(client, REGIONAL)
    written = [("eu", "ann", 1, 1), ("us", "ann", 1, 2), ("eu", "bob", 2, 3)]
    with pytest.raises(PartitionNotExists), client.kv_writer(PATH) as writer:
        writer.upsert(regional(*written))
    with client.kv_writer(PATH, dynamic_partitions=True) as writer:
        writer.upsert(regional(*written))
    asked = regional(*written, ("eu", "bob", 9, 0), ("none", "ann", 1, 0)).drop(["n"])
    assert tuples(client.lookup(PATH, asked)) == [*written, (None,) * 4, (None,) * 4]
    assert sorted(tuples(client.limit_scan(PATH, 9, "eu"))) == [written[0], written[2]]
    with client.kv_writer(PATH) as writer:
        writer.delete(asked)
    assert client.limit_scan(PATH, 9, "us").num_rows == 0
    for name in (None, "none"):
        with pytest.raises(PartitionNotExists, match=r"shop\.orders has no partition"):
            client.limit_scan(PATH, 9, name)


def test_rows_are_found_by_prefix(client: Client) -> None:
    create(client, REGIONAL)
    written = [("eu", name, i, i) for name in ("ann", "anna", "bob") for i in range(5)]
    with client.kv_writer(PATH, dynamic_partitions=True) as writer:
        writer.upsert(regional(*written, ("us", "ann", 7, 7)))
    asked = pa.table({"region": ["eu", "eu", "eu", "xx"], "customer": ["bob", "joe", "ann", "bob"]})
    assert tuples(client.prefix_lookup(PATH, asked)) == [
        *(row for row in written if row[1] == "bob"),
        *(row for row in written if row[1] == "ann"),
    ]
    with pytest.raises(InvalidTable, match="'customer' is NOT NULL, but is missing"):
        client.prefix_lookup(PATH, asked.select(["region"]))


def test_a_table_whose_keys_have_no_prefix(client: Client) -> None:
    create(client)
    with pytest.raises(InvalidTable, match="the bucket key is id"):
        client.prefix_lookup(PATH, keys(1))


def test_no_batch_of_keyed_rows_is_larger_than_the_client_sends(
    client: Client, cluster: Any
) -> None:
    create(client)
    with connect(ClientConfig(bootstrap=cluster.address, max_message_bytes=65_536)) as small:
        with small.kv_writer(PATH) as writer:
            writer.upsert(rows(*((i, "x" * 600, i) for i in range(1000))))
        assert small.lookup(PATH, keys(*range(1000))).num_rows == 1000


# ---- look-ups ----


def test_rows_that_do_not_fit_one_answer_are_asked_for_in_parts(
    client: Client, cluster: Any
) -> None:
    create(client)
    cluster.stop()
    cluster.start(max_message_bytes=300_000)
    text = "x" * 1000
    with client.kv_writer(PATH) as writer:
        for first in range(0, 900, 100):
            writer.upsert(rows(*((i, text, i) for i in range(first, first + 100))))
            writer.flush()
    asked = list(range(899, -1, -1))
    assert tuples(client.lookup(PATH, keys(*asked))) == [(i, text, i) for i in asked]
    assert client.limit_scan(PATH, 150).num_rows == 150


@pytest.mark.parametrize("limit", [0, -1, 2**31])
def test_a_limit_that_cannot_be(client: Client, limit: int) -> None:
    create(client)
    with pytest.raises(InvalidScanRequest, match=str(limit)):
        client.limit_scan(PATH, limit)


def test_a_limit_goes_over_buckets(client: Client) -> None:
    create(client, bucket_count=4)
    with client.kv_writer(PATH) as writer:
        writer.upsert(rows(*((i, "a", i) for i in range(100))))
    found = client.limit_scan(PATH, 60)
    assert len({row[0] for row in tuples(found)}) == found.num_rows == 60
    assert client.limit_scan(PATH, 1000).num_rows == 100


def test_old_rows_are_found_in_the_schema_of_today(client: Client) -> None:
    create(client)
    before = client.kv_reader(PATH)
    with client.kv_writer(PATH) as writer:
        writer.upsert(rows((1, "a", 1)))
    client.admin.add_columns(PATH, [Column("colour", t.STRING, -1)])
    with client.kv_writer(PATH) as writer:
        writer.upsert(pa.table({"id": [2], "colour": ["red"]}))
    expected = [(2, None, None, "red"), (1, "a", 1, None)]
    assert tuples(client.lookup(PATH, keys(2, 1))) == expected
    assert changelog(client) == [("+I", expected[1]), ("+I", expected[0])]
    assert tuples(before.lookup(keys(1))) == [(1, "a", 1)]
    with pytest.raises(SchemaNotExist, match="create a new reader"):
        before.lookup(keys(2))


# ---- the changelog ----


def test_change_types_follow_a_window_inside_a_batch(client: Client) -> None:
    create(client)
    with client.kv_writer(PATH) as writer:
        writer.upsert(rows((1, "a", 1), (1, "b", 2), (1, "c", 3)))
    [found] = client.log_reader(PATH).read(bucket(client), 1, 4)
    assert found.change_types == pa.array([2, 3, 2], pa.uint8())
    assert [ChangeType(kind).symbol for kind in found.change_types.to_pylist()] == [
        "-U",
        "+U",
        "-U",
    ]
    assert tuples(found.batch) == [(1, "a", 1), (1, "b", 2), (1, "b", 2)]


def test_a_put_that_changes_nothing_moves_the_offset(client: Client) -> None:
    create(client)
    with client.kv_writer(PATH) as writer:
        writer.delete(keys(5))
    [found] = client.log_reader(PATH).read(bucket(client))
    assert (found.batch.num_rows, found.base_offset, found.next_offset) == (0, 0, 1)
    assert found.change_types == pa.array([], pa.uint8())
    assert changes_of([found]) == []


def test_a_log_table_has_no_change_types(client: Client) -> None:
    create(client, schema=Schema(KEYED.schema.columns, (), 2))
    with client.log_writer(PATH) as writer:
        writer.write(rows((1, "a", 1)))
    [found] = client.log_reader(PATH).read(bucket(client))
    assert found.change_types is None
