"""The native listener by itself: frames in, frames out, and clients that behave badly."""

from __future__ import annotations

import gc
import socket
import struct
import threading
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluice.errors import ConfigurationError, CorruptMessage, TableNotExist
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Role
from sluice.wire.messages import frames
from sluice.wire.native.memory import Limits
from sluice.wire.native.server import NativeServer
from tests.support.network.native_listener import LIMITS, MB, Handlers, Listeners, Peer, Start
from tests.support.network.ports import kept_port
from tests.support.programs.processes import wait_for


def test_calls_of_each_role(start: Start) -> None:
    ports = start()
    assert ports[Role.TABLET] != ports[Role.COORDINATOR]
    for port in ports.values():
        peer = Peer(port)
        assert peer.exists("yes") is True
        assert peer.exists("no") is False
        peer.socket.close()


def test_errors_come_as_error_frames(peer: Peer) -> None:
    gone = peer.exists("gone")
    assert (type(gone), str(gone)) == (TableNotExist, "no such table")
    boom = peer.exists("boom")
    assert boom.code == -1
    assert "boom" in str(boom)
    assert peer.exists("yes") is True


def test_calls_that_are_not_offered(start: Start) -> None:
    peer = Peer(start()[Role.COORDINATOR])
    peer.fetch(wait=False)
    request_id, error = peer.receive()
    assert (request_id, type(error).__name__) == (1, "UnsupportedVersion")
    assert "FetchLog" in str(error)
    peer.socket.sendall(frames.encode_request(9999, 0, 77, b"\xff\xff"))
    request_id, error = peer.receive()
    assert (request_id, type(error).__name__) == (77, "UnsupportedVersion")
    assert "9999" in str(error)
    peer.send(apis.DATABASE_EXISTS, pb.DatabaseExistsRequest(database_name="yes"), version=3)
    assert "version 3" in str(peer.receive()[1])
    assert peer.exists("yes") is True
    peer.socket.close()


def test_a_body_that_is_no_message(peer: Peer) -> None:
    for body in (b"\xff\xff\xff", b""):  # nonsense, and a required field left out
        peer.socket.sendall(frames.encode_request(apis.DATABASE_EXISTS.key, 0, 5, body))
        request_id, error = peer.receive()
        assert request_id == 5
        assert type(error) is CorruptMessage
        assert "DatabaseExists" in str(error)
    assert peer.exists("yes") is True


@pytest.mark.parametrize("length", [-1, 0, 7, -(2**31)])
def test_a_length_that_cannot_be(peer: Peer, length: int) -> None:
    peer.socket.sendall(struct.pack(">i", length) + bytes(20))
    request_id, error = peer.receive()
    assert request_id is None
    assert type(error) is CorruptMessage
    assert peer.closed()


@pytest.mark.parametrize("length", [MB + 1, 2**31 - 1])
def test_a_frame_over_the_limit(peer: Peer, length: int) -> None:
    peer.socket.sendall(struct.pack(">ihhi", length, apis.DATABASE_EXISTS.key, 0, 9))
    request_id, error = peer.receive()
    assert (request_id, type(error).__name__) == (9, "RecordTooLarge")
    assert peer.closed()


def test_what_was_asked_before_is_answered_before_a_refusal(peer: Peer) -> None:
    good = frames.encode_request(
        apis.DATABASE_EXISTS.key,
        0,
        1,
        pb.DatabaseExistsRequest(database_name="a").SerializeToString(),
    )
    peer.socket.sendall(good + b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert peer.receive()[0] == 1
    assert type(peer.receive()[1]).__name__ == "RecordTooLarge"
    assert peer.closed()


def test_requests_are_answered_in_order_however_they_are_cut(peer: Peer) -> None:
    names = [f"n{i}" for i in range(50)]
    stream = b"".join(
        frames.encode_request(
            apis.DATABASE_EXISTS.key,
            0,
            i,
            pb.DatabaseExistsRequest(database_name=name).SerializeToString(),
        )
        for i, name in enumerate(names)
    )
    for start in range(0, len(stream), 7):
        peer.socket.sendall(stream[start : start + 7])
    assert [peer.receive()[0] for _ in names] == list(range(50))


def test_a_waiting_fetch_holds_nobody_up(peer: Peer, handlers: Handlers) -> None:
    waiting = peer.fetch(wait=True)
    assert peer.exists("yes") is True
    quick = peer.fetch(wait=False)
    assert peer.receive()[0] == quick
    handlers.gate.set()
    assert peer.receive()[0] == waiting


def test_order_is_kept_per_connection(peer: Peer, handlers: Handlers) -> None:
    """An idempotent writer has several batches under way; they must be stored as sent."""
    for index in range(200):
        peer.send(apis.DATABASE_EXISTS, pb.DatabaseExistsRequest(database_name=str(index)))
    for _ in range(200):
        peer.receive()
    assert handlers.seen == [str(index) for index in range(200)]


def test_unanswered_requests_are_bounded(start: Start, handlers: Handlers) -> None:
    ports = start(Limits(MB, 4 * MB, max_requests=3), workers=16)
    peer = Peer(ports[Role.TABLET])
    for mark in range(10):
        peer.fetch(wait=True, mark=mark)
    wait_for("three under way", lambda: handlers.running >= 3)
    handlers.gate.set()
    assert {peer.receive()[0] for _ in range(10)} == set(range(1, 11))
    assert handlers.most == 3
    peer.socket.close()


def test_memory_is_bounded_while_nobody_takes_the_answers(start: Start, handlers: Handlers) -> None:
    """60 answers of 2 MB: made are those that fit into 4 MB, the sockets, and 4 threads' hands."""
    handlers.reply_bytes = 2 * MB
    patient = Limits(MB, 4 * MB, stall_s=600, pressed_s=600)  # nobody is left for taking nothing
    peer = Peer(start(patient, workers=4)[Role.TABLET])
    for _ in range(60):
        peer.fetch(wait=False)
    wait_for("an answer", lambda: handlers.made)
    made = -1
    while made != handlers.made:
        made = handlers.made
        time.sleep(0.2)
    assert made < 20
    assert {peer.receive()[0] for _ in range(60)} == set(range(1, 61))
    peer.socket.close()


def test_a_client_that_takes_nothing_is_left(listeners: Listeners, handlers: Handlers) -> None:
    handlers.reply_bytes = 16 * MB
    ports = listeners.start(Limits(MB, 4 * MB, stall_s=0.2))
    slow, other = Peer(ports[Role.TABLET]), Peer(ports[Role.TABLET])
    slow.fetch_together(4)
    # The slow one's answers fill the memory; it is dropped, and then the other one is served.
    assert other.exists("yes") is True
    wait_for("an answer", lambda: handlers.made)
    wait_for("the slow one to be left", lambda: listeners.clients == 1)
    with pytest.raises((EOFError, ConnectionResetError)):
        for _ in range(4):
            slow.receive()
    slow.socket.close()
    other.socket.close()


def test_nothing_comes_behind_an_answer_that_was_cut(
    listeners: Listeners, handlers: Handlers
) -> None:
    """The client would take it for the rest of that answer: log data with other bytes in it."""
    handlers.reply_bytes = MB // 2
    peer = Peer(listeners.start(Limits(MB, 64 * MB, stall_s=0.2))[Role.TABLET])
    peer.fetch_together(60)
    wait_for("an answer", lambda: handlers.made)
    wait_for("the client to be left", lambda: not listeners.clients)
    taken = bytearray()
    with suppress(ConnectionResetError):
        while content := peer.socket.recv(MB):
            taken += content
    peer.socket.close()
    answer = handlers.fetched(0)
    size = len(frames.encode_response(1, answer))
    assert size < len(taken) < 60 * size
    for start in range(0, len(taken), size):
        number = int.from_bytes(taken[start + 5 : start + 9])
        assert frames.encode_response(number, answer).startswith(taken[start : start + size])


@pytest.mark.slow
def test_an_idle_connection_is_closed_but_not_a_waiting_one(
    start: Start, handlers: Handlers
) -> None:
    ports = start(Limits(MB, 4 * MB, idle_s=3.0))
    idle, waiting = Peer(ports[Role.TABLET]), Peer(ports[Role.TABLET])
    waiting.fetch(wait=True)
    assert idle.closed()
    handlers.gate.set()
    assert waiting.receive()[0] == 1
    assert waiting.closed()


def test_a_client_that_stops_inside_a_frame(start: Start) -> None:
    ports = start(Limits(MB, 4 * MB, stall_s=0.15))
    peer = Peer(ports[Role.TABLET])
    peer.socket.sendall(struct.pack(">ihh", 500_000, 1, 2))
    assert peer.closed()
    # and what it had announced is free again
    for _ in range(9):
        with Peer(ports[Role.TABLET]).socket as raw:
            raw.sendall(struct.pack(">ihh", MB, 1, 2))
    assert Peer(ports[Role.TABLET]).exists("yes") is True


def test_a_client_that_goes_inside_a_frame(start: Start) -> None:
    ports = start()
    for cut in (1, 3, 4, 8, 11, 40):
        with Peer(ports[Role.TABLET]).socket as raw:
            raw.sendall((struct.pack(">ihhi", 1000, apis.FETCH_LOG.key, 0, 1) + bytes(99))[:cut])
    assert Peer(ports[Role.TABLET]).exists("yes") is True


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.data())
def test_nonsense_takes_nothing_down(peer: Peer, data: st.DataObject) -> None:
    """Any bytes: the server answers with frames, or closes, and goes on serving the others."""
    port = peer.socket.getpeername()[1]
    nonsense = data.draw(st.binary(max_size=200))
    if data.draw(st.booleans()):
        key = data.draw(st.sampled_from([1004, 1015, 1000, 7, -1]))
        nonsense = frames.encode_request(key, 0, data.draw(st.integers(-9, 9)), nonsense)
    other = Peer(port)
    other.socket.sendall(nonsense)
    other.socket.shutdown(socket.SHUT_WR)
    with suppress(EOFError, ConnectionResetError):
        while True:
            other.receive()
    other.socket.close()
    assert peer.exists("yes") is True


def test_stop_answers_what_is_under_way(start: Start, handlers: Handlers) -> None:
    with kept_port() as port:
        ports = {Role.COORDINATOR: 0, Role.TABLET: port}
        server = NativeServer(handlers.all(), "127.0.0.1", ports, max_workers=4, limits=LIMITS)
        assert server.start()[Role.TABLET] == port
        peer = Peer(port)
        sent = peer.fetch(wait=True)
        assert peer.exists("yes") is True  # so the fetch has been read
        threading.Timer(0.2, handlers.gate.set).start()
        server.stop(60)
        assert peer.receive()[0] == sent
        assert peer.closed()
        with pytest.raises(OSError, match="refused"):
            Peer(port)


def test_stop_does_not_wait_longer_than_its_grace(handlers: Handlers) -> None:
    limits = replace(LIMITS, stall_s=600)
    server = NativeServer(
        handlers.all(), "127.0.0.1", dict.fromkeys(Role, 0), max_workers=4, limits=limits
    )
    handlers.reply_bytes = 64 * MB  # more than sockets hold, to a client that takes nothing
    peer = Peer(server.start()[Role.TABLET])
    peer.fetch(wait=False)
    wait_for("the fetch", lambda: handlers.most)
    began = time.monotonic()
    server.stop(0.2)
    assert time.monotonic() - began < 60, "it would wait for the client ten times as long"
    peer.socket.close()


def test_clients_that_come_while_it_stops_are_not_forgotten(
    handlers: Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection accepted beside ``stop`` was left pending in a closed loop (warnings fail)."""
    unraised: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", unraised.append)
    for _ in range(30):
        server = NativeServer(
            handlers.all(), "127.0.0.1", {Role.TABLET: 0}, max_workers=2, limits=LIMITS
        )
        port = server.start()[Role.TABLET]
        peers = [socket.socket() for _ in range(40)]
        knocking = threading.Thread(target=lambda p=peers, to=port: [_knock(x, to) for x in p])
        knocking.start()
        server.stop(0)
        knocking.join()
        for peer in peers:
            peer.close()
    gc.collect()
    assert not [str(x.exc_value) for x in unraised]


def _knock(peer: socket.socket, port: int) -> None:
    with suppress(OSError):
        peer.connect(("127.0.0.1", port))


def test_a_port_that_is_taken(start: Start, handlers: Handlers) -> None:
    taken = start()[Role.TABLET]
    ports = {Role.COORDINATOR: 0, Role.TABLET: taken}
    second = NativeServer(handlers.all(), "127.0.0.1", ports, max_workers=1, limits=LIMITS)
    with pytest.raises(
        ConfigurationError, match=f"127.0.0.1:{taken} .tablet server.: Address already in use"
    ):
        second.start()
    second.stop(0)


def test_other_kinds_of_host(start: Start) -> None:
    assert Peer(start(host="localhost")[Role.TABLET], "localhost").exists("yes") is True
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return  # no IPv6 here
    assert Peer(start(host="::1")[Role.TABLET], "::1").exists("yes") is True
