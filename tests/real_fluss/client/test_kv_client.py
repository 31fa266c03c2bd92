"""Tables with a primary key of a real Fluss: written, looked up, followed, read from snapshots."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluice.client import Client, connect
from sluice.config import ClientConfig
from sluice.errors import (
    DeletionDisabled,
    InvalidAlterTable,
    InvalidTable,
    KvSnapshotNotExist,
    LeaderNotAvailable,
    UnknownTableOrBucket,
    UnsupportedVersion,
)
from sluice.formats.types.types import arrow_schema
from sluice.model import BucketSnapshot, Column, Schema, TableBucket, TableDescriptor, TablePath
from sluice.model import types as t
from sluice.wire import apis
from tests.conformance.every_type import EVERY_TYPE, every_value
from tests.support.clients.official_client import CHANGE, OfficialClient
from tests.support.clusters.s3_server import S3Server
from tests.support.fluss.checkpoints import wait_for_checkpoint
from tests.support.fluss.real_fluss import RealFluss
from tests.support.fluss.s3_fluss import CLUSTER_KEY, S3Fluss
from tests.support.fluss.table_creation import create_table
from tests.support.harness.findings import finding
from tests.support.harness.needs import needs_pyfluss
from tests.support.network import proxy as faults
from tests.support.network.proxy import Proxy
from tests.support.programs.processes import wait_for
from tests.support.tables import keyed_orders
from tests.support.tables.keyed_orders import REGIONAL, Row, changelog, keys, replayed, rows, tuples

pytestmark = [pytest.mark.real_fluss, pytest.mark.slow]

SNAPSHOTS = {"kv.snapshot.interval": "500ms", "kv.snapshot.num-retained": "1"}


@pytest.fixture(scope="module")
def fluss(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealFluss]:
    with RealFluss(tmp_path_factory.mktemp("fluss"), lake=False, conf=SNAPSHOTS) as running:
        yield running


@pytest.fixture
def client(fluss: RealFluss) -> Iterator[Client]:
    with connect(fluss.bootstrap) as client:
        yield client


def new_table(client: Client, descriptor: TableDescriptor, **changes: Any) -> TablePath:
    path = TablePath("kv", f"t{uuid.uuid4().hex[:8]}")
    client.admin.create_database(path.database, ignore_if_exists=True)
    create_table(client, path, replace(descriptor, **changes))
    return path


def newest(client: Client, path: TablePath) -> list[BucketSnapshot]:
    """Snapshots that hold all that the buckets' logs have; waits for them."""
    info = client.admin.table_info(path)
    ends = client.admin.list_offsets(path)

    def found() -> dict[TableBucket, BucketSnapshot]:
        latest = client.leases.latest(path).snapshots
        return {b: s for b, s in latest.items() if s.log_offset >= ends[b.bucket]}

    written = [n for n, end in ends.items() if end]
    wait_for("KV snapshots of all that was written", lambda: len(found()) == len(written), 60)
    assert info.has_primary_key
    return list(found().values())


def snapshot_rows(client: Client, path: TablePath) -> list[Row]:
    """A newer snapshot may take the place of one that is being read: then that one is read."""
    deadline = time.monotonic() + 60
    while True:
        try:
            result: list[Row] = []
            for each in newest(client, path):
                with client.kv_snapshot(path, each.bucket, each.snapshot_id) as snapshot:
                    assert snapshot.log_offset == each.log_offset
                    result += [row for batch in snapshot.batches() for row in tuples(batch)]
        except KvSnapshotNotExist:
            assert time.monotonic() < deadline
        else:
            return sorted(result, key=repr)


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"table.kv.format": "INDEXED"},
        {"table.log.format": "COMPACTED"},
        {"table.datalake.format": "paimon"},
        {"table.kv.format-version": "1"},
    ],
    ids=lambda properties: "-".join(properties.values()) or "plain",
)
@needs_pyfluss
def test_every_type_goes_there_and_back(
    fluss: RealFluss, client: Client, properties: dict[str, str]
) -> None:
    kinds = {"id": t.BIGINT.not_null()} | EVERY_TYPE
    columns = tuple(Column(name, kind, i) for i, (name, kind) in enumerate(kinds.items()))
    schema = Schema(columns, ("id",), len(kinds) - 1)
    path = new_table(client, TableDescriptor(schema, bucket_count=3, properties=properties))
    field = arrow_schema(schema).field("id")
    written = every_value().add_column(0, field, [pa.array([7, 8])])
    with client.kv_writer(path) as writer:
        writer.upsert(written)
        writer.flush()
        writer.upsert(written.slice(1))
        writer.delete(keys(7))
        writer.upsert(written.slice(0, 1))
    expected = tuples(written)
    assert tuples(client.lookup(path, keys(8, 1, 7))) == [
        expected[1],
        (None,) * len(kinds),
        expected[0],
    ]
    assert sorted(tuples(client.limit_scan(path, 5))) == expected
    changes = changelog(client, path)
    by_id = {i: [kind for kind, row in changes if row[0] == i] for i in (7, 8)}
    assert by_id == {7: ["+I", "-D", "+I"], 8: ["+I", "-U", "+U"]}
    assert sorted(replayed(changes).values()) == expected
    assert snapshot_rows(client, path) == expected
    if not {"table.log.format", "table.kv.format"} & set(properties):  # pyfluss cannot read those
        official = OfficialClient(fluss.bootstrap)
        assert official.run([{"op": "lookup", "path": str(path), "rows": keys(7, 8, 9)}]) == [
            [True, True, False]
        ]
        assert official.scan(str(path))[CHANGE].to_pylist() == [kind for kind, _ in changes]


@needs_pyfluss
def test_a_key_of_several_types_without_a_lake(fluss: RealFluss, client: Client) -> None:
    """Its own client finds the rows, so keys and buckets are those of Fluss."""
    kinds = {"a": t.STRING.not_null(), "b": t.BOOLEAN.not_null(), "c": t.DATE.not_null()}
    columns = tuple(Column(name, kind, i) for i, (name, kind) in enumerate(kinds.items()))
    keyed = TableDescriptor(Schema(columns, tuple(kinds), 2), bucket_count=5)
    path = new_table(client, keyed)
    assert client.admin.table_info(path).datalake_format is None
    # no byte above 7F: pyfluss takes another bucket for some (docs/fluss/known-problems.md)
    texts, booleans, days = [f"n{n}" for n in range(20)], [True, False] * 10, list(range(20))
    arrays = [pa.array(texts), pa.array(booleans), pa.array(days, pa.int32()).cast(pa.date32())]
    rows = pa.table(arrays, arrow_schema(keyed.schema))
    with client.kv_writer(path) as writer:
        writer.upsert(rows)
    official = OfficialClient(fluss.bootstrap)
    asked = [{"op": "lookup", "path": str(path), "rows": rows}]
    assert official.run(asked) == [[True] * 20]
    enabled = {"table.datalake.enabled": "true"}
    with pytest.raises(InvalidTable, match="doesn't enable datalake"):
        new_table(client, keyed, properties=enabled)
    with pytest.raises(InvalidAlterTable, match="created before the Fluss cluster enabled"):
        client.admin.set_options(path, enabled)


def test_partial_updates_and_forbidden_deletes(client: Client) -> None:
    path = new_table(client, keyed_orders.KEYED)
    with client.kv_writer(path) as writer:
        writer.upsert(rows((1, "a", 1), (2, "b", 2)))
    with client.kv_writer(path, ["id", "n"]) as writer:
        writer.upsert(pa.table({"n": [10, 30], "id": [1, 3]}))
        writer.delete(keys(2))
    assert tuples(client.lookup(path, keys(1, 2, 3))) == [
        (1, "a", 10),
        (2, "b", None),
        (3, None, 30),
    ]
    kept = new_table(client, keyed_orders.KEYED, properties={"table.delete.behavior": "DISABLE"})
    with pytest.raises(DeletionDisabled), client.kv_writer(kept) as writer:
        writer.delete(keys(1))


def new_regional_table(fluss: RealFluss) -> TablePath:
    """Its coordinator may miss a new table: then the buckets get no leader, and another is made."""
    with connect(ClientConfig(fluss.bootstrap, retry_timeout_ms=8_000)) as client:
        client.admin.create_database("kv", ignore_if_exists=True)
        for _ in range(5):
            path = TablePath("kv", f"t{uuid.uuid4().hex[:8]}")
            client.admin.create_table(path, REGIONAL)
            client.admin.create_partition(path, {"region": "eu"})
            try:
                [partition] = client.admin.partitions(path)
                client.admin.list_offsets(path, partition_id=partition.partition_id)
            except (LeaderNotAvailable, UnknownTableOrBucket):
                client.admin.drop_table(path)
            else:
                return path
    raise AssertionError("no table was noticed")


def test_partitions_prefixes_and_new_columns(fluss: RealFluss, client: Client) -> None:
    path = new_regional_table(fluss)
    names = REGIONAL.schema.names
    written = [(r, c, i, i) for r in ("eu", "us") for c in ("ann", "anna") for i in range(3)]
    columns = zip(names, map(list, zip(*written, strict=True)), strict=True)
    with client.kv_writer(path, dynamic_partitions=True) as writer:
        writer.upsert(pa.table(dict(columns)))
    asked = pa.table({"region": ["us", "xx", "eu"], "customer": ["ann", "ann", "anna"]})
    assert tuples(client.prefix_lookup(path, asked)) == [
        *(row for row in written if row[:2] == ("us", "ann")),
        *(row for row in written if row[:2] == ("eu", "anna")),
    ]
    client.admin.add_columns(path, [Column("colour", t.STRING, -1)])
    with client.kv_writer(path) as writer:
        writer.upsert(
            pa.table({"region": ["eu"], "customer": ["ann"], "id": [0], "colour": ["red"]})
        )
    key = pa.table({"region": ["eu", "eu"], "customer": ["ann", "ann"], "id": [0, 1]})
    assert tuples(client.lookup(path, key)) == [
        ("eu", "ann", 0, None, "red"),
        ("eu", "ann", 1, 1, None),
    ]
    assert client.limit_scan(path, 100, "us").num_rows == 6
    with client.kv_writer(path) as writer:
        writer.delete(pa.table({"region": ["us", "xx"], "customer": ["ann", "ann"], "id": [0, 0]}))
    assert client.limit_scan(path, 100, "us").num_rows == 5


@pytest.mark.parametrize("fault", [faults.hang, faults.close, faults.cut, faults.error(12)])
def test_a_put_whose_answer_is_lost_is_stored_once(fluss: RealFluss, fault: faults.Fault) -> None:
    timeout_ms = 3_000 if fault is faults.hang else 30_000
    with Proxy([fluss.coordinator_port, fluss.tablet_port]) as proxy:
        address = f"fluss://127.0.0.1:{proxy.ports[fluss.coordinator_port]}"
        with connect(ClientConfig(address, request_timeout_ms=timeout_ms)) as client:
            path = new_table(client, keyed_orders.KEYED)
            with client.kv_writer(path) as writer:
                writer.upsert(rows((1, "a", 1)))
                writer.flush()
                proxy.plan(apis.PUT_KV, fault, fault)
                writer.upsert(rows((1, "b", 2)))
                writer.flush()
                assert proxy.planned == 0
                writer.delete(keys(1))
            assert [kind for kind, _ in changelog(client, path)] == ["+I", "-U", "+U", "-D"]
            assert client.limit_scan(path, 10).num_rows == 0


def test_writing_goes_on_over_a_restart_of_the_tablet_server(fluss: RealFluss) -> None:
    with connect(fluss.bootstrap) as client:
        path = new_table(client, keyed_orders.KEYED, bucket_count=2)
        errors: list[BaseException] = []
        writer = client.kv_writer(path)

        def put(first: int) -> None:
            for i in range(first, first + 100):
                ids = range(i * 10, i * 10 + 10)
                writer.upsert(rows(*((k, "first", i) for k in ids)))
                writer.upsert(rows(*((k, "second", i) for k in ids)))
                writer.delete(keys(i * 10))
            writer.flush()

        def run() -> None:
            try:
                put(100)
            except BaseException as error:
                errors.append(error)

        put(0)
        wait_for_checkpoint(fluss, client, path)
        fluss.kill_tablet()
        thread = threading.Thread(target=run)
        thread.start()
        fluss.start_tablet()
        thread.join(240)
        assert not thread.is_alive()
        assert errors == []
        writer.close()
        expected = {k: (k, "second", k // 10) for k in range(2000) if k % 10}
        with finding():
            changes = changelog(client, path)
            assert len(changes) == 2000 * 3 + 200
            assert replayed(changes) == expected
            assert {row[0]: row for row in tuples(client.limit_scan(path, 5000))} == expected
            assert snapshot_rows(client, path) == sorted(expected.values(), key=repr)


@pytest.mark.long
def test_snapshots_on_s3_are_read_with_the_clusters_token(tmp_path: Path) -> None:
    with S3Server() as s3:
        s3.bucket("fluss")
        with (
            S3Fluss(tmp_path / "fluss", s3, "fluss", SNAPSHOTS) as fluss,
            connect(fluss.bootstrap) as client,
        ):
            path = new_table(client, keyed_orders.KEYED)
            written = [(i, f"item {i}", i) for i in range(10_000)]
            with client.kv_writer(path) as writer:
                writer.upsert(rows(*written))
            del s3.seen[:]
            assert snapshot_rows(client, path) == sorted(written, key=repr)
            keys_seen = {key for key in s3.seen if key}
            assert keys_seen - {CLUSTER_KEY, "tester"}, "a token of its own"


def test_a_fluss_that_has_no_full_scans_is_said_to_have_none(client: Client) -> None:
    path = new_table(client, keyed_orders.KEYED)
    bucket = TableBucket(client.admin.table_info(path).table_id, None, 0)
    with pytest.raises(UnsupportedVersion, match="ScanKv"), client.scan_kv(path, bucket):
        raise AssertionError("Fluss 0.9.1 answers no such call")
