"""The client speaks with a server of each release by the calls and versions that it names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from sluice.client import Client, connect
from sluice.config import ServerConfig
from sluice.errors import UnsupportedVersion
from sluice.model import Column, Schema, TableBucket, TableDescriptor, TablePath
from sluice.model import types as t
from sluice.server.cluster import EmbeddedCluster
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from tests.support.fluss.fluss_versions import RELEASES, V0_9_1, V1_0_0, Versions
from tests.support.network.proxy import Proxy

LOG, KEYED, DAILY = (TablePath("shop", name) for name in ("events", "orders", "daily"))
COLUMNS = (Column("id", t.INT.not_null(), 0), Column("text", t.STRING, 1))
SCHEMA = Schema(COLUMNS, (), 1)
KEYED_SCHEMA = Schema(COLUMNS, ("id",), 1)
TIERED = {"table.datalake.enabled": "true", "table.datalake.freshness": "0s"}


@contextmanager
def server_of(folder: Path, versions: Versions) -> Iterator[tuple[Proxy, Client]]:
    """An embedded server that names only what a release has, and a client of it."""
    config = ServerConfig(data_dir=str(folder), listen="fluss://127.0.0.1:0")
    with EmbeddedCluster(config) as cluster, connect(cluster.address) as direct:
        reply = direct._connection.call_coordinator(
            apis.GET_METADATA, pb.MetadataRequest(), lambda reply: reply
        )
        [tablet] = reply.tablet_servers
        with Proxy([reply.coordinator_server.port, tablet.port]) as proxy:
            proxy.offer(versions)
            port = proxy.ports[reply.coordinator_server.port]
            with connect(f"fluss://127.0.0.1:{port}") as client:
                yield proxy, client


def rows(*ids: int) -> pa.Table:
    schema = pa.schema([pa.field("id", pa.int32(), nullable=False), ("text", pa.string())])
    return pa.table({"id": list(ids), "text": [f"t{i}" for i in ids]}, schema)


@pytest.mark.parametrize("release", RELEASES)
def test_all_that_a_round_and_a_user_do(tmp_path: Path, release: str) -> None:
    with server_of(tmp_path / "data", RELEASES[release]) as (proxy, client):
        use(client)
        sent = set(proxy.sent)
    versions = RELEASES[release]
    assert {key for key, _ in sent} <= set(versions), "no call that the server does not name"
    used = {key: version for key, version in sent if key != apis.API_VERSIONS.key}
    expected = {key: min(versions[key][1], apis.BY_KEY[key].max_version) for key in used}
    assert used == expected
    assert {apis.PRODUCE_LOG.key, apis.PUT_KV.key, apis.LOOKUP.key, apis.ALTER_TABLE.key} <= {*used}


def use(client: Client) -> None:
    client.admin.create_database("shop")
    client.admin.create_table(LOG, TableDescriptor(SCHEMA, bucket_count=1, properties=TIERED))
    client.admin.create_table(KEYED, TableDescriptor(KEYED_SCHEMA, bucket_count=1))
    client.admin.create_table(
        DAILY, TableDescriptor(SCHEMA, bucket_count=1, partition_keys=("text",))
    )
    client.admin.create_partition(DAILY, {"text": "t1"})
    with client.log_writer(LOG) as log, client.kv_writer(KEYED) as keyed:
        log.write(rows(1, 2, 3))
        keyed.upsert(rows(1, 2))
    with client.log_writer(DAILY) as daily:
        daily.write(rows(1))
    table_id = client.admin.table_info(LOG).table_id
    read = client.log_reader(LOG).read(TableBucket(table_id, None, 0))
    assert sum(records.batch.num_rows for records in read) == 3
    assert client.lookup(KEYED, rows(2).select(["id"]))["text"].to_pylist() == ["t2"]
    client.admin.add_columns(KEYED, [Column("more", t.STRING, -1)])
    assert client.limit_scan(KEYED, 10).num_rows == 2
    claim = client.tiering.claim([LOG])
    assert claim is not None
    assert client.tiering.still_claimed(claim)
    bucket = TableBucket(claim.table_id, None, 0)
    file = client.tiering.prepare_lake_snapshot(claim.table_id, LOG, {bucket: 3})
    client.tiering.commit_lake_snapshot(claim, 7, file, {bucket: 3}, {}, -1)
    client.tiering.finished(claim)
    snapshot = client.admin.lake_snapshot(LOG)
    assert snapshot is not None
    assert snapshot.offsets == {bucket: 3}


@pytest.mark.parametrize(("versions", "scans"), [(V0_9_1, False), (V1_0_0, True)])
def test_a_call_that_a_release_lacks_is_refused_without_a_request(
    tmp_path: Path, versions: Versions, *, scans: bool
) -> None:
    with server_of(tmp_path / "data", versions) as (proxy, client):
        client.admin.create_database("shop")
        client.admin.create_table(KEYED, TableDescriptor(KEYED_SCHEMA, bucket_count=1))
        with client.kv_writer(KEYED) as writer:
            writer.upsert(rows(1, 2))
        bucket = TableBucket(client.admin.table_info(KEYED).table_id, None, 0)
        if scans:
            with client.scan_kv(KEYED, bucket) as scan:
                assert sum(batch.num_rows for batch in scan.batches()) == 2
        else:
            with (
                pytest.raises(UnsupportedVersion, match="does not offer ScanKv"),
                client.scan_kv(KEYED, bucket) as scan,
            ):
                next(scan.batches())
        assert (apis.SCAN_KV.key in dict(proxy.sent)) == scans


def test_a_server_without_the_first_versions_is_served(tmp_path: Path) -> None:
    """As a release does that has dropped them: a call is offered by any version of both."""
    later = {**V1_0_0, apis.PUT_KV.key: (2, 3), apis.LOOKUP.key: (1, 1)}
    with server_of(tmp_path / "data", later) as (proxy, client):
        client.admin.create_database("shop")
        client.admin.create_table(KEYED, TableDescriptor(KEYED_SCHEMA, bucket_count=1))
        with client.kv_writer(KEYED) as writer:
            writer.upsert(rows(1, 2))
        assert client.lookup(KEYED, rows(2).select(["id"]))["text"].to_pylist() == ["t2"]
        assert dict(proxy.sent)[apis.PUT_KV.key] == 3


def test_only_calls_that_sluice_makes_are_missed(tmp_path: Path) -> None:
    with server_of(tmp_path / "data", V0_9_1) as (_, client):
        coordinator, tablet = client.admin.servers()
    own = {api.name for api in apis.APIS if api.key > 2000}
    assert set(coordinator.lacks) == own
    assert set(tablet.lacks) == {"ScanKv", "ListTieringStatuses"}
