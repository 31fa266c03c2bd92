"""How many connections a native listener has of one peer, and who makes room."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Role
from sluice.wire.native_server import NativeServer
from sluice.wire.refusals import LOGGED_MAX
from sluice.wire.sasl import AUTHENTICATE
from sluice.wire.tokens import UsersFile
from tests.support.native_listener import LIMITS, Handlers, Peer
from tests.support.users import TOKENS, write_users

FEW = replace(LIMITS, max_connections=8)
USER, (_, TOKEN) = next(iter(TOKENS.items()))
PATIENCE_S = 10.0

Start = Callable[..., int]


@pytest.fixture
def start(handlers: Handlers) -> Iterator[Start]:
    """Starts a listener of few connections; returns the tablet's port."""
    running: list[NativeServer] = []

    def make(tokens: UsersFile | None = None) -> int:
        ports = dict.fromkeys(Role, 0)
        login = {AUTHENTICATE: lambda _: pb.AuthenticateResponse()}
        calls = {role: {**offered, **login} for role, offered in handlers.all().items()}
        running.append(
            NativeServer(calls, "127.0.0.1", ports, max_workers=4, limits=FEW, tokens=tokens)
        )
        return running[-1].start()[Role.TABLET]

    yield make
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


def log_in(peer: Peer) -> None:
    token = f"\0{USER}\0{TOKEN}".encode()
    peer.send(AUTHENTICATE, pb.AuthenticateRequest(protocol="PLAIN", token=token))
    _, answer = peer.receive()
    assert isinstance(answer, bytes), answer


def longest_s(port: int, connected: Callable[..., Peer], *, login: bool) -> float:
    """The longest time in which a client of another host connects and is served."""
    longest = 0.0
    for _ in range(3):
        began = time.monotonic()
        peer = connected(port, "127.0.0.9")
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
        assert peer.closed()
    assert longest_s(port, connected, login=False) < PATIENCE_S
    for peer in greedy:
        peer.socket.close()
    assert longest_s(port, connected, login=False) < PATIENCE_S


def test_connections_without_a_login_keep_nobody_out(
    start: Start, connected: Callable[..., Peer], tmp_path: Path
) -> None:
    """From many hosts, and from the user's own: those that have not logged in make room."""
    port = start(UsersFile(write_users(tmp_path / "users")))
    user = connected(port)
    log_in(user)
    for host in range(1, 11):
        for _ in range(20):
            connected(port, f"127.0.0.{host}")
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
