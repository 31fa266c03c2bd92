"""What strangers do to the health service of a gRPC listener, and what other clients see of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Role
from sluice.wire.grpc import health as grpc_health
from sluice.wire.grpc.health import ANSWERS_PER_PEER, MESSAGES_MAX, WATCHES_MAX, WATCHES_PER_PEER
from sluice.wire.grpc.server import GrpcLimits, GrpcServer
from tests.support.network.bystander import Bystander
from tests.support.network.http2_peer import NO_WINDOW, Http2Peer, message_head
from tests.support.programs.processes import wait_for

CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
INIT = apis.INIT_WRITER.grpc_method(Role.TABLET)
MAX_MESSAGE_BYTES = 4 << 20
ASKED = health_pb2.HealthCheckRequest()


@pytest.fixture
def port(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A listener whose health calls are never late: only room that was made counts."""
    monkeypatch.setattr(grpc_health, "MESSAGE_S", getattr(request, "param", 600.0))
    handlers = {Role.TABLET: {apis.INIT_WRITER: lambda _: pb.InitWriterResponse(writer_id=7)}}
    limits = GrpcLimits(max_message_bytes=MAX_MESSAGE_BYTES, max_workers=2)
    server = GrpcServer(handlers, "127.0.0.1", 0, limits=limits)
    yield server.start()
    server.stop(0)


@pytest.fixture
def peers(port: int) -> Iterator[Callable[..., Http2Peer]]:
    """Opens connections by hand; all are closed at the end."""
    opened: list[Http2Peer] = []

    def connect_from(source: str, settings: bytes = b"") -> Http2Peer:
        opened.append(Http2Peer(port, source=source, settings=settings))
        return opened[-1]

    yield connect_from
    for peer in opened:
        peer.close()


@pytest.fixture
def calls_once(port: int) -> Iterator[Callable[[], None]]:
    """A client of the strangers' first host: a health check, a first status, a call."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        health, call = health_pb2_grpc.HealthStub(channel), channel.unary_unary(INIT)

        def act() -> None:
            serving = health_pb2.HealthCheckResponse.SERVING
            assert health.Check(ASKED, timeout=10).status == serving
            watch = health.Watch(ASKED, timeout=10)
            assert next(watch).status == serving
            watch.cancel()
            call(b"", timeout=10)

        yield act


@pytest.fixture
def others(calls_once: Callable[[], None]) -> Bystander:
    """Each of its calls is answered at the first try."""
    return Bystander(calls_once)


@pytest.fixture
def probe(calls_once: Callable[[], None]) -> Bystander:
    """Asks again, once, beside strangers who begin more calls at once than their host has places.

    Until a thread has read its message, its own check is among those that may make room.
    """

    def act() -> None:
        try:
            calls_once()
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.CANCELLED:
                raise
            calls_once()

    return Bystander(act)


def hosts(count: int) -> list[str]:
    return [f"127.0.0.{number}" for number in range(1, count + 1)]


def ended_in_all(calls: dict[Http2Peer, set[int]], count: int) -> int:
    """Waits until so many of these calls have ended; how many have."""
    for peer in calls:
        peer.socket.settimeout(0.05)
    ended: set[tuple[Http2Peer, int]] = set()

    def enough() -> bool:
        for peer, streams in calls.items():
            with suppress(TimeoutError):
                peer.frames()
            ended.update((peer, stream) for stream in peer.ended_calls & streams)
        return len(ended) >= count

    wait_for(f"the end of {count} calls", enough, 20)
    return len(ended)


@pytest.mark.parametrize("method", [CHECK, WATCH, INIT])
def test_a_compressed_message_is_refused(port: int, others: Bystander, method: str) -> None:
    """One of 4 kB would be 4 MiB in memory."""
    options = [("grpc.max_send_message_length", -1)]
    target = f"127.0.0.1:{port}"
    with (
        others.beside(),
        grpc.insecure_channel(target, options, grpc.Compression.Gzip) as channel,
        pytest.raises(grpc.RpcError) as refused,
    ):
        list(channel.unary_stream(method)(bytes(MAX_MESSAGE_BYTES), timeout=20))
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "gzip" in refused.value.details()
    others.assert_served()


def test_few_large_messages_of_health_calls_are_in_memory(
    peers: Callable[..., Http2Peer], probe: Bystander
) -> None:
    """From 12 hosts; only those calls go on whose message has a place."""
    with probe.beside():
        calls: dict[Http2Peer, set[int]] = {}
        for host in hosts(12):
            attacker = peers(host)
            calls[attacker] = {attacker.begin(method) for method in (CHECK, WATCH) * 4}
            for stream in calls[attacker]:
                attacker.send(stream, message_head(MAX_MESSAGE_BYTES) + bytes(1000))
        begun = sum(map(len, calls.values()))
        ended = ended_in_all(calls, begun - MESSAGES_MAX)
    assert begun - ended <= MESSAGES_MAX
    probe.assert_served()


def test_a_large_message_of_a_health_call_is_refused(port: int, others: Bystander) -> None:
    with others.beside(), grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        health = health_pb2_grpc.HealthStub(channel)
        with pytest.raises(grpc.RpcError) as refused:
            health.Check(health_pb2.HealthCheckRequest(service="x" * 2000), timeout=20)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    others.assert_served()


def test_checks_whose_answers_nobody_reads_keep_nobody_out(
    peers: Callable[..., Http2Peer], probe: Bystander
) -> None:
    """Complete calls with a window of 0. They kept their places until they were late."""
    with probe.beside():
        calls: dict[Http2Peer, set[int]] = {}
        for host in hosts(5):
            attacker = peers(host, NO_WINDOW)
            calls[attacker] = set()
            for _ in range(2 * ANSWERS_PER_PEER):
                calls[attacker].add(stream := attacker.begin(CHECK))
                attacker.message(stream, b"")
        for peer in calls:
            peer.wait_processed()
        ended_in_all(calls, 5 * ANSWERS_PER_PEER)  # the server holds few of them
    probe.assert_served()


@pytest.mark.parametrize("port", [0.3], indirect=True)
def test_a_check_ends_whose_answer_nobody_reads(peers: Callable[..., Http2Peer]) -> None:
    peer = peers("127.0.0.1", NO_WINDOW)
    stream = peer.begin(CHECK)
    peer.message(stream, b"")
    assert ended_in_all({peer: {stream}}, 1) == 1


@pytest.mark.parametrize("settings", [b"", NO_WINDOW], ids=["waiting", "unread"])
def test_watches_keep_nobody_out(
    peers: Callable[..., Http2Peer], others: Bystander, settings: bytes
) -> None:
    with others.beside():
        calls: dict[Http2Peer, set[int]] = {}
        for host in hosts(WATCHES_MAX // WATCHES_PER_PEER + 1):
            attacker = peers(host, settings)
            calls[attacker] = set()
            for _ in range(WATCHES_PER_PEER):
                calls[attacker].add(stream := attacker.begin(WATCH))
                attacker.message(stream, b"")
            attacker.wait_processed()
        ended_in_all(calls, WATCHES_PER_PEER)
    others.assert_served()
