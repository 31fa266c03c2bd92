"""How many connections a native listener has of one peer, and what those without a login may do."""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sluice.client.connection.retry import RetryPolicy, call_with_retries
from sluice.errors import AuthenticateError, FlussError, NetworkError
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Role
from sluice.wire.listeners.refusals import LOGGED_MAX
from sluice.wire.listeners.tokens import UsersFile
from sluice.wire.native.memory import Limits
from sluice.wire.native.sasl import AUTHENTICATE
from sluice.wire.native.server import ACCEPTS_AT_ONCE, LOGIN_S, NativeServer
from sluice.wire.native.transport import NativeTransport
from tests.support.harness.owned_clock import MonotonicClock
from tests.support.network.native_listener import LIMITS, MB, Handlers, Peer
from tests.support.network.users import TOKENS, write_users
from tests.support.programs.processes import wait_for

FEW = replace(LIMITS, max_connections=8)
USER, OTHER = list(TOKENS)[:2]
PATIENCE_S = 10.0
WORKERS = 4
RETRIED_BY_JAVA = 1
"""NETWORK_EXCEPTION. Fluss 0.9.1 has codes up to 63 and takes any other for -1, without a retry."""

HELLO = pb.ApiVersionsRequest(client_software_name="by hand", client_software_version="1")
UNKNOWN = replace(apis.API_VERSIONS, key=9999)

Start = Callable[..., int]


@pytest.fixture
def clock() -> MonotonicClock:
    return MonotonicClock()


@pytest.fixture
def running() -> list[NativeServer]:
    """Every listener that was started."""
    return []


@pytest.fixture
def start(
    handlers: Handlers, clock: MonotonicClock, running: list[NativeServer]
) -> Iterator[Start]:
    """Starts a listener of few connections; returns the tablet's port."""

    def make(tokens: UsersFile | None = None) -> int:
        ports = dict.fromkeys(Role, 0)
        begin = {
            AUTHENTICATE: lambda _: pb.AuthenticateResponse(),
            apis.API_VERSIONS: handlers.versions,
        }
        calls = {role: {**offered, **begin} for role, offered in handlers.all().items()}
        running.append(
            NativeServer(
                calls,
                "127.0.0.1",
                ports,
                max_workers=WORKERS,
                limits=FEW,
                tokens=tokens,
                clock=clock,
            )
        )
        return running[-1].start()[Role.TABLET]

    yield make
    handlers.gate.set()
    for server in running:
        server.stop(2)


@pytest.fixture
def connected() -> Iterator[Callable[..., Peer]]:
    """Connects peers, which are closed at the end."""
    opened: list[Peer] = []

    def make(port: int, source: str = "127.0.0.1") -> Peer:
        opened.append(Peer(port, source=source))
        return opened[-1]

    yield make
    for peer in opened:
        peer.socket.close()


@pytest.fixture
def users(tmp_path: Path) -> UsersFile:
    return UsersFile(write_users(tmp_path / "users"))


def send_login(peer: Peer, user: str = USER) -> int:
    token = f"\0{user}\0{TOKENS[user][1]}".encode()
    return peer.send(AUTHENTICATE, pb.AuthenticateRequest(protocol="PLAIN", token=token))


def log_in(peer: Peer, user: str = USER) -> None:
    send_login(peer, user)
    _, answer = peer.receive()
    assert isinstance(answer, bytes), answer


def closed_count(peers: Sequence[Peer]) -> int:
    """How many of them the server has closed; it sends them nothing."""
    poll = select.poll()
    for peer in peers:
        poll.register(peer.socket, select.POLLIN)
    return len(poll.poll(0))


def longest_s(port: int, connected: Callable[..., Peer], *, login: bool) -> float:
    """The longest time in which a client of another host connects and is served."""
    longest = 0.0
    for _ in range(3):
        began = time.monotonic()
        peer = connected(port, "127.0.0.99")
        if login:
            log_in(peer)
        assert peer.exists("yes") is True
        peer.socket.close()
        longest = max(longest, time.monotonic() - began)
    return longest


def test_one_peer_does_not_take_all_connections(
    start: Start, connected: Callable[..., Peer]
) -> None:
    port = start()
    assert longest_s(port, connected, login=False) < PATIENCE_S
    greedy = [connected(port) for _ in range(20)]
    kept = [peer for peer in greedy[:4] if peer.exists("yes") is True]
    assert len(kept) == 4
    for peer in greedy[4:]:
        _, error = peer.receive()
        assert "127.0.0.1 has 4 connections at once, the limit of one peer" in str(error)
        assert error.code == RETRIED_BY_JAVA
        assert peer.closed()
    assert longest_s(port, connected, login=False) < PATIENCE_S
    for peer in greedy:
        peer.socket.close()
    assert longest_s(port, connected, login=False) < PATIENCE_S


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_client_that_is_refused_tries_again(
    start: Start, connected: Callable[..., Peer], *, idempotent: bool
) -> None:
    port = start()
    greedy = [connected(port) for _ in range(4)]
    assert all(peer.exists("yes") is True for peer in greedy)
    transport = NativeTransport("fluss://test", "127.0.0.1", port, MB)
    refused: list[FlussError] = []

    def wait(seconds: float) -> None:
        if greedy:
            greedy.pop().socket.close()
        time.sleep(seconds)

    answer = call_with_retries(
        lambda: transport.call(
            Role.TABLET, apis.DATABASE_EXISTS, pb.DatabaseExistsRequest(database_name="yes"), 10_000
        ),
        RetryPolicy(timeout_ms=10_000),
        idempotent=idempotent,
        sleep=wait,
        on_retry=lambda error, _: refused.append(error),
    )
    transport.close()
    assert answer == pb.DatabaseExistsResponse(exists=True)
    assert {type(error) for error in refused} == {NetworkError}


def test_connections_without_a_login_keep_nobody_out(
    start: Start, connected: Callable[..., Peer], users: UsersFile
) -> None:
    """From many hosts, and from the user's own: those that have not logged in make room."""
    port = start(users)
    user = connected(port)
    log_in(user)
    flood = [connected(port, f"127.0.0.{host}") for host in range(1, 11) for _ in range(20)]
    closed = -1
    while closed != (closed := closed_count(flood)):  # each one that begins ends the oldest
        time.sleep(1)
    assert longest_s(port, connected, login=True) < PATIENCE_S
    assert user.exists("yes") is True


def test_a_flood_of_connections_logs_a_few_lines(
    start: Start, connected: Callable[..., Peer], capfd: pytest.CaptureFixture[str]
) -> None:
    port = start()
    for peer in [connected(port) for _ in range(60)][4:]:
        assert peer.receive()
    logged = capfd.readouterr()
    assert (logged.out + logged.err).count("connection refused") == LOGGED_MAX


def test_a_request_without_a_login_waits_for_no_worker_and_is_the_last(
    start: Start, connected: Callable[..., Peer], users: UsersFile, handlers: Handlers
) -> None:
    port = start(users)
    user = connected(port)
    log_in(user)
    for _ in range(WORKERS):
        user.fetch(wait=True)
    wait_for("all workers", lambda: handlers.running == WORKERS)
    for send in (lambda peer: peer.fetch_together(64), lambda peer: peer.send(UNKNOWN, HELLO)):
        stranger = connected(port)
        stranger.socket.settimeout(PATIENCE_S)
        send(stranger)
        request_id, error = stranger.receive()
        assert (request_id, type(error)) == (1, AuthenticateError)
        assert "log in first by SASL PLAIN" in str(error)
        assert stranger.closed()
    handlers.gate.set()
    assert [type(user.receive()[1]) for _ in range(WORKERS)] == [bytes] * WORKERS
    assert handlers.made == WORKERS


def test_little_is_read_behind_a_request_that_was_refused(
    start: Start, connected: Callable[..., Peer], users: UsersFile
) -> None:
    stranger = connected(start(users))
    stranger.fetch(wait=False)
    assert isinstance(stranger.receive()[1], AuthenticateError)
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        stranger.socket.sendall(bytes(32 * MB))


class Noting(NativeServer):
    """Notes the hosts of clients in the order in which it starts to serve them."""

    def __init__(self, handlers: Handlers, limits: Limits = LIMITS) -> None:
        self.order: list[str] = []
        self.most_waiting = 0
        ports = dict.fromkeys(Role, 0)
        super().__init__(handlers.all(), "127.0.0.1", ports, max_workers=WORKERS, limits=limits)

    def _take(self, arrived: Any) -> None:
        self.order.append(arrived.host)
        self.most_waiting = max(self.most_waiting, len(self._arrived) + 1)
        super()._take(arrived)

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Lets all clients that connect meanwhile wait to be accepted."""
        begun, go_on = threading.Event(), threading.Event()

        def wait() -> None:
            begun.set()
            assert go_on.wait(60)

        self._loop.call_soon_threadsafe(wait)
        assert begun.wait(60)
        try:
            yield
        finally:
            go_on.set()


def test_a_host_that_opens_many_connections_delays_no_other_host(
    handlers: Handlers, connected: Callable[..., Peer]
) -> None:
    """All of them wait to be accepted, and another host's comes last."""
    server = Noting(handlers)
    port = server.start()[Role.TABLET]
    try:
        with server.busy():
            many = [connected(port, "127.0.0.2") for _ in range(400)]
            for peer in [connected(port, "127.0.0.3") for _ in range(100)]:
                peer.socket.close()
            other = connected(port, "127.0.0.9")
        assert other.exists("yes") is True
        assert all(peer.exists("yes") is True for peer in many)
    finally:
        server.stop(2)
    assert server.order.index("127.0.0.9") < 200
    assert server.order.count("127.0.0.2") == 400
    assert len(server.order) == 401, "those that have left are not started"


def test_few_clients_wait_for_their_start(
    handlers: Handlers, connected: Callable[..., Peer]
) -> None:
    """The oldest of the host that has the most are closed, not one of another host."""
    server = Noting(handlers, FEW)
    port = server.start()[Role.TABLET]
    try:
        with server.busy():
            other = connected(port, "127.0.0.9")
            many = [connected(port, "127.0.0.2") for _ in range(400)]
        assert other.exists("yes") is True
        assert many[30].closed(), "behind those that were started at once"
        wait_for("all others", lambda: not server._arrived and not server._starting)
        newest = connected(port, "127.0.0.8")
        assert newest.exists("yes") is True, "and all before it were accepted"
    finally:
        server.stop(2)
    assert server.most_waiting == ACCEPTS_AT_ONCE
    assert ACCEPTS_AT_ONCE < server.order.count("127.0.0.2") < 400
    assert server.order.count("127.0.0.9") == 1


class Holding(NativeServer):
    """Accepts clients, whose turns never come."""

    def _start_some(self) -> None:
        pass


def test_clients_that_wait_for_their_start_are_closed_at_a_stop(
    handlers: Handlers, connected: Callable[..., Peer]
) -> None:
    ports = dict.fromkeys(Role, 0)
    server = Holding(handlers.all(), "127.0.0.1", ports, max_workers=WORKERS, limits=LIMITS)
    port = server.start()[Role.TABLET]
    peers = [connected(port, f"127.0.0.{host}") for host in (2, 2, 3)]
    wait_for("all", lambda: len(server._arrived) == len(peers))
    server.stop(2)
    for peer in peers:
        peer.socket.settimeout(PATIENCE_S)
        assert peer.closed()


def test_users_do_not_wait_for_the_requests_of_strangers(
    start: Start, connected: Callable[..., Peer], users: UsersFile, handlers: Handlers
) -> None:
    """The first calls of strangers take long here, each more than one, from several hosts."""
    port = start(users)
    user = connected(port)
    log_in(user)
    handlers.versions_wait = True
    for host in range(2, 2 + WORKERS):
        stranger = connected(port, f"127.0.0.{host}")
        for _ in range(8):
            stranger.send(apis.API_VERSIONS, HELLO)
    wait_for("a stranger", lambda: handlers.running > 0)
    user.socket.settimeout(PATIENCE_S)
    for _ in range(3):
        assert user.exists("yes") is True
    assert handlers.most == 1


@pytest.mark.parametrize(
    ("host", "user"), [("127.0.0.2", OTHER), ("127.0.0.1", OTHER), ("127.0.0.2", USER)]
)
def test_users_and_hosts_take_turns_for_workers(
    start: Start,
    running: list[NativeServer],
    connected: Callable[..., Peer],
    users: UsersFile,
    handlers: Handlers,
    host: str,
    user: str,
) -> None:
    """A user has all workers and 40 requests waiting from one host.

    The only request of another comes second, and that of the same user from another host.
    """
    port = start(users)
    greedy, other = connected(port), connected(port, host)
    log_in(greedy)
    log_in(other, user)
    for _ in range(WORKERS):
        greedy.fetch(wait=True)
    wait_for("all workers", lambda: handlers.running == WORKERS)
    greedy.fetch_together(40, wait=True)
    waiting = running[0]._shared._workers
    wait_for("the requests", lambda: len(waiting) == 40)
    other.send(apis.DATABASE_EXISTS, pb.DatabaseExistsRequest(database_name="yes"))
    wait_for("the other's", lambda: len(waiting) == 41)
    first, handlers.gate = handlers.gate, threading.Event()
    first.set()  # the 40 wait for the second: no worker overtakes the one that has the other's
    assert isinstance(other.receive()[1], bytes)
    assert handlers.made_before[0] <= 2 * WORKERS, "behind one for each worker"
    handlers.gate.set()


def test_requests_that_are_sent_behind_a_login_are_served(
    start: Start, connected: Callable[..., Peer], users: UsersFile
) -> None:
    peer = connected(start(users))
    request = pb.DatabaseExistsRequest(database_name="yes")
    sent = [
        peer.send(apis.API_VERSIONS, HELLO),
        send_login(peer),
        *(peer.send(apis.DATABASE_EXISTS, request) for _ in range(3)),
    ]
    answers = [peer.receive() for _ in sent]
    assert [number for number, _ in answers] == sent
    assert all(isinstance(answer, bytes) for _, answer in answers)


def test_a_client_that_does_not_log_in_is_left_whatever_it_sends(
    start: Start, connected: Callable[..., Peer], users: UsersFile, clock: MonotonicClock
) -> None:
    """Silent, asking for versions all the time, or with requests that it leaves unfinished."""
    port = start(users)
    user = connected(port)
    silent, begun, asking = (connected(port, "127.0.0.2") for _ in range(3))
    for byte in b"\0\0\0\xff" + bytes(6):
        asking.send(apis.API_VERSIONS, HELLO)
        assert isinstance(asking.receive()[1], bytes)
        begun.socket.sendall(bytes([byte]))
        clock.now_s += LOGIN_S / 10
        if byte:
            log_in(user)
    for stranger in (silent, asking, begun):
        stranger.socket.settimeout(PATIENCE_S)
        assert stranger.closed()
    assert user.exists("yes") is True
