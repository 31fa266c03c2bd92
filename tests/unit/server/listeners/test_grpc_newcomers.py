"""What is left of a gRPC listener for those who come while others hold much of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Role
from sluice.wire.grpc.server import GrpcLimits, GrpcServer
from sluice.wire.listeners.tokens import UsersFile
from tests.support.harness.owned_clock import MonotonicClock
from tests.support.network.bystander import Bystander
from tests.support.network.http2_peer import Http2Peer
from tests.support.network.users import ANY_TOKEN, write_users
from tests.support.programs.processes import wait_for

INIT = apis.INIT_WRITER.grpc_method(Role.TABLET)
WORKERS = 2
PATIENCE_S = 10.0
RECONNECT = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.use_local_subchannel_pool", 1)]


@pytest.fixture
def peers() -> Iterator[Callable[..., Http2Peer]]:
    """Opens connections by hand; all are closed at the end."""
    opened: list[Http2Peer] = []

    def connect_to(port: int, source: str) -> Http2Peer:
        opened.append(Http2Peer(port, source=source))
        return opened[-1]

    yield connect_to
    for peer in opened:
        peer.close()


@contextmanager
def running(server: GrpcServer) -> Iterator[int]:
    port = server.start()
    try:
        yield port
    finally:
        server.stop(0, PATIENCE_S)


def answered(_: pb.InitWriterRequest) -> pb.InitWriterResponse:
    return pb.InitWriterResponse(writer_id=7)


def test_two_hosts_without_a_token_keep_no_newcomer_out(
    peers: Callable[..., Http2Peer], tmp_path: Path
) -> None:
    """They hold all connections, after calls that were refused. Those of a user stay."""
    limits = GrpcLimits(max_message_bytes=1 << 20, max_workers=WORKERS, max_connections=40)
    tokens = UsersFile(write_users(tmp_path / "users"))
    handlers = {Role.TABLET: {apis.INIT_WRITER: answered}}
    token = ANY_TOKEN["write"]

    with running(GrpcServer(handlers, "127.0.0.1", 0, limits=limits, tokens=tokens)) as port:

        def connect_and_call() -> None:
            with grpc.insecure_channel(f"127.0.0.1:{port}", RECONNECT) as channel:
                channel.unary_unary(INIT)(
                    b"",
                    timeout=2 * PATIENCE_S,
                    wait_for_ready=True,
                    metadata=(("authorization", f"Bearer {token}"),),
                )

        others = Bystander(connect_and_call)
        with others.beside():
            known = peers(port, "127.0.0.2")
            call = known.begin(INIT, token)
            known.message(call, b"")
            assert known.ended({call}) == {call}
            strangers = [
                peers(port, source) for _ in range(20) for source in ("127.0.0.2", "127.0.0.3")
            ]
            for stranger in filter(Http2Peer.is_open, strangers):
                stranger.begin(INIT, "guessed")
            few = limits.max_connections - limits.max_connections // 8 - 1
            wait_for("the end of others", lambda: sum(map(Http2Peer.is_open, strangers)) <= few, 20)
        others.assert_served(PATIENCE_S)
        known.socket.settimeout(60)
        known.wait_processed()


def test_only_calls_of_known_callers_keep_a_connection(tmp_path: Path) -> None:
    limits = GrpcLimits(max_message_bytes=1 << 20, max_workers=WORKERS)
    tokens = UsersFile(write_users(tmp_path / "users"))
    server = GrpcServer(
        {Role.TABLET: {apis.INIT_WRITER: answered}}, "127.0.0.1", 0, limits=limits, tokens=tokens
    )
    with running(server) as port, grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        used = server._connections._used
        health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        with pytest.raises(grpc.RpcError):
            channel.unary_unary(INIT)(b"", metadata=(("authorization", "Bearer guessed"),))
        assert not used
        names = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(
            iter([reflection_pb2.ServerReflectionRequest(list_services="")]),
            metadata=(("authorization", f"Bearer {ANY_TOKEN['read']}"),),
        )
        assert next(names).list_services_response.service
        assert len(used) == 1


class Held:
    """A listener whose calls are answered one by one. A call carries the name of its caller."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self._release = threading.Semaphore(0)
        limits = GrpcLimits(max_message_bytes=1 << 20, max_workers=WORKERS)
        self.server = GrpcServer(
            {Role.TABLET: {apis.INIT_WRITER: self._hang}}, "127.0.0.1", 0, limits=limits
        )

    def _hang(self, request: pb.InitWriterRequest) -> pb.InitWriterResponse:
        self.began.append(request.table_path[0].table_name)
        assert self._release.acquire(timeout=120)
        return pb.InitWriterResponse(writer_id=7)

    def call(self, peer: Http2Peer, name: str) -> int:
        """Its stream, once it has a worker or waits for one."""
        busy = len(self.began) + self.waiting
        request = pb.InitWriterRequest()
        request.table_path.add(database_name="db", table_name=name)
        stream = peer.begin(INIT)
        peer.message(stream, request.SerializeToString())
        wait_for("the call", lambda: len(self.began) + self.waiting == busy + 1)
        return stream

    @property
    def waiting(self) -> int:
        return len(self.server._api_calls._workers._waiting)

    def answer(self, count: int, until: int) -> None:
        """Ends some calls, and waits until so many have begun in all."""
        for _ in range(count):
            self._release.release()
        wait_for("the next", lambda: len(self.began) == until)

    def end(self) -> None:
        for _ in range(100):
            self._release.release()


@pytest.fixture
def held() -> Held:
    return Held()


@contextmanager
def answering(held: Held) -> Iterator[int]:
    """Its port. All calls are answered at the end, also if a test fails."""
    with running(held.server) as port:
        try:
            yield port
        finally:
            held.end()


def test_hosts_take_turns_for_workers(held: Held, peers: Callable[..., Http2Peer]) -> None:
    with answering(held) as port:
        many, one = peers(port, "127.0.0.2"), peers(port, "127.0.0.3")
        for name in ("many 1", "many 2", "many 3", "many 4"):
            held.call(many, name)
        held.call(one, "one")
        held.answer(1, until=3)
        held.answer(1, until=4)
        assert held.began[2:] == ["many 3", "one"]


def test_who_left_while_waiting_takes_no_worker(
    held: Held, peers: Callable[..., Http2Peer]
) -> None:
    with answering(held) as port:
        gone, here = peers(port, "127.0.0.2"), peers(port, "127.0.0.3")
        for name in ("gone 1", "gone 2"):
            held.call(gone, name)
        for name in ("gone 3", "gone 4"):
            gone.cancel(held.call(gone, name))
        calls = held.server._calls
        wait_for(
            "the end of both", lambda: sum(call.holds == 1 for call in list(calls._all)) == WORKERS
        )
        held.answer(2, until=2)
        wait_for("the end of all", lambda: not len(calls))
        for name in ("here 1", "here 2"):
            held.call(here, name)
        wait_for("both at once", lambda: len(held.began) == 4)
        assert held.began[2:] == ["here 1", "here 2"]


class OnceBroken(MonotonicClock):
    """It raises once, in the thread that looks for late calls."""

    def __init__(self) -> None:
        super().__init__()
        self.raised = False

    def monotonic_s(self) -> float:
        if not self.raised and threading.current_thread().name == "grpc-late-calls":
            self.raised = True
            raise RuntimeError("the time is unknown")
        return super().monotonic_s()


def test_late_calls_end_also_after_an_error(
    peers: Callable[..., Http2Peer], capfd: pytest.CaptureFixture[str]
) -> None:
    clock = OnceBroken()
    limits = GrpcLimits(max_message_bytes=1 << 20, max_workers=WORKERS, receive_s=1)
    handlers = {Role.TABLET: {apis.INIT_WRITER: answered}}
    server = GrpcServer(handlers, "127.0.0.1", 0, limits=limits, clock=clock)
    with running(server) as port:
        wait_for("the error", lambda: clock.raised)
        slow = peers(port, "127.0.0.2")
        half_open = slow.begin(INIT)
        wait_for("the call", lambda: len(server._calls) == 1)
        clock.now_s += 1
        slow.socket.settimeout(PATIENCE_S)
        assert slow.ended({half_open}) == {half_open}
    logged = "".join(capfd.readouterr())
    assert "late calls and connections were not looked for" in logged
    assert "the time is unknown" in logged
