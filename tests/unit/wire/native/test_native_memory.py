"""The memory of a native listener: half-sent frames and untaken answers hold nobody else up."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Role
from sluice.wire.messages import frames
from sluice.wire.messages.frames import FrameReader
from sluice.wire.native.memory import Limits
from tests.support.network.native_listener import MB, Handlers, Peer, Start
from tests.support.network.native_peer import feed

ENOUGH_S = 30.0
"""The listeners here would let a client stall for longer: who waits for that is late."""


LONG_S = 10 * ENOUGH_S


def limits(
    max_frame_bytes: int, frames: int = 4, stall_s: float = LONG_S, pressed_s: float = 1.0
) -> Limits:
    return Limits(max_frame_bytes, frames * max_frame_bytes, stall_s=stall_s, pressed_s=pressed_s)


def big(peer: Peer, name_bytes: int) -> int:
    """Sends a request of so many bytes; its id."""
    return peer.send(apis.DATABASE_EXISTS, pb.DatabaseExistsRequest(database_name="n" * name_bytes))


def half(port: int, announced: int, sent: int) -> socket.socket:
    """A client that announces a frame and sends only so much of it, as far as the server takes.

    That may have left it before it has sent all, where others wait for memory.
    """
    sock = socket.create_connection(("127.0.0.1", port), ENOUGH_S)
    sock.settimeout(0.5)
    with suppress(OSError):
        sock.sendall(struct.pack(">ihhi", announced, apis.PRODUCE_LOG.key, 0, 1) + bytes(sent))
    return sock


@contextmanager
def dripping(socks: list[socket.socket]) -> Iterator[None]:
    """Each of these clients sends one byte after another, until the server has enough."""
    over = threading.Event()

    def drip() -> None:
        while not over.wait(0.05):
            for sock in socks:
                with suppress(OSError):
                    sock.send(b"x", socket.MSG_DONTWAIT)

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def hung_up(sock: socket.socket) -> bool:
    """Whether the server has ended the connection, perhaps after saying why."""
    sock.settimeout(ENOUGH_S)
    try:
        while sock.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    return True


@pytest.mark.parametrize("sent", [0, 100_000, 60 * MB])
def test_half_sent_frames_of_some_clients_do_not_starve_others(start: Start, sent: int) -> None:
    port = start(limits(64 * MB))[Role.TABLET]
    held = [half(port, 64 * MB, sent) for _ in range(5)]
    with dripping(held):
        peer = Peer(port)
        peer.socket.settimeout(ENOUGH_S)
        assert peer.exists("yes") is True
        assert (big(peer, 20 * MB), b"\x08\x00") == peer.receive()
        peer.socket.close()
    for sock in held:
        sock.close()


def test_small_requests_are_served_however_full_the_memory_is(
    start: Start, handlers: Handlers
) -> None:
    """Requests under way hold all memory, and nobody is to blame: small ones have their own."""
    port = start(limits(MB, pressed_s=LONG_S), workers=8)[Role.TABLET]
    waiting = []
    for _ in range(6):
        peer = Peer(port)
        request = pb.FetchLogRequest(follower_server_id=-1, max_bytes=1, max_wait_ms=1)
        table = request.tables_req.add(table_id=1, projection_pushdown_enabled=False)
        table.projected_fields.extend([300] * 480_000)
        peer.send(apis.FETCH_LOG, request)
        waiting.append(peer)
    small = Peer(port)
    small.socket.settimeout(ENOUGH_S)
    for _ in range(3):
        assert small.exists("yes") is True
    handlers.gate.set()
    for peer in [*waiting, small]:
        peer.socket.close()


def test_honest_frames_larger_together_than_the_memory_all_arrive(start: Start) -> None:
    """Each has sent a part when the memory is full: one after the other may go on.

    Nobody is left meanwhile for moving too slowly, which a busy machine's threads may well do.
    """
    port = start(limits(8 * MB, frames=2, pressed_s=LONG_S))[Role.TABLET]
    peers = [Peer(port) for _ in range(8)]
    body = pb.DatabaseExistsRequest(database_name="n" * 7_900_000).SerializeToString()
    request = frames.encode_request(apis.DATABASE_EXISTS.key, 0, 1, body)

    def send(peer: Peer) -> None:
        for start in range(0, len(request), 1 << 18):
            peer.socket.sendall(request[start : start + (1 << 18)])
            time.sleep(0.001)  # so that all of them are inside a frame together

    threads = [threading.Thread(target=send, args=(peer,)) for peer in peers]
    for thread in threads:
        thread.start()
    for peer in peers:
        peer.socket.settimeout(ENOUGH_S)
        assert peer.receive() == (1, b"\x08\x00")
        peer.socket.close()
    for thread in threads:
        thread.join()


def test_a_frame_that_only_drips_has_an_end(start: Start) -> None:
    """Each byte used to give it the whole time anew."""
    port = start(limits(MB, stall_s=0.4))[Role.TABLET]
    sock = half(port, MB, 10)
    with dripping([sock]):
        assert hung_up(sock)
    sock.close()


@pytest.mark.slow
def test_a_slow_frame_that_moves_has_the_time_that_it_needs(start: Start) -> None:
    """Whoever brings a chunk within the time is not cut off at a total that suits fast ones."""
    port = start(limits(16 * MB, stall_s=5.0))[Role.TABLET]
    peer = Peer(port)
    body = pb.DatabaseExistsRequest(database_name="n" * (16 * MB - 100)).SerializeToString()
    request = frames.encode_request(apis.DATABASE_EXISTS.key, 0, 1, body)
    for start_at in range(0, len(request), MB):
        peer.socket.sendall(request[start_at : start_at + MB])
        time.sleep(0.35)
    assert peer.receive() == (1, b"\x08\x00")
    peer.socket.close()


@pytest.mark.slow
def test_answers_that_some_do_not_take_do_not_starve_others(
    start: Start, handlers: Handlers
) -> None:
    handlers.reply_bytes = 16 * MB
    port = start(limits(MB))[Role.TABLET]
    slow = [Peer(port) for _ in range(4)]
    for peer in slow:
        peer.fetch_together(4)
    other = Peer(port)
    other.socket.settimeout(ENOUGH_S)
    assert other.exists("yes") is True
    for peer in [*slow, other]:
        peer.socket.close()


def test_a_frame_takes_memory_as_its_bytes_come() -> None:
    reader = FrameReader(64 * MB, grow_from=1000)
    feed(reader, struct.pack(">i", 64 * MB))
    assert len(reader.free_buffer()) == 1000
    feed(reader, bytes(1000))
    assert 1000 < len(reader.free_buffer()) + 1000 <= 8000
    assert reader.rest == 64 * MB - 1000


def test_a_frame_that_grew_is_the_one_that_was_sent() -> None:
    content = bytes(range(256)) * 500
    stream = struct.pack(">i", len(content)) + content + struct.pack(">i", 3) + b"abc"
    reader = FrameReader(MB, grow_from=100)
    found = []
    for start in range(0, len(stream), 777):
        found += feed(reader, stream[start : start + 777])
    assert [bytes(frame) for frame in found] == [content, b"abc"]
    assert not reader.inside
