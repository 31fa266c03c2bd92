"""The native transport before servers that behave, and before those that do not."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.errors import (
    CorruptMessage,
    FlussError,
    NetworkError,
    NotCoordinatorLeader,
    NotLeaderOrFollower,
    RecordTooLarge,
    RequestTimeOut,
    TableNotExist,
    UnknownServerError,
    UnsupportedVersion,
    WrongProtocol,
)
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Role
from sluice.wire.messages import frames
from sluice.wire.messages.frames import ResponseType
from sluice.wire.native.transport import NativeTransport
from tests.support.network.native_peer import Peer, PeerServer, announced, hello, serving
from tests.support.network.ports import kept_port

LIST = pb.ListTablesRequest(database_name="shop")
MB = 1 << 20
LONG_MS = 120_000


@contextmanager
def talking(
    script: Callable[[Peer], object], **settings: Any
) -> Iterator[tuple[PeerServer, NativeTransport]]:
    with PeerServer(script) as server:
        address = f"fluss://127.0.0.1:{server.port}"
        settings.setdefault("max_message_bytes", MB)
        transport = NativeTransport(address, "127.0.0.1", server.port, **settings)
        try:
            yield server, transport
        finally:
            transport.close()


def ask(transport: NativeTransport, database: str = "shop", timeout_ms: int = LONG_MS) -> list[str]:
    request = pb.ListTablesRequest(database_name=database)
    answer: Any = transport.call(Role.TABLET, apis.LIST_TABLES, request, timeout_ms)
    return list(answer.table_name)


def greeted(transport: NativeTransport) -> None:
    """Has a connection made, so that a short deadline goes for the call alone."""
    request = pb.ApiVersionsRequest(client_software_name="a", client_software_version="b")
    transport.call(Role.TABLET, apis.API_VERSIONS, request, 60_000)


def echo(request: Any) -> pb.ListTablesResponse:
    return pb.ListTablesResponse(table_name=[request.database_name])


def failing(script: Callable[[Peer], object], expected: type[FlussError], **settings: Any) -> Any:
    """What one call fails by after the greeting; it must be long before its deadline."""

    def greeted(peer: Peer) -> None:
        peer.greet()
        script(peer)

    with talking(greeted, **settings) as (_, transport):
        started = time.monotonic()
        with pytest.raises(expected) as caught:
            ask(transport)
        assert time.monotonic() - started < LONG_MS / 2000
        assert f"ListTables to {transport.address}: " in str(caught.value)
    return caught.value


def test_answers_find_their_requests_in_whatever_order_they_come() -> None:
    def script(peer: Peer) -> None:
        peer.greet()
        got = [peer.request() for _ in range(8)]
        for request in reversed(got):
            assert request is not None
            peer.answer(request[0], echo(pb.ListTablesRequest.FromString(request[1])))
        peer.request()

    with talking(script) as (server, transport), ThreadPoolExecutor(8) as pool:
        names = [f"db{i}" for i in range(8)]
        assert list(pool.map(lambda name: ask(transport, name), names)) == [[n] for n in names]
        assert server.connections == 1


def test_an_error_frame_is_the_servers_own_error() -> None:
    def script(peer: Peer) -> None:
        peer.greet()
        while (got := peer.request()) is not None:
            peer.error(got[0], 7, "table shop.gone does not exist")

    with talking(script) as (server, transport):
        for _ in range(2):
            with pytest.raises(TableNotExist, match=r"^table shop.gone does not exist$"):
                ask(transport)
        assert server.connections == 1


def test_a_request_without_an_answer_times_out_and_a_late_answer_is_dropped() -> None:
    arrived, late = threading.Event(), threading.Event()

    def script(peer: Peer) -> None:
        peer.greet()
        first = peer.request()
        arrived.set()
        second = peer.request()
        assert first is not None and second is not None
        peer.answer(second[0], pb.ListTablesResponse(table_name=["second"]))
        late.wait(60)
        peer.answer(first[0], pb.ListTablesResponse(table_name=["late"]))
        third = peer.request()
        assert third is not None
        peer.answer(third[0], pb.ListTablesResponse(table_name=["third"]))
        peer.request()

    with talking(script) as (server, transport), ThreadPoolExecutor(1) as pool:
        greeted(transport)
        lost = pool.submit(ask, transport, "first", 3_000)
        assert arrived.wait(60)  # it is the first only once it is here
        assert ask(transport) == ["second"]
        with pytest.raises(RequestTimeOut, match="no response within 3000 ms"):
            lost.result()
        late.set()
        assert ask(transport) == ["third"]
        assert server.connections == 1


def test_a_server_that_hangs_is_left_for_a_new_connection() -> None:
    hung: list[Peer] = []

    def script(peer: Peer) -> None:
        hangs = not hung
        hung.append(peer)
        peer.greet()
        if not hangs:
            serving({apis.LIST_TABLES: echo})(peer)
        while peer.request() is not None:
            pass

    with talking(script) as (server, transport):
        greeted(transport)
        with pytest.raises(RequestTimeOut) as caught:
            ask(transport, timeout_ms=1_000)
        assert caught.value.details.get("sent") is not False
        assert ask(transport) == ["shop"]
        assert server.connections == 2


def test_a_server_that_says_nothing_at_all_times_out_before_anything_was_sent() -> None:
    with talking(lambda peer: [peer.request() for _ in range(9)]) as (_, transport):
        with pytest.raises(NetworkError, match=r"sent no response within (1|0\.99) s") as caught:
            ask(transport, timeout_ms=1_000)
        assert caught.value.details["sent"] is False


def test_a_frame_cut_by_the_end_of_the_connection() -> None:
    def script(peer: Peer) -> None:
        got = peer.request()
        assert got is not None
        peer.sock.sendall(frames.encode_response(got[0].request_id, b"x" * 100)[:50])

    error = failing(script, NetworkError)
    assert "closed the connection inside a frame" in str(error)
    assert error.details.get("sent") is not False


def test_a_frame_of_two_gigabytes_is_refused() -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.sock.sendall(announced(2**31 - 1) + b"\0" * 1000)
        peer.request()

    error = failing(script, RecordTooLarge)
    assert "a frame of 2,147,483,647 bytes, the limit is 2,097,152" in str(error)


def test_a_large_answer_within_the_limit_is_read() -> None:
    names = ["n" * 1000] * 1000
    answer = pb.ListTablesResponse(table_name=names)
    with talking(serving({apis.LIST_TABLES: lambda _: answer})) as (_, transport):
        assert ask(transport) == names


def test_an_answer_to_a_request_that_was_never_sent() -> None:
    def script(peer: Peer) -> None:
        got = peer.request()
        assert got is not None
        peer.answer(replace(got[0], request_id=77), pb.ListTablesResponse())
        peer.request()

    assert "answered request 77, which was never sent" in str(failing(script, CorruptMessage))


def test_an_answer_to_another_request_does_not_answer_this_one() -> None:
    def script(peer: Peer) -> None:
        peer.greet()
        got = peer.request()
        assert got is not None
        peer.answer(replace(got[0], request_id=0), pb.ListTablesResponse(table_name=["wrong"]))
        peer.answer(got[0], pb.ListTablesResponse(table_name=["right"]))
        peer.request()

    with talking(script) as (_, transport):
        assert ask(transport) == ["right"]


@pytest.mark.parametrize("garbage", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0" * 64, b"\xff" * 64])
def test_garbage_is_a_typed_error(garbage: bytes) -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.sock.sendall(garbage)
        peer.request()

    expected = WrongProtocol if garbage.startswith(b"HTTP") else CorruptMessage, RecordTooLarge
    with talking(script) as (_, transport), pytest.raises(expected):
        ask(transport)


def test_an_answer_of_another_message_is_a_typed_error() -> None:
    def script(peer: Peer) -> None:
        peer.greet()
        got = peer.request()
        assert got is not None
        peer.sock.sendall(frames.encode_response(got[0].request_id, b"\x0a\x7f"))
        peer.request()

    wanted = r"ListTables of fluss://.* cannot be parsed"
    with talking(script) as (_, transport), pytest.raises(CorruptMessage, match=wanted):
        ask(transport)


def test_a_server_failure_ends_every_request_of_the_connection() -> None:
    def script(peer: Peer) -> None:
        peer.greet()
        for _ in range(3):
            peer.request()
        error = pb.ErrorResponse(error_code=-1, error_message="the pipeline broke")
        peer.sock.sendall(frames.encode_failure(error))

    with talking(script) as (_, transport), ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(ask, transport) for _ in range(3)]
        for call in calls:
            with pytest.raises(UnknownServerError, match="the pipeline broke"):
                call.result()


def test_a_reason_about_the_connection_in_answer_to_the_greeting_is_kept() -> None:
    reason = "the connection of listener CLIENT is limited to 10 per host"

    def script(peer: Peer) -> None:
        got = peer.request()
        if got is not None:
            peer.error(got[0], NetworkError.code, reason)

    with talking(script) as (_, transport), pytest.raises(NetworkError, match=reason):
        ask(transport)


def test_an_error_without_a_text_is_described() -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.sock.sendall(frames.encode_failure(pb.ErrorResponse(error_code=-1, error_message=" ")))

    with talking(script) as (_, transport), pytest.raises(FlussError) as caught:
        ask(transport)
    assert str(caught.value).endswith("(Fluss error -1)")


def test_another_version_is_refused_before_the_request_is_sent() -> None:
    def script(peer: Peer) -> None:
        peer.greet(versions={apis.LIST_TABLES.key: (1, 3)})
        peer.greet(versions={apis.LIST_TABLES.key: (1, 3)})  # asked anew before the next refusal
        assert peer.request() is None

    with talking(script) as (_, transport):
        with pytest.raises(UnsupportedVersion, match="versions 1 to 3 .* this client 0 to 0") as e:
            ask(transport)
        assert e.value.details["sent"] is False
        with pytest.raises(UnsupportedVersion, match=r"does not offer this call \(api key 1021"):
            transport.call(
                Role.TABLET,
                apis.LIST_OFFSETS,
                pb.ListOffsetsRequest(follower_server_id=-1, offset_type=0, table_id=1),
                LONG_MS,
            )


def test_a_server_that_has_the_call_by_now_is_asked() -> None:
    def script(peer: Peer) -> None:
        peer.greet(versions={apis.LIST_TABLES.key: (1, 3)})
        peer.greet(versions={apis.LIST_TABLES.key: (0, 3)})
        got = peer.request()
        assert got is not None
        peer.answer(got[0], pb.ListTablesResponse(table_name=["a"]))

    with talking(script) as (_, transport):
        with pytest.raises(UnsupportedVersion):
            ask(transport)
        assert ask(transport) == ["a"]


@pytest.mark.parametrize(
    ("mine", "theirs", "used"), [(2, (0, 1), 1), (1, (0, 9), 1), (2, (2, 2), 2)]
)
def test_the_highest_common_version_is_used(mine: int, theirs: tuple[int, int], used: int) -> None:
    seen: list[int] = []

    def script(peer: Peer) -> None:
        peer.greet(versions={apis.LIST_TABLES.key: theirs})
        while (got := peer.request()) is not None:
            seen.append(got[0].api_version)
            peer.answer(got[0], pb.ListTablesResponse())

    with talking(script) as (_, transport):
        transport.call(Role.TABLET, replace(apis.LIST_TABLES, max_version=mine), LIST, LONG_MS)
    assert seen == [used]


def test_a_server_of_the_other_type_is_not_asked() -> None:
    def script(peer: Peer) -> None:
        peer.greet(server_type=1)
        assert peer.request() is None

    with talking(script) as (_, transport):
        with pytest.raises(NotLeaderOrFollower, match="is a coordinator server, not a tablet") as e:
            ask(transport)
        assert e.value.details["sent"] is False
    with (
        talking(lambda peer: peer.greet(server_type=2)) as (_, transport),
        pytest.raises(NotCoordinatorLeader, match="is a tablet server, not a coordinator"),
    ):
        transport.call(Role.COORDINATOR, apis.LIST_TABLES, LIST, LONG_MS)


@pytest.mark.parametrize("server_type", [None, -1, 0, 9])
def test_a_server_of_unknown_type_is_asked(server_type: int | None) -> None:
    def script(peer: Peer) -> None:
        peer.greet(server_type=server_type)
        got = peer.request()
        assert got is not None
        peer.answer(got[0], pb.ListTablesResponse(table_name=["t"]))
        peer.request()

    with talking(script) as (_, transport):
        assert ask(transport) == ["t"]


def test_api_versions_is_answered_by_the_greeting() -> None:
    def script(peer: Peer) -> None:
        peer.greet(versions={1007: (0, 0)})
        assert peer.request() is None

    request = pb.ApiVersionsRequest(client_software_name="a", client_software_version="b")
    with talking(script) as (_, transport):
        for _ in range(2):
            answer = transport.call(Role.TABLET, apis.API_VERSIONS, request, LONG_MS)
            assert answer == hello(versions={1007: (0, 0)})


def test_nobody_listening_is_a_network_error_and_nothing_was_sent() -> None:
    with kept_port() as port:
        transport = NativeTransport(f"fluss://127.0.0.1:{port}", "127.0.0.1", port, MB)
        with pytest.raises(NetworkError, match=f"^nothing listens at 127.0.0.1:{port}: ") as caught:
            ask(transport)
    assert caught.value.details["sent"] is False


def test_a_request_over_the_limit_is_not_sent() -> None:
    with talking(lambda peer: peer.request(), max_message_bytes=100) as (server, transport):
        with pytest.raises(RecordTooLarge, match="client.max_message_bytes is 100"):
            ask(transport, "d" * 200)
        assert server.connections == 0


def test_a_request_that_the_server_does_not_take_was_not_sent() -> None:
    done = threading.Event()

    def script(peer: Peer) -> None:
        peer.greet()
        done.wait(60)

    with talking(script, max_message_bytes=64 * MB) as (_, transport):
        big = "d" * (32 * MB)
        greeted(transport)
        with pytest.raises(RequestTimeOut, match="no response within 1000 ms") as caught:
            ask(transport, big, timeout_ms=1_000)
        assert caught.value.details["sent"] is False
        done.set()


def test_a_server_that_closes_while_a_request_is_being_sent() -> None:
    def script(peer: Peer) -> None:
        peer.greet()
        peer.sock.recv(1000)

    with talking(script, max_message_bytes=64 * MB) as (_, transport):
        with pytest.raises(NetworkError) as caught:
            ask(transport, "d" * (32 * MB))
        assert caught.value.details["sent"] is False


def test_a_connection_that_the_server_closed_is_made_anew() -> None:
    def script(peer: Peer) -> None:
        peer.greet()
        got = peer.request()
        assert got is not None
        peer.answer(got[0], pb.ListTablesResponse(table_name=["t"]))

    with talking(script) as (server, transport):
        for expected in range(1, 4):
            assert ask(transport) == ["t"]
            assert transport._server is not None
            transport._server.link._thread.join(60)
            assert server.connections == expected


def test_an_idle_connection_is_closed_and_made_anew() -> None:
    with talking(serving({apis.LIST_TABLES: echo}), idle_ms=800) as (server, transport):
        assert ask(transport) == ["shop"]
        assert transport._server is not None
        transport._server.link._thread.join(60)
        assert not transport._server.link.usable
        assert ask(transport) == ["shop"]
        assert server.connections == 2


def test_a_wait_longer_than_the_idle_time_is_not_idleness() -> None:
    def slow(request: Any) -> pb.ListTablesResponse:
        time.sleep(1.2)
        return echo(request)

    with talking(serving({apis.LIST_TABLES: slow}), idle_ms=400) as (_, transport):
        assert ask(transport) == ["shop"]


def test_closing_ends_the_calls_under_way_and_all_later_ones() -> None:
    asked = threading.Event()

    def script(peer: Peer) -> None:
        peer.greet()
        peer.request()
        asked.set()
        peer.request()

    with talking(script) as (_, transport), ThreadPoolExecutor(1) as pool:
        call = pool.submit(ask, transport)
        assert asked.wait(60)
        transport.close()
        with pytest.raises(NetworkError, match="the client was closed"):
            call.result()
        with pytest.raises(NetworkError, match="the connection was closed"):
            ask(transport)


def test_a_transport_that_is_forgotten_closes_its_connection() -> None:
    gone = threading.Event()

    def script(peer: Peer) -> None:
        serving({apis.LIST_TABLES: echo})(peer)
        gone.set()

    with PeerServer(script) as server:
        transport = NativeTransport("fluss://x", "127.0.0.1", server.port, MB)
        assert ask(transport) == ["shop"]
        del transport
        assert gone.wait(60)


def test_many_threads_share_one_connection() -> None:
    with (
        talking(serving({apis.LIST_TABLES: echo})) as (server, transport),
        ThreadPoolExecutor(16) as pool,
    ):
        names = [f"db{i}" for i in range(400)]
        assert list(pool.map(lambda name: ask(transport, name), names)) == [[n] for n in names]
        assert server.connections == 1


DAMAGED = (CorruptMessage, RecordTooLarge, RequestTimeOut)
"""What an answer damaged on the way may end by; besides the error that it now seems to be."""


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_after_a_damaged_answer_comes_a_typed_error_and_then_a_good_one(
    data: st.DataObject,
) -> None:
    good = frames.encode_response(
        1, pb.ListTablesResponse(table_name=["t"] * 3).SerializeToString()
    )
    damaged = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(damaged) - 1))
        damaged[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    seems_an_error = len(damaged) > 4 and damaged[4] in (ResponseType.ERROR, ResponseType(2))
    connections = itertools.count()

    def script(peer: Peer) -> None:
        first = next(connections) == 0
        peer.greet()
        if first:
            peer.request()
            peer.sock.sendall(damaged)
        while (got := peer.request()) is not None:
            peer.answer(got[0], echo(pb.ListTablesRequest.FromString(got[1])))

    with talking(script) as (_, transport):
        deadline = time.monotonic() + 120
        for attempt in itertools.count():  # what is left may spoil the next answer too
            assert time.monotonic() < deadline, "no good answer came again"
            greeted(transport)
            try:
                if ask(transport, timeout_ms=100 * 5 ** min(attempt, 3)) == ["shop"]:
                    break
            except FlussError as error:
                if not seems_an_error:
                    assert isinstance(error, DAMAGED), repr(error)
                    assert str(error).startswith("ListTables ")
                    assert f"{transport.address}: " in str(error)
