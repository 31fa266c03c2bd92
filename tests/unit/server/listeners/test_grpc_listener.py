"""What the gRPC listener does apart from the calls: limits, health, reflection, refusals."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from sluice.errors import ConfigurationError, StorageBackpressure, UnsupportedVersion
from sluice.model import TablePath
from sluice.server.cluster import EmbeddedCluster
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import TABLET, Api, Role
from sluice.wire.grpc.server import CALLS_PER_WORKER, GrpcLimits, GrpcServer
from sluice.wire.grpc.transport import GrpcTransport
from tests.support.network.http2_peer import ACK, GOAWAY, PING, Frame, Http2Peer
from tests.unit.server.support import Caller, Node, config, to_pb


def test_api_versions_tells_what_is_offered(caller: Caller) -> None:
    request = pb.ApiVersionsRequest(client_software_name="t", client_software_version="1")
    for role in Role:
        answer = caller.call(apis.API_VERSIONS, request, role)
        assert answer.server_type == role.value
        offered = {version.api_key for version in answer.api_versions}
        assert all(role in apis.BY_KEY[key].roles for key in offered)
        assert apis.API_VERSIONS.key in offered
        assert apis.GET_METADATA.key in offered
        assert (apis.FETCH_LOG.key in offered) == (role is Role.TABLET)
        assert (apis.LAKE_TIERING_HEARTBEAT.key in offered) == (role is Role.COORDINATOR)


def test_a_call_that_is_not_offered(caller: Caller) -> None:
    messages = pb.ListDatabasesRequest, pb.ListDatabasesResponse
    later = Api(1099, "Later", *messages, TABLET, idempotent=False)
    with pytest.raises(UnsupportedVersion):
        caller.call(later, pb.ListDatabasesRequest())


def test_bytes_that_are_no_message(caller: Caller) -> None:
    with grpc.insecure_channel(caller.address.removeprefix("grpc://")) as channel:
        method = channel.unary_unary(apis.GET_TABLE_INFO.grpc_method(Role.TABLET))
        with pytest.raises(grpc.RpcError) as caught:
            method(b"\xff\xff\xff", timeout=60)
    metadata = dict(caught.value.trailing_metadata())
    error = pb.ErrorResponse.FromString(metadata["fluss-error-bin"])
    assert error.error_code == 3
    assert "GetTableInfo" in error.error_message


def test_a_long_error_still_arrives(caller: Caller) -> None:
    request = pb.GetTableInfoRequest(table_path=to_pb(TablePath("db", "ö" * 5_000)))
    with pytest.raises(Exception, match="öööö") as caught:
        caller.call(apis.GET_TABLE_INFO, request)
    assert type(caught.value).__name__ == "TableNotExist"


def test_health(node: Node) -> None:
    with grpc.insecure_channel(node.caller.address.removeprefix("grpc://")) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for service in ("", "fluss.CoordinatorService", "fluss.TabletService"):
            answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=60)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.RpcError):
            stub.Check(health_pb2.HealthCheckRequest(service="nobody"), timeout=60)


def test_reflection(caller: Caller) -> None:
    with grpc.insecure_channel(caller.address.removeprefix("grpc://")) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        assert {"fluss.CoordinatorService", "fluss.TabletService"} <= set(database.get_services())
        service = DescriptorPool(database).FindServiceByName("fluss.TabletService")
        assert "FetchLog" in service.methods_by_name


def test_a_call_on_a_connection_that_is_about_to_end_is_served() -> None:
    """The client has sent it before it reads that its connection ends."""
    handlers = {Role.TABLET: {apis.INIT_WRITER: lambda _: pb.InitWriterResponse(writer_id=7)}}
    limits = GrpcLimits(max_message_bytes=1 << 20, max_workers=1, age_s=0.2)
    server = GrpcServer(handlers, "127.0.0.1", 0, limits=limits)
    peer = Http2Peer(server.start())
    try:
        pings: list[Frame] = []
        seen: set[int] = set()
        while GOAWAY not in seen:
            found = peer.frames()
            assert found, "the server closed without a word"
            seen |= {one.kind for one in found}
            pings += [one for one in found if one.kind == PING and not one.flags & ACK]
        call = peer.begin(apis.INIT_WRITER.grpc_method(Role.TABLET))
        peer.message(call, b"")
        assert peer.ended({call}) == {call}
        assert peer.answered == {call}
        for ping in pings:
            peer.acknowledge(ping)
        while peer.frames():
            pass  # until the server closes: nothing is left to answer
    finally:
        peer.close()
        server.stop(0)


def test_calls_above_the_limit_are_refused_and_may_be_sent_again() -> None:
    release = threading.Event()

    def hang(_: pb.InitWriterRequest) -> pb.InitWriterResponse:
        assert release.wait(120)
        return pb.InitWriterResponse(writer_id=7)

    server = GrpcServer(
        {Role.TABLET: {apis.INIT_WRITER: hang}},
        "127.0.0.1",
        0,
        limits=GrpcLimits(max_message_bytes=1 << 20, max_workers=1),
    )
    port = server.start()
    transport = GrpcTransport(f"grpc://127.0.0.1:{port}", "127.0.0.1", port, 1 << 20)

    def call(_: int = 0) -> int:
        request = pb.InitWriterRequest()
        return int(transport.call(Role.TABLET, apis.INIT_WRITER, request, 120_000).writer_id)  # type: ignore[attr-defined]

    try:
        per_peer = CALLS_PER_WORKER // 2
        with ThreadPoolExecutor(per_peer + 1) as pool:
            calls = [pool.submit(call) for _ in range(per_peer + 1)]
            (refused,), waiting = wait(calls, 60, FIRST_COMPLETED)
            assert len(waiting) == per_peer
            text = "127.0.0.1 has 2 calls at once, the limit of one peer: try again later"
            with pytest.raises(StorageBackpressure, match=text):
                refused.result()
            assert StorageBackpressure.retryable
            release.set()
            assert [done.result(60) for done in waiting] == [7] * per_peer
        assert call() == 7
    finally:
        release.set()
        transport.close()
        server.stop(0)


def test_two_servers_cannot_have_one_port(start: Callable[..., Node], tmp_path: Path) -> None:
    address = start().caller.address
    other = f"{address.rpartition(':')[0]}:PORT"
    second = EmbeddedCluster(config(tmp_path / "other", listen=address))
    for made in (False, True):  # where gRPC itself finds out, its advice is cut off
        with pytest.raises(ConfigurationError, match=f"; choose .* --listen {other}") as refused:
            second.start()
        assert str(refused.value).startswith(f"cannot listen on {address}: ")
        assert "GRPC_VERBOSITY" not in str(refused.value)
        assert (tmp_path / "other").exists() is made
        (tmp_path / "other").mkdir(exist_ok=True)
    # nothing of the failed start stays behind
    with EmbeddedCluster(config(tmp_path / "other")) as third:
        Caller(third.address).create_database()


def test_a_data_dir_is_needed(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="data_dir"):
        EmbeddedCluster(replace(config(tmp_path), data_dir=""))
