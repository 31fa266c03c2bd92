"""An address whose scheme does not fit its port: real servers of each kind, both transports."""

from __future__ import annotations

import http.server
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from sluice.client.connection.addresses import Address, open_transport
from sluice.config import ClientConfig
from sluice.errors import FlussError, NetworkError, TlsError, WrongProtocol
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Role
from sluice.wire.endpoint_probe import PATIENCE_S, wrong_protocol
from sluice.wire.grpc.server import GrpcLimits, GrpcServer
from sluice.wire.sockets.tls import ServerTls
from tests.support.network.certificates import authority
from tests.support.network.native_listener import Handlers, Listeners
from tests.support.network.native_peer import Peer, PeerServer
from tests.support.network.wire_server import WireServer

OTHER = "not a Fluss cluster: use the coordinator's address, grpc://HOST:PORT for Sluice's server"


class _Quiet(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, *_: object) -> None:
        pass


class _HttpServer(http.server.ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        pass  # what a client of another protocol does to it


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    files = authority().sign(tmp_path_factory.mktemp("tls"))
    with ExitStack() as stack:
        native = Listeners(Handlers())
        stack.callback(native.stop)
        secure = GrpcServer(
            {}, "127.0.0.1", 0, limits=GrpcLimits(max_message_bytes=1 << 20, max_workers=2),
            tls=ServerTls(files.certificate, files.key),
        )  # fmt: skip
        stack.callback(secure.stop, 0)
        silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        yield {
            "gRPC": stack.enter_context(WireServer({})).port,
            "Fluss": native.start()[Role.COORDINATOR],
            "HTTP": _http(stack, None, []),
            "HTTPS": _http(stack, files.certificate, ["http/1.1"], files.key),
            "TLS": _http(stack, files.certificate, [], files.key),
            "gRPC with TLS": secure.start(),
            "silence": silent.getsockname()[1],
            "hanging up": stack.enter_context(PeerServer(lambda _: None)).port,
        }


def _http(
    stack: ExitStack, certificate: Path | None, alpn: list[str], key: Path | None = None
) -> int:
    server = stack.enter_context(_HttpServer(("127.0.0.1", 0), _Quiet))
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        if alpn:
            context.set_alpn_protocols(alpn)
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    stack.callback(server.shutdown)
    return int(server.server_port)


def failure(scheme: str, port: int, **config: object) -> FlussError:
    settings = ClientConfig(connect_timeout_ms=4_000, **config)  # type: ignore[arg-type]
    transport = open_transport(Address(scheme, "127.0.0.1", port), settings)
    request = pb.DatabaseExistsRequest(database_name="db")
    try:
        with pytest.raises(FlussError) as caught:
            transport.call(Role.COORDINATOR, apis.DATABASE_EXISTS, request, 60_000)
    finally:
        transport.close()
    return caught.value


@pytest.mark.parametrize(
    ("scheme", "there", "kind", "told"),
    [
        ("grpc", "Fluss", WrongProtocol, "speaks Fluss's native protocol: use fluss://{}"),
        ("grpc", "HTTP", WrongProtocol, f"is an HTTP server, {OTHER}"),
        ("grpc", "HTTPS", WrongProtocol, f"is an HTTPS server, {OTHER}"),
        ("grpc", "TLS", TlsError, ": the server speaks TLS on this port: set client.tls_ca"),
        ("grpc", "gRPC with TLS", TlsError, ": the server speaks TLS on this port: set client."),
        ("fluss", "gRPC", WrongProtocol, "speaks gRPC: use grpc://{}"),
        ("fluss", "HTTP", WrongProtocol, f"is an HTTP server, {OTHER}"),
        ("fluss", "HTTPS", WrongProtocol, f"is an HTTPS server, {OTHER}"),
        ("fluss", "TLS", WrongProtocol, "speaks TLS, which Fluss's native protocol does not use"),
        ("fluss", "gRPC with TLS", WrongProtocol, "use grpc://{} and set client.tls_ca"),
        ("grpc", "hanging up", NetworkError, "closed the connection without a response"),
        ("fluss", "hanging up", NetworkError, "closed the connection without a response"),
    ],
)
def test_what_is_there_is_named(
    ports: dict[str, int], scheme: str, there: str, kind: type[FlussError], told: str
) -> None:
    error = failure(scheme, ports[there])
    assert type(error) is kind
    assert error.details["sent"] is False
    assert error.retryable is (kind is NetworkError)
    where = f"127.0.0.1:{ports[there]}"
    assert told.format(where) in str(error)
    assert str(error).removeprefix("grpc://").startswith(where)


@pytest.mark.parametrize("scheme", ["grpc", "fluss"])
def test_a_silent_server_is_given_up_after_the_time_to_connect(
    ports: dict[str, int], scheme: str
) -> None:
    transport = open_transport(
        Address(scheme, "127.0.0.1", ports["silence"]), ClientConfig(connect_timeout_ms=300)
    )
    started = time.monotonic()
    with pytest.raises(NetworkError, match=r"accepted the connection, .* within 0\.[23]\d? s"):
        transport.call(
            Role.COORDINATOR, apis.LIST_DATABASES, pb.ListDatabasesRequest(), timeout_ms=60_000
        )
    assert time.monotonic() - started < 30
    transport.close()


def test_a_fluss_server_that_ignores_grpc_is_named_before_the_time_is_over() -> None:
    """As an Apache Fluss server does: it waits for the rest of what looks like a large frame."""
    released = threading.Event()

    def script(peer: Peer) -> None:
        start = peer.sock.recv(4, socket.MSG_PEEK)
        if start[:1] == b"\0":
            peer.greet()
        released.wait(60)

    with PeerServer(script) as server:
        started = time.monotonic()
        error = failure("grpc", server.port)
        released.set()
    assert type(error) is WrongProtocol
    assert f"use fluss://127.0.0.1:{server.port}" in str(error)
    assert time.monotonic() - started < 30


def test_an_http_server_that_ignores_a_frame_is_named_before_the_time_is_over() -> None:
    released = threading.Event()

    def script(peer: Peer) -> None:
        if peer.sock.recv(4) == b"GET ":
            peer.sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        released.wait(60)

    with PeerServer(script) as server:
        error = failure("fluss", server.port)
        released.set()
    assert type(error) is WrongProtocol
    assert "is an HTTP server" in str(error)


def test_a_slow_answer_of_the_right_server_is_waited_for() -> None:
    def slow(_: object) -> pb.ListDatabasesResponse:
        threading.Event().wait(PATIENCE_S + 0.2)
        return pb.ListDatabasesResponse(database_name=["shop"])

    with WireServer({(Role.COORDINATOR, apis.LIST_DATABASES): slow}) as server:
        transport = open_transport(Address("grpc", "127.0.0.1", server.port), ClientConfig())
        request = pb.ListDatabasesRequest()
        reply = transport.call(Role.COORDINATOR, apis.LIST_DATABASES, request, 60_000)
        assert reply == pb.ListDatabasesResponse(database_name=["shop"])
        transport.close()


@contextmanager
def proxy_of_both_http_versions(port: int) -> Iterator[int]:
    """Answers HTTP/1.1 itself and passes HTTP/2 on, as Envoy does on one port."""

    def copy(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while content := source.recv(1 << 16):
                target.sendall(content)
        for sock in (source, target):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def script(peer: Peer) -> None:
        if peer.sock.recv(4, socket.MSG_PEEK) == b"GET ":
            peer.sock.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            return
        with socket.create_connection(("127.0.0.1", port), 60) as server:
            back = threading.Thread(target=copy, args=(server, peer.sock), daemon=True)
            back.start()
            copy(peer.sock, server)
            back.join(60)

    with PeerServer(script) as proxy:
        yield proxy.port


@pytest.mark.slow
def test_a_slow_first_answer_behind_a_proxy_of_both_http_versions_is_waited_for() -> None:
    def slow(_: object) -> pb.ListDatabasesResponse:
        threading.Event().wait(PATIENCE_S + 0.5)
        return pb.ListDatabasesResponse(database_name=["shop"])

    handlers = {(Role.COORDINATOR, apis.LIST_DATABASES): slow}
    with WireServer(handlers) as server, proxy_of_both_http_versions(server.port) as port:
        transport = open_transport(Address("grpc", "127.0.0.1", port), ClientConfig())
        request = pb.ListDatabasesRequest()
        try:
            reply = transport.call(Role.COORDINATOR, apis.LIST_DATABASES, request, 60_000)
        finally:
            transport.close()
        assert reply == pb.ListDatabasesResponse(database_name=["shop"])
        assert len(server.calls) == 1


@pytest.mark.slow
def test_a_port_of_both_http_versions_is_right_for_grpc() -> None:
    with WireServer({}) as server, proxy_of_both_http_versions(server.port) as port:
        assert wrong_protocol("grpc", "127.0.0.1", port) is None
