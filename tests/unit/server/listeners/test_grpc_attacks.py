"""What strangers and greedy users do to the gRPC listener, and what other clients see of it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from sluice.client import connect
from sluice.config import ClientConfig
from sluice.server.cluster import EmbeddedCluster
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Role
from sluice.wire.error_codes import ERROR_KEY
from sluice.wire.grpc import calls as grpc_calls
from sluice.wire.grpc.health import WATCHES_PER_PEER
from sluice.wire.grpc.server import CALLS_PER_WORKER, KEPT_S, GrpcLimits, GrpcServer
from sluice.wire.listeners.handlers import caller
from sluice.wire.listeners.refusals import LOGGED_MAX
from sluice.wire.listeners.tokens import UsersFile
from tests.support.harness.owned_clock import MonotonicClock
from tests.support.network.bystander import Bystander
from tests.support.network.http2_peer import Http2Peer, message_head
from tests.support.network.users import ANY_TOKEN, TOKENS, write_users
from tests.support.programs.processes import wait_for
from tests.unit.server.support import config

CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
LIST = apis.LIST_DATABASES.grpc_method(Role.COORDINATOR)
WORKERS = 8
PATIENCE_S = 10.0
"""Longest time for a call of another client, on a busy machine."""


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    users = write_users(tmp_path / "users")
    with EmbeddedCluster(
        config(tmp_path / "data", users_file=str(users), max_workers=WORKERS)
    ) as cluster:
        yield cluster


@pytest.fixture
def peers() -> Iterator[Callable[..., Http2Peer]]:
    """Opens connections by hand; all are closed at the end."""
    opened: list[Http2Peer] = []

    def connect_to(port: int, source: str = "127.0.0.1") -> Http2Peer:
        opened.append(Http2Peer(port, source=source))
        return opened[-1]

    yield connect_to
    for peer in opened:
        peer.close()


def port_of(cluster: EmbeddedCluster) -> int:
    return int(cluster.address.rpartition(":")[2])


class Others:
    """Another client of the server: a user's calls and health checks, one after the other."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        timeout_ms = round(PATIENCE_S * 1_000)
        self._client = connect(
            ClientConfig(
                cluster.address,
                token=ANY_TOKEN["read"],
                request_timeout_ms=timeout_ms,
                retry_timeout_ms=timeout_ms,
            )
        )
        self._channel = grpc.insecure_channel(cluster.address.removeprefix("grpc://"))
        self._health = health_pb2_grpc.HealthStub(self._channel)

    def see(self, when: str, rounds: int = 5) -> float:
        """Calls a few times; the longest time. Fails if a call takes longer than its time."""
        longest = 0.0
        for _ in range(rounds):
            began = time.monotonic()
            self._client.admin.list_databases()
            answer = self._health.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING, when
            longest = max(longest, time.monotonic() - began)
        assert longest < PATIENCE_S, f"{when}: {longest:.1f} s"
        return longest

    def close(self) -> None:
        self._client.close()
        self._channel.close()


@contextmanager
def watched(cluster: EmbeddedCluster) -> Iterator[Others]:
    """Another client, which is well before and after what the block does."""
    others = Others(cluster)
    try:
        others.see("before")
        yield others
        others.see("after")
    finally:
        others.close()


def test_half_open_checks_keep_nobody_out(
    guarded: EmbeddedCluster, peers: Callable[..., Http2Peer]
) -> None:
    """Issue 20: 32 of them held all threads. They come from the other client's own address."""
    with watched(guarded) as others:
        attackers = [peers(port_of(guarded)) for _ in range(4)]
        for attacker in attackers:
            for _ in range(100):
                attacker.begin(CHECK)
            attacker.wait_processed()
        others.see("during")
        for attacker in attackers:
            assert attacker.ended(set(range(1, 201, 2)))  # the oldest made room


def test_half_open_calls_without_a_token_end_unread(
    guarded: EmbeddedCluster, peers: Callable[..., Http2Peer]
) -> None:
    with watched(guarded) as others:
        attacker = peers(port_of(guarded))
        streams = {attacker.begin(LIST) for _ in range(100)}
        others.see("during")
        while streams:
            ended = attacker.ended(streams)
            assert ended, "the server closed the connection"
            streams -= ended


def test_half_open_calls_of_a_user_keep_nobody_out(
    guarded: EmbeddedCluster, peers: Callable[..., Http2Peer]
) -> None:
    """More than all calls that the server accepts, from two hosts, one of them everybody's.

    Calls of the same user and host as the half-open ones would wait for 15 s.
    """
    with watched(guarded) as others:
        for source in ("127.0.0.1", "127.0.0.2"):
            for _ in range(2):
                attacker = peers(port_of(guarded), source)
                for _ in range(CALLS_PER_WORKER * WORKERS):
                    attacker.begin(LIST, ANY_TOKEN["write"])
                attacker.wait_processed()
        others.see("during")


def test_large_messages_that_never_end_keep_nobody_out(
    guarded: EmbeddedCluster, peers: Callable[..., Http2Peer]
) -> None:
    method = apis.PRODUCE_LOG.grpc_method(Role.TABLET)
    with watched(guarded) as others:
        attacker = peers(port_of(guarded))
        for _ in range(CALLS_PER_WORKER * WORKERS):
            stream = attacker.begin(method, ANY_TOKEN["write"])
            attacker.send(stream, message_head(32 << 20) + bytes(100))
        attacker.wait_processed()
        others.see("during")


def test_cancelled_watches_stop_nothing(
    guarded: EmbeddedCluster, peers: Callable[..., Http2Peer]
) -> None:
    """Issue 20: 130 of them could deadlock the server for good."""
    request = health_pb2.HealthCheckRequest().SerializeToString()
    with watched(guarded) as others:
        for _ in range(4):
            attacker = peers(port_of(guarded))
            for number in range(150):
                stream = attacker.begin(WATCH)
                if number % 3:
                    attacker.message(stream, request)
                attacker.cancel(stream)
            attacker.wait_processed()
        others.see("during")


def test_a_peer_has_few_watches_and_each_ends_with_the_server(tmp_path: Path) -> None:
    cluster = EmbeddedCluster(config(tmp_path / "data"))
    address = cluster.start().removeprefix("grpc://")
    with grpc.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest(service="fluss.TabletService")
        status = health_pb2.HealthCheckResponse
        watches = []
        for _ in range(WATCHES_PER_PEER):  # one after the other, so that their order is known
            watches.append(stub.Watch(request, timeout=60))
            assert next(watches[-1]).status == status.SERVING
        unknown = stub.Watch(health_pb2.HealthCheckRequest(service="no"))
        assert next(unknown).status == status.SERVICE_UNKNOWN
        with pytest.raises(grpc.RpcError) as ended:
            next(watches.pop(0))  # the oldest made room
        assert ended.value.code() is grpc.StatusCode.CANCELLED
        stopping = threading.Thread(target=cluster.stop, args=(60,))
        stopping.start()
        for watch in watches:
            assert [answer.status for answer in watch] == [status.NOT_SERVING]
        stopping.join(60)
        assert not stopping.is_alive()


def test_a_flood_of_refused_calls_logs_a_few_lines(
    guarded: EmbeddedCluster,
    peers: Callable[..., Http2Peer],
    capfd: pytest.CaptureFixture[str],
) -> None:
    for _ in range(3):
        attacker = peers(port_of(guarded))
        streams = {attacker.begin(LIST, "guessed" * 500) for _ in range(100)}
        while streams:
            streams -= attacker.ended(streams)
        attacker.close()
    guarded.stop()
    logged = capfd.readouterr()
    lines = [line for line in (logged.out + logged.err).splitlines() if "call refused" in line]
    assert len(lines) == LOGGED_MAX + 1
    assert f"left_out={300 - LOGGED_MAX}" in lines[-1]
    assert all("127.0.0.1" in line and "ListDatabases" in line for line in lines[:-1])


@pytest.fixture
def listener() -> Iterator[tuple[GrpcServer, int, threading.Event]]:
    """A listener with one call, which answers once the event is set, and with short limits."""
    release = threading.Event()

    def hang(_: pb.InitWriterRequest) -> pb.InitWriterResponse:
        assert release.wait(120)
        return pb.InitWriterResponse(writer_id=7)

    limits = GrpcLimits(
        max_message_bytes=1 << 20, max_workers=2, max_connections=4, receive_s=0.3, handshake_s=1
    )
    server = GrpcServer({Role.TABLET: {apis.INIT_WRITER: hang}}, "127.0.0.1", 0, limits=limits)
    port = server.start()
    yield server, port, release
    release.set()
    server.stop(0)


INIT = apis.INIT_WRITER.grpc_method(Role.TABLET)


def test_a_message_that_does_not_arrive_in_time_ends_its_call(
    listener: tuple[GrpcServer, int, threading.Event], peers: Callable[..., Http2Peer]
) -> None:
    _, port, release = listener
    slow = peers(port)
    served, half_open = slow.begin(INIT), slow.begin(INIT)
    slow.message(served, b"")
    assert slow.ended({served, half_open}) == {half_open}
    release.set()
    assert slow.ended({served}) == {served}


def admitted(server: GrpcServer, peer: str) -> int:
    return sum(one.peer == peer for one in list(server._calls._all))


def test_running_uploads_are_not_cut_off_by_newcomers(peers: Callable[..., Http2Peer]) -> None:
    """A busy host on a slow link: its calls over the limit are refused, its uploads go on."""
    clock = MonotonicClock()
    handlers = {Role.TABLET: {apis.INIT_WRITER: lambda _: pb.InitWriterResponse(writer_id=7)}}
    limits = GrpcLimits(max_message_bytes=1 << 20, max_workers=2)
    server = GrpcServer(handlers, "127.0.0.1", 0, limits=limits, clock=clock)
    port = server.start()
    body = b"\x9a\x06\x64" + bytes(100)  # a field that the server does not know
    message = message_head(len(body)) + body
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            others = Bystander(lambda: channel.unary_unary(INIT)(b"", timeout=PATIENCE_S))
            with others.beside():
                busy = peers(port, "127.0.0.2")
                uploads = {busy.begin(INIT) for _ in range(CALLS_PER_WORKER * 2 // 2)}
                for upload in uploads:
                    busy.send(upload, message[:20])
                busy.wait_processed()
                wait_for("the uploads", lambda: admitted(server, "127.0.0.2") == len(uploads))
                clock.now_s += KEPT_S - 0.1
                newcomers = {busy.begin(INIT) for _ in range(20)}
                while not newcomers <= busy.ended_calls:
                    assert busy.ended(newcomers - busy.ended_calls)
                assert not uploads & busy.ended_calls
                for upload in uploads:
                    busy.send(upload, message[20:], last=True)
                while not uploads <= busy.ended_calls:
                    assert busy.ended(uploads - busy.ended_calls)
                assert busy.answered == uploads
        others.assert_served()
    finally:
        server.stop(0)


def test_a_call_without_a_message_is_refused(
    listener: tuple[GrpcServer, int, threading.Event], peers: Callable[..., Http2Peer]
) -> None:
    _, port, _ = listener
    peer = peers(port)
    stream = peer.begin(INIT)
    peer.send(stream, b"", last=True)
    assert peer.ended({stream}) == {stream}


def test_half_open_calls_take_no_worker(
    listener: tuple[GrpcServer, int, threading.Event], peers: Callable[..., Http2Peer]
) -> None:
    """More of them than workers; a call that is complete is served behind them."""
    _, port, release = listener
    release.set()
    attacker = peers(port)
    for _ in range(3):
        attacker.begin(INIT)
    served = attacker.begin(INIT)
    attacker.message(served, b"")
    assert attacker.ended({served}) == {served}


def test_who_waits_for_a_worker_keeps_the_place_and_further_calls_are_refused(
    listener: tuple[GrpcServer, int, threading.Event],
) -> None:
    server, port, release = listener
    per_peer = CALLS_PER_WORKER * 2 // 2
    with (
        grpc.insecure_channel(f"127.0.0.1:{port}") as channel,
        ThreadPoolExecutor(per_peer) as pool,
    ):
        method = channel.unary_unary(INIT)
        waiting = [pool.submit(method, b"", timeout=60) for _ in range(per_peer)]
        wait_for("all calls", lambda: len(server._calls) == per_peer)
        with pytest.raises(grpc.RpcError) as refused:
            method(b"", timeout=60)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        error = pb.ErrorResponse.FromString(dict(refused.value.trailing_metadata())[ERROR_KEY])
        assert error.error_code == 72
        assert "127.0.0.1 has 4 calls at once" in error.error_message
        release.set()
        assert [
            pb.InitWriterResponse.FromString(call.result(60)).writer_id for call in waiting
        ] == [7] * per_peer


def test_users_of_one_host_take_turns_for_workers(tmp_path: Path) -> None:
    release = threading.Semaphore(0)
    order: list[str] = []

    def hang(_: pb.InitWriterRequest) -> pb.InitWriterResponse:
        order.append(caller().name)
        assert release.acquire(timeout=120)
        return pb.InitWriterResponse(writer_id=7)

    workers = 4
    server = GrpcServer(
        {Role.TABLET: {apis.INIT_WRITER: hang}},
        "127.0.0.1",
        0,
        limits=GrpcLimits(max_message_bytes=1 << 20, max_workers=workers),
        tokens=UsersFile(write_users(tmp_path / "users")),
    )
    with (
        grpc.insecure_channel(f"127.0.0.1:{server.start()}") as channel,
        ThreadPoolExecutor(20) as pool,
    ):
        method = channel.unary_unary(INIT)

        def call(user: str) -> None:
            token = TOKENS[user][1]
            method(b"", timeout=60, metadata=(("authorization", f"Bearer {token}"),))

        calls = []
        for number, user in enumerate(["wim"] * (workers + 3) + ["ada"], 1):
            calls.append(pool.submit(call, user))
            wait_for("it", lambda number=number: len(server._calls) == number)
            if number <= workers:
                wait_for("its worker", lambda number=number: len(order) == number)
        waiting = server._api_calls._workers._waiting
        wait_for("all others", lambda: len(waiting) == 4)
        for number in range(1, 4):
            release.release()
            wait_for("the next", lambda number=number: len(order) == workers + number)
        assert order[workers:] == ["wim", "ada", "wim"]
        for _ in calls:
            release.release()
        for one in calls:
            one.result(60)
    server.stop(0)


def test_a_stop_does_not_wait_for_ever_for_a_handler(
    listener: tuple[GrpcServer, int, threading.Event], peers: Callable[..., Http2Peer]
) -> None:
    server, port, release = listener
    peer = peers(port)
    stream = peer.begin(INIT)
    peer.message(stream, b"")
    wait_for("the call", lambda: len(server._calls) == 1)
    began = time.monotonic()
    assert not server.stop(0.1, handlers_s=0.1)
    assert time.monotonic() - began < PATIENCE_S
    release.set()
    assert server._calls.wait_empty(60)


def test_further_connections_and_silent_ones_are_closed(
    listener: tuple[GrpcServer, int, threading.Event], peers: Callable[..., Http2Peer]
) -> None:
    """The library counts connections in all, not those of one peer."""
    _, port, _ = listener
    with socket.create_connection(("127.0.0.1", port), 60) as silent:
        for _ in range(3):
            assert peers(port).frames()
        assert not peers(port).frames()
        while silent.recv(100):
            pass  # until the time for handshakes is over
    wait_for("its place", lambda: bool(peers(port).frames()))


def test_connections_of_one_host_keep_no_other_host_out(peers: Callable[..., Http2Peer]) -> None:
    """All that the server accepts, without a call. The host's connection with a call stays."""
    handlers = {Role.TABLET: {apis.INIT_WRITER: lambda _: pb.InitWriterResponse(writer_id=7)}}
    limits = GrpcLimits(max_message_bytes=1 << 20, max_workers=2, max_connections=40)
    server = GrpcServer(handlers, "127.0.0.1", 0, limits=limits)
    port = server.start()
    options = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.use_local_subchannel_pool", 1)]

    def connect_and_call() -> None:
        with grpc.insecure_channel(f"127.0.0.1:{port}", options) as channel:
            channel.unary_unary(INIT)(b"", timeout=PATIENCE_S, wait_for_ready=True)

    try:
        others = Bystander(connect_and_call)
        with others.beside():
            known = peers(port, "127.0.0.2")
            call = known.begin(INIT)
            known.message(call, b"")
            assert known.ended({call}) == {call}
            idle = [peers(port, "127.0.0.2") for _ in range(60)]
            few = limits.max_connections // 2 - 1
            wait_for("the end of others", lambda: sum(map(Http2Peer.is_open, idle)) <= few, 20)
        others.assert_served()
        known.wait_processed()
    finally:
        server.stop(0)


def test_a_connection_with_a_running_upload_is_ended_last(peers: Callable[..., Http2Peer]) -> None:
    """It began before the calls of all others of its host, which have ended."""
    handlers = {Role.TABLET: {apis.INIT_WRITER: lambda _: pb.InitWriterResponse(writer_id=7)}}
    limits = GrpcLimits(max_message_bytes=1 << 20, max_workers=2, max_connections=40)
    server = GrpcServer(handlers, "127.0.0.1", 0, limits=limits)
    port = server.start()
    body = b"\x9a\x06\x64" + bytes(100)  # a field that the server does not know
    message = message_head(len(body)) + body
    try:
        slow = peers(port)
        upload = slow.begin(INIT)
        slow.send(upload, message[:20])
        wait_for("the upload", lambda: admitted(server, "127.0.0.1") == 1)
        others = []
        for _ in range(limits.max_connections // 2 + 10):
            others.append(peers(port))
            call = others[-1].begin(INIT)
            others[-1].message(call, b"")
            others[-1].ended({call})
        few = limits.max_connections // 2 - 1
        wait_for("the end of others", lambda: sum(map(Http2Peer.is_open, others)) <= few, 20)
        slow.send(upload, message[20:], last=True)
        assert slow.ended({upload}) == {upload}
        assert slow.answered == {upload}
    finally:
        server.stop(0)


def test_an_answer_that_nobody_reads_ends_its_call(
    peers: Callable[..., Http2Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_calls, "SEND_S", 0.3)
    handlers = {Role.TABLET: {apis.FETCH_LOG: lambda _: bytes(1 << 20)}}
    limits = GrpcLimits(max_message_bytes=1 << 20, max_workers=1)
    server = GrpcServer(handlers, "127.0.0.1", 0, limits=limits)
    try:
        reader = peers(server.start())
        for _ in range(CALLS_PER_WORKER // 2):
            stream = reader.begin(apis.FETCH_LOG.grpc_method(Role.TABLET))
            fetch = pb.FetchLogRequest(follower_server_id=-1, max_bytes=1)
            reader.message(stream, fetch.SerializeToString())  # and gives no more flow control
        wait_for("the calls", lambda: len(server._calls) == CALLS_PER_WORKER // 2)
        assert server._calls.wait_empty(60)
    finally:
        server.stop(0)
