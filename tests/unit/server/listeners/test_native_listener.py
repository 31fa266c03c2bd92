"""The embedded cluster behind Fluss's native ports: what a client is told, one way or the other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

from sluice.client import connect
from sluice.config import ClientConfig
from sluice.errors import AuthenticateError, ConfigurationError, UnsupportedVersion
from sluice.formats.log.batch import iter_batches
from sluice.server.cluster import EmbeddedCluster
from sluice.server.tablet.logs import fetch
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Role
from sluice.wire.native.sasl import AUTHENTICATE
from tests.support.fluss.native_call import NativeCall
from tests.unit.server.support import PATH, Caller, Node, batch, config, to_pb

BOTH_DOORS = "grpc://127.0.0.1:0,fluss://127.0.0.1:0"
ALL = pb.MetadataRequest()


@pytest.fixture
def node(start: Callable[..., Node]) -> Node:
    return start(listen=BOTH_DOORS)


@pytest.fixture
def ports(node: Node) -> dict[Role, int]:
    """The native ports, as a client learns them."""
    coordinator = urlsplit(node.cluster.addresses[1]).port
    assert coordinator is not None
    with NativeCall(coordinator, timeout_s=60) as call:
        found = call.call(apis.GET_METADATA, ALL)
    assert found.coordinator_server.port == coordinator
    (tablet,) = found.tablet_servers
    return {Role.COORDINATOR: coordinator, Role.TABLET: tablet.port}


@pytest.fixture
def native(ports: dict[Role, int]) -> Iterator[dict[Role, NativeCall]]:
    calls = {role: NativeCall(port, timeout_s=60) for role, port in ports.items()}
    yield calls
    for call in calls.values():
        call.close()


def test_each_listener_tells_its_own_ports(node: Node, native: dict[Role, NativeCall]) -> None:
    over_grpc = node.caller.call(apis.GET_METADATA, ALL)
    grpc_port = urlsplit(node.cluster.address).port
    assert {over_grpc.coordinator_server.port, over_grpc.tablet_servers[0].port} == {grpc_port}
    told = [native[role].call(apis.GET_METADATA, ALL) for role in Role]
    assert told[0] == told[1]
    assert told[0].coordinator_server.port != told[0].tablet_servers[0].port
    assert grpc_port not in (told[0].coordinator_server.port, told[0].tablet_servers[0].port)


def test_api_versions_are_those_of_the_role(node: Node, native: dict[Role, NativeCall]) -> None:
    request = pb.ApiVersionsRequest(client_software_name="t", client_software_version="1")
    for role in Role:
        answer = native[role].call(apis.API_VERSIONS, request)
        assert answer.server_type == role.value
        keys = {version.api_key for version in answer.api_versions}
        over_grpc = node.caller.call(apis.API_VERSIONS, request, role)
        assert keys == {version.api_key for version in over_grpc.api_versions} | {1038}


def test_a_call_of_the_other_role(native: dict[Role, NativeCall]) -> None:
    with pytest.raises(UnsupportedVersion, match="coordinator does not offer"):
        native[Role.COORDINATOR].call(apis.INIT_WRITER, pb.InitWriterRequest())
    request = pb.CreateDatabaseRequest(database_name="x", ignore_if_exists=False)
    with pytest.raises(UnsupportedVersion, match="tablet does not offer"):
        native[Role.TABLET].call(apis.CREATE_DATABASE, request)


def test_nobody_needs_to_log_in(native: dict[Role, NativeCall]) -> None:
    plain = pb.AuthenticateRequest(protocol="plaintext", token=b"")
    assert not native[Role.TABLET].call(AUTHENTICATE, plain).HasField("challenge")
    sasl = pb.AuthenticateRequest(protocol="PLAIN", token=b"\0me\0secret")
    with pytest.raises(AuthenticateError, match="without user and password"):
        native[Role.TABLET].call(AUTHENTICATE, sasl)


def test_remote_files_need_no_token(native: dict[Role, NativeCall]) -> None:
    answer = native[Role.TABLET].call(
        apis.GET_FILESYSTEM_SECURITY_TOKEN, pb.GetFileSystemSecurityTokenRequest()
    )
    assert (answer.schema, answer.token, answer.HasField("expiration_time")) == ("file", b"", False)


def test_a_writer_may_change_the_listener(node: Node, native: dict[Role, NativeCall]) -> None:
    table_id = node.caller.create_table()
    records = batch("a", writer_id=node.caller.init_writer(), sequence=0)
    answer = native[Role.TABLET].call(
        apis.PRODUCE_LOG,
        pb.ProduceLogRequest(
            acks=-1,
            table_id=table_id,
            timeout_ms=1000,
            buckets_req=[pb.PbProduceLogReqForBucket(bucket_id=0, records=records)],
        ),
    )
    assert not answer.buckets_resp[0].HasField("error_code"), answer


def test_both_listeners_lead_to_one_log(node: Node, native: dict[Role, NativeCall]) -> None:
    node.caller.create_database()
    table_id = node.caller.create_table()
    node.caller.produce(table_id, batch("a", "b"))
    answer = native[Role.TABLET].call(
        apis.PRODUCE_LOG,
        pb.ProduceLogRequest(
            acks=-1,
            table_id=table_id,
            timeout_ms=1000,
            buckets_req=[pb.PbProduceLogReqForBucket(bucket_id=0, records=batch("c"))],
        ),
    )
    assert answer.buckets_resp[0].base_offset == 2
    fetched = native[Role.TABLET].call(apis.FETCH_LOG, _fetch(table_id))
    records = fetched.tables_resp[0].buckets_resp[0].records
    assert [header.base_offset for header, _ in iter_batches(records)] == [0, 2]
    assert records == node.caller.fetch(table_id, 0).records


def test_an_idle_bucket_has_empty_records(node: Node, native: dict[Role, NativeCall]) -> None:
    table_id = node.caller.create_table()
    fetched = native[Role.TABLET].call(apis.FETCH_LOG, _fetch(table_id))
    (bucket,) = fetched.tables_resp[0].buckets_resp
    assert (bucket.HasField("records"), bucket.records) == (True, b"")


def test_a_large_answer_arrives_whole(node: Node, native: dict[Role, NativeCall]) -> None:
    node.caller.create_database()
    table_id = node.caller.create_table()
    sent = [batch(*(f"{i}-{j}" * 50 for j in range(20_000))) for i in range(8)]
    for records in sent:
        node.caller.produce(table_id, records)
    fetched = native[Role.TABLET].call(apis.FETCH_LOG, _fetch(table_id))
    records = fetched.tables_resp[0].buckets_resp[0].records
    assert len(records) == sum(map(len, sent))
    assert [bytes(view[25:]) for _, view in iter_batches(records)] == [b[25:] for b in sent]


def test_a_long_poll_is_answered_by_the_append(
    node: Node, native: dict[Role, NativeCall], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "WAIT_MAX_MS", 50_000)  # however late the append comes
    node.caller.create_database()
    table_id = node.caller.create_table()
    appending = threading.Timer(0.2, lambda: node.caller.produce(table_id, batch("late")))
    appending.start()
    fetched = native[Role.TABLET].call(
        apis.FETCH_LOG, _fetch(table_id, max_wait_ms=50_000, min_bytes=1)
    )
    appending.join()
    assert fetched.tables_resp[0].buckets_resp[0].records


def test_a_taken_tablet_port(ports: dict[Role, int], tmp_path: Path) -> None:
    listen = f"grpc://127.0.0.1:0, fluss://127.0.0.1:0?tablet={ports[Role.TABLET]}"
    second = EmbeddedCluster(config(tmp_path / "other", listen=listen))
    with pytest.raises(ConfigurationError, match=r"\(tablet server\): .* --listen .*\?tablet=PORT"):
        second.start()
    # nothing of the failed start stays behind
    with EmbeddedCluster(config(tmp_path / "other")) as third:
        Caller(third.address).create_database()


def test_our_client_over_the_native_listener(node: Node) -> None:
    node.caller.create_database()
    node.caller.create_table()
    rows = pa.table({"id": range(1000), "text": [f"t{i}" for i in range(1000)]})
    with connect(ClientConfig(bootstrap=node.cluster.addresses[1])) as client:
        with client.log_writer(PATH) as writer:
            writer.write(rows)
        info = client.admin.table_info(PATH)
        (end,) = client.admin.list_offsets(PATH, [0]).values()
        assert end == 1000
        assert (
            info.table_id
            == node.caller.call(
                apis.GET_TABLE_INFO, pb.GetTableInfoRequest(table_path=to_pb(PATH))
            ).table_id
        )


def _fetch(table_id: int, **more: Any) -> pb.FetchLogRequest:
    return pb.FetchLogRequest(
        follower_server_id=-1,
        max_bytes=64 << 20,
        tables_req=[
            pb.PbFetchLogReqForTable(
                table_id=table_id,
                projection_pushdown_enabled=False,
                buckets_req=[
                    pb.PbFetchLogReqForBucket(bucket_id=0, fetch_offset=0, max_fetch_bytes=64 << 20)
                ],
            )
        ],
        **more,
    )
