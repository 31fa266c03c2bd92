"""The gRPC transport against real servers on free ports: every way a call can fail."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest

from sluice.client.connection.addresses import Address, open_transport
from sluice.config import ClientConfig
from sluice.errors import (
    CorruptMessage,
    FencedTieringEpoch,
    FlussError,
    NetworkError,
    RecordTooLarge,
    RequestTimeOut,
    TableNotExist,
    UnknownServerError,
    UnsupportedVersion,
)
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Role
from sluice.wire.error_codes import raise_in_body, to_error_response
from sluice.wire.transport import Transport
from tests.support.network.http2_peer import (
    ACK,
    DATA,
    END_STREAM,
    GOAWAY,
    PREFACE,
    SETTINGS,
    frame,
    headers,
    message_head,
)
from tests.support.network.ports import kept_port
from tests.support.network.wire_server import WireServer
from tests.support.programs.processes import wait_for

EXISTS = pb.DatabaseExistsRequest(database_name="db")


def transport_to(address: str, **config: Any) -> Transport:
    return open_transport(Address.parse(address), ClientConfig(**config))


def call(server: WireServer, timeout_ms: int = 60_000, **config: Any) -> Any:
    transport = transport_to(server.address, **config)
    try:
        return transport.call(Role.COORDINATOR, apis.DATABASE_EXISTS, EXISTS, timeout_ms)
    finally:
        transport.close()


def server_that(handler: Callable[[Any], Any], **options: Any) -> WireServer:
    return WireServer({(Role.COORDINATOR, apis.DATABASE_EXISTS): handler}, **options)


def test_an_answer_comes_back_parsed() -> None:
    with server_that(lambda r: pb.DatabaseExistsResponse(exists=r.database_name == "db")) as server:
        assert call(server).exists is True


@pytest.mark.parametrize("error", [TableNotExist("no db.t"), FencedTieringEpoch("3 is not 4")])
def test_an_error_has_the_same_class_and_text_whichever_way_it_comes(error: FlussError) -> None:
    def fail(_: Any) -> Any:
        raise error

    with server_that(fail) as server, pytest.raises(FlussError) as by_status:
        call(server)
    with pytest.raises(FlussError) as by_body:
        raise_in_body(to_error_response(error))
    assert type(by_status.value) is type(by_body.value) is type(error)
    assert str(by_status.value) == str(by_body.value) == str(error)


def test_a_handler_that_breaks_is_an_unknown_server_error() -> None:
    def crash(_: Any) -> Any:
        raise ZeroDivisionError("oops")

    with server_that(crash) as server, pytest.raises(UnknownServerError, match="DatabaseExists"):
        call(server)


def test_a_server_that_hangs_costs_no_more_than_the_deadline() -> None:
    release = threading.Event()
    with server_that(lambda _: release.wait(120)) as server:
        with pytest.raises(RequestTimeOut, match=r"DatabaseExists to grpc://.*within 50 ms"):
            call(server, timeout_ms=50)
        release.set()


def test_a_server_that_is_down_is_a_network_error_of_a_request_never_sent() -> None:
    with kept_port() as port:
        address = f"grpc://127.0.0.1:{port}"
        with pytest.raises(NetworkError, match="^nothing listens at ") as caught:
            transport_to(address).call(Role.COORDINATOR, apis.DATABASE_EXISTS, EXISTS, 60_000)
    assert f"127.0.0.1:{port}: connection refused" in str(caught.value)
    assert caught.value.details["sent"] is False


def test_a_connection_lost_under_way_does_not_claim_that_nothing_was_sent() -> None:
    begun, release = threading.Event(), threading.Event()

    def hang(_: Any) -> Any:
        begun.set()
        release.wait(120)

    caught: list[FlussError] = []
    with server_that(hang) as server:
        transport = transport_to(server.address)

        def run() -> None:
            try:
                transport.call(Role.COORDINATOR, apis.DATABASE_EXISTS, EXISTS, 60_000)
            except FlussError as error:
                caught.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        assert begun.wait(60)
    thread.join(60)
    release.set()
    assert [type(error) for error in caught] == [NetworkError]
    assert "sent" not in caught[0].details


def test_closing_ends_calls_under_way_and_refuses_new_ones() -> None:
    begun, release = threading.Event(), threading.Event()

    def hang(_: Any) -> Any:
        begun.set()
        release.wait(120)

    caught: list[FlussError] = []
    with server_that(hang) as server:
        transport = transport_to(server.address)

        def run() -> None:
            try:
                transport.call(Role.COORDINATOR, apis.DATABASE_EXISTS, EXISTS, 60_000)
            except FlussError as error:
                caught.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        assert begun.wait(60)
        transport.close()
        thread.join(60)
        release.set()
        assert [type(error) for error in caught] == [NetworkError]
        with pytest.raises(NetworkError, match="closed"):
            transport.call(Role.COORDINATOR, apis.DATABASE_EXISTS, EXISTS, 1000)
        with pytest.raises(NetworkError, match="closed"):
            transport.call(Role.COORDINATOR, apis.LIST_DATABASES, pb.ListDatabasesRequest(), 1000)


def test_a_call_that_the_server_does_not_have() -> None:
    with WireServer({}) as server, pytest.raises(UnsupportedVersion, match="DatabaseExists"):
        call(server)


def test_a_request_over_our_own_limit_is_refused_before_it_is_sent() -> None:
    with server_that(lambda _: pb.DatabaseExistsResponse(exists=True)) as server:
        transport = transport_to(server.address, max_message_bytes=1000)
        request = pb.DatabaseExistsRequest(database_name="x" * 1001)
        with pytest.raises(RecordTooLarge, match=r"1,004 bytes.*1,000"):
            transport.call(Role.COORDINATOR, apis.DATABASE_EXISTS, request, 60_000)
        assert server.calls == []
        transport.close()


def test_a_request_over_the_limit_of_the_server() -> None:
    answer = pb.DatabaseExistsResponse(exists=True)
    with server_that(lambda _: answer, max_message_bytes=1000) as server:
        transport = transport_to(server.address)
        request = pb.DatabaseExistsRequest(database_name="x" * 2000)
        with pytest.raises(RecordTooLarge, match="max_message_bytes"):
            transport.call(Role.COORDINATOR, apis.DATABASE_EXISTS, request, 60_000)
        transport.close()


def test_an_answer_over_our_limit() -> None:
    handlers = {
        (Role.COORDINATOR, apis.LIST_DATABASES): lambda _: pb.ListDatabasesResponse(
            database_name=["x" * (1 << 20) + "x" * 2000]
        )
    }
    with WireServer(handlers) as server:
        transport = transport_to(server.address, max_message_bytes=1000)
        with pytest.raises(RecordTooLarge, match="ListDatabases"):
            transport.call(Role.COORDINATOR, apis.LIST_DATABASES, pb.ListDatabasesRequest(), 60_000)
        transport.close()


def test_an_answer_that_cannot_be_parsed() -> None:
    with server_that(lambda _: b"\xff\xff\xff") as server, pytest.raises(CorruptMessage) as caught:
        call(server)
    assert server.address in str(caught.value)


def test_a_request_without_a_required_field_never_leaves() -> None:
    with server_that(lambda _: pb.DatabaseExistsResponse(exists=True)) as server:
        transport = transport_to(server.address)
        with pytest.raises(CorruptMessage, match="database_name"):
            transport.call(
                Role.COORDINATOR, apis.DATABASE_EXISTS, pb.DatabaseExistsRequest(), 60_000
            )
        transport.close()


def test_a_server_that_comes_back_on_its_port_is_found_again() -> None:
    def answer(_: Any) -> Any:
        return pb.DatabaseExistsResponse(exists=True)

    with kept_port() as port:
        with server_that(answer, port=port) as server:
            transport = transport_to(server.address)
            assert transport.call(Role.COORDINATOR, apis.DATABASE_EXISTS, EXISTS, 60_000)
        with pytest.raises(NetworkError):
            transport.call(Role.COORDINATOR, apis.DATABASE_EXISTS, EXISTS, 60_000)
        with server_that(answer, port=port):
            wait_for("the server to be found again", lambda: is_found(transport))
        transport.close()


def is_found(transport: Transport) -> bool:
    try:
        transport.call(Role.COORDINATOR, apis.DATABASE_EXISTS, EXISTS, 60_000)
    except NetworkError:  # gRPC waits up to 2 s between two attempts to connect
        return False
    return True


ANSWER = pb.DatabaseExistsResponse(exists=True).SerializeToString()


@contextmanager
def leaving_server(refusal: bytes) -> Iterator[tuple[int, list[int]]]:
    """Its first connection takes no call: it says so by a frame. The second one answers.

    Its port, and the calls that arrived on each connection.
    """
    calls: list[int] = []

    def serve() -> None:
        with suppress(OSError):
            for number in (0, 1):
                client = opened.enter_context(listener.accept()[0])
                calls.append(0)
                source = client.makefile("rb")
                source.read(len(PREFACE))
                client.sendall(frame(SETTINGS, 0, 0, b""))
                while head := source.read(9):
                    kind, flags, stream = struct.unpack(">BBI", head[3:])
                    source.read(int.from_bytes(head[:3]))
                    if kind == SETTINGS and not flags & ACK:
                        client.sendall(frame(SETTINGS, ACK, 0, b""))
                    if kind == DATA and flags & END_STREAM:
                        calls[number] += 1
                        client.sendall(refusal if number == 0 else answer(stream))
                        if number == 0:
                            break

    def answer(stream: int) -> bytes:
        begin = [(":status", "200"), ("content-type", "application/grpc")]
        message = frame(DATA, 0, stream, message_head(len(ANSWER)) + ANSWER)
        return (
            headers(stream, begin) + message + headers(stream, [("grpc-status", "0")], END_STREAM)
        )

    with ExitStack() as opened, socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=serve)
        serving.start()
        try:
            yield listener.getsockname()[1], calls
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            serving.join(60)


def test_a_call_that_a_leaving_server_does_not_take_is_sent_again() -> None:
    """Surely not executed, so also if it is not idempotent. A server closes old connections so."""
    took_none = frame(GOAWAY, 0, 0, struct.pack(">II", 0, 0))
    with leaving_server(took_none) as (port, calls):
        transport = transport_to(f"grpc://127.0.0.1:{port}")
        found: Any = transport.call(Role.COORDINATOR, apis.DATABASE_EXISTS, EXISTS, 60_000)
        transport.close()
    assert found.exists
    assert calls == [1, 1]


@contextmanager
def slow_proxy(port: int, delay_s: float) -> Iterator[int]:
    """A port before a server that takes its time with each connection, as a busy machine does."""

    def pass_on(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while content := source.recv(1 << 16):
                target.sendall(content)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        with suppress(OSError):
            while True:
                client = stack.enter_context(listener.accept()[0])
                threading.Event().wait(delay_s)
                server = stack.enter_context(socket.create_connection(("127.0.0.1", port), 60))
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=pass_on, args=pair, daemon=True).start()

    with ExitStack() as stack, socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = threading.Thread(target=accept)
        accepting.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        accepting.join(60)


def test_a_server_that_is_slow_to_greet_is_waited_for_by_the_first_call() -> None:
    answer = pb.DatabaseExistsResponse(exists=True)
    with server_that(lambda _: answer) as server, slow_proxy(server.port, 1.0) as port:
        transport = transport_to(f"grpc://127.0.0.1:{port}")
        found: Any = transport.call(Role.COORDINATOR, apis.DATABASE_EXISTS, EXISTS, 60_000)
        transport.close()
    assert found.exists
