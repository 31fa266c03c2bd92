"""The native transport: Fluss's own protocol over one TCP connection to one server.

The first request on a connection is ApiVersions. Its response lists the calls that the server
offers, their versions, and the type of the server (docs/fluss/rpc.md#connection-start). Apache
Fluss does not answer a call that it does not support, so only offered calls are sent.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from google.protobuf.message import EncodeError, Message

from sluice import __version__
from sluice.errors import (
    CorruptMessage,
    FlussError,
    NetworkError,
    NotCoordinatorLeader,
    NotLeaderOrFollower,
    RecordTooLarge,
    RequestTimeOut,
    UnsupportedVersion,
    WrongProtocol,
)
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Api, Role
from sluice.wire.endpoint_probe import PATIENCE_S, wrong_protocol
from sluice.wire.messages.frames import ResponseType, parse_body, parse_error
from sluice.wire.native.link import Link
from sluice.wire.native.sasl import AUTHENTICATE, Credentials, authenticate
from sluice.wire.sockets.tcp import connect, hung_up, silent, target
from sluice.wire.transport import CONNECT_ATTEMPT_MS, RESPONSE_OVERHEAD_BYTES

IDLE_MS = 4 * 60_000
"""A connection unused for this long is closed, well before a server closes it (10 minutes). So no
request is sent over a connection that the server is about to close."""


@dataclass(frozen=True, slots=True)
class _Server:
    """A connection, and its server's response to ApiVersions."""

    link: Link
    hello: memoryview
    role: Role | None
    offered: dict[int, tuple[int, int]]


class NativeTransport:
    """A connection to one server; made at the first call, and again when it has ended.

    Safe for use by many threads, whose requests are in flight together.
    """

    def __init__(
        self,
        address: str,
        host: str,
        port: int,
        max_message_bytes: int,
        *,
        credentials: Credentials | None = None,
        idle_ms: int = IDLE_MS,
        attempt_ms: int = CONNECT_ATTEMPT_MS,
    ) -> None:
        """:param attempt_ms: longest time for one attempt to connect."""
        self.address = address
        self._attempt_s = attempt_ms / 1000
        self._host, self._port = host, port
        self._max_message_bytes = max_message_bytes
        self._credentials = credentials
        self._idle_s = idle_ms / 1000
        self._connecting = threading.Lock()  # held while connecting
        self._lock = threading.Lock()  # guards the rest
        self._closed = False
        self._server: _Server | None = None
        self._greeted = False  # a Fluss server has answered here before

    def call(self, role: Role, api: Api, request: Message, timeout_ms: int) -> Message:
        answer = self.exchange(role, api, request, timeout_ms)
        return parse_body(api.response, answer, f"{api.name} of {self.address}: the response")

    def exchange(self, role: Role, api: Api, request: Message, timeout_ms: int) -> memoryview:
        deadline = time.monotonic() + max(timeout_ms, 1) / 1000
        body = self._encoded(api, request)
        try:
            while True:
                server, fresh = self._connected(deadline)
                self._check_role(server, role)
                if api is apis.API_VERSIONS:
                    return server.hello
                try:
                    version = self._version(server, api, deadline, fresh=fresh)
                    kind, answer = server.link.exchange(api.key, version, body, deadline)
                    break
                except NetworkError as error:
                    # The connection ended unnoticed and nothing was sent: try a new connection.
                    if fresh or error.details.get("sent") is not False:
                        raise
        except FlussError as error:
            raise self._located(error, api, timeout_ms) from error.__cause__
        return _success(kind, answer)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            server, self._server = self._server, None
        if server is not None:
            server.link.close(NetworkError("the client was closed"))

    def __del__(self) -> None:
        if hasattr(self, "_server"):
            self.close()

    def _encoded(self, api: Api, request: Message) -> bytes:
        try:
            body: bytes = request.SerializeToString()
        except EncodeError as error:
            raise CorruptMessage(f"{api.name}: request cannot be encoded: {error}") from error
        if len(body) > self._max_message_bytes:
            raise RecordTooLarge(
                f"{api.name} to {self.address}: the request has {len(body):,} bytes, the limit"
                f" client.max_message_bytes is {self._max_message_bytes:,}"
            )
        return body

    def _connected(self, deadline: float) -> tuple[_Server, bool]:
        """The server, and whether the connection to it was just made."""
        found = self._usable()
        if found is not None:
            return found, False
        if not self._connecting.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise RequestTimeOut("no connection in time", sent=False)
        try:
            found = self._usable()
            if found is not None:
                return found, False
            try:
                server = self._open(deadline)
            except FlussError as error:
                error.details["sent"] = False  # the request that this connection was for
                raise
            with self._lock:
                if not self._closed:
                    self._server = server
                    return server, True
            server.link.close(NetworkError("the client was closed"))
            raise NetworkError("the connection was closed", sent=False)
        finally:
            self._connecting.release()

    def _version(self, server: _Server, api: Api, deadline: float, *, fresh: bool) -> int:
        """The version to send. If the server offered none before, asks it again what it offers.

        Another server may have replaced it before this connection noticed.

        :raises UnsupportedVersion: the server still offers none.
        """
        try:
            return _version(server, api)
        except UnsupportedVersion:
            if fresh:
                raise
        try:
            greeted = _greet(server.link, deadline)
        except NetworkError as error:
            error.details["sent"] = False  # the request that this was for
            raise
        with self._lock:
            if self._server is server:
                self._server = greeted
        return _version(greeted, api)

    def _usable(self) -> _Server | None:
        with self._lock:
            if self._closed:
                raise NetworkError("the connection was closed", sent=False)
            server = self._server
        return server if server is not None and server.link.usable else None

    def _open(self, deadline: float) -> _Server:
        deadline = min(deadline, time.monotonic() + self._attempt_s)
        link = Link(
            self.address,
            connect(self._host, self._port, deadline),
            self._max_message_bytes + RESPONSE_OVERHEAD_BYTES,
            self._idle_s,
        )
        try:
            server = self._greet_or_probe(link, deadline)
            if self._credentials is not None:
                _authenticate(self._credentials, server, deadline)
            return server
        except BaseException:
            link.close(NetworkError("the connection could not be established"))
            raise

    def _greet_or_probe(self, link: Link, deadline: float) -> _Server:
        """Greets a new connection's server; the first failing or slow greeting probes the port.

        :raises WrongProtocol: the port speaks another protocol.
        """

        def probe() -> None:
            wrong = self._wrong_protocol()
            if wrong is not None:
                link.close(wrong)  # ends the greeting with this error

        patience = threading.Timer(PATIENCE_S, probe)
        patience.daemon = True
        started = time.monotonic()
        if not self._greeted:
            patience.start()
        try:
            server = _greet(link, deadline)
            self._greeted = True
            return server
        except WrongProtocol:
            raise
        except RequestTimeOut as error:
            waited_s = time.monotonic() - started
            raise silent(target(self._host, self._port), waited_s) from error
        except NetworkError as error:
            if not error.details.get("hung_up"):
                raise  # the server's own error
            hung = hung_up(target(self._host, self._port))
            raise self._wrong_protocol() or hung from error
        except (CorruptMessage, RecordTooLarge) as error:
            raise self._wrong_protocol() or error from error
        finally:
            patience.cancel()

    def _wrong_protocol(self) -> NetworkError | None:
        return None if self._greeted else wrong_protocol("fluss", self._host, self._port)

    def _check_role(self, server: _Server, role: Role) -> None:
        if server.role is None or server.role is role:
            return
        # Both mean that another server listens there now: look up again which one has this role.
        stale = NotCoordinatorLeader if role is Role.COORDINATOR else NotLeaderOrFollower
        raise stale(
            f"this is a {server.role.name.lower()} server, not a {role.name.lower()} server",
            sent=False,
        )

    def _located(self, error: FlussError, api: Api, timeout_ms: int) -> FlussError:
        """The error with the call and the server in its text, unless the text names the server."""
        text = error.message
        if target(self._host, self._port) in text or error.details.get("no_listener"):
            return error
        if type(error) is RequestTimeOut:
            text = f"no response within {timeout_ms} ms: {text}"
        where = f"{api.name} to {self.address}"
        return type(error)(f"{where}: {text}" if text.strip() else where, **error.details)


def _greet(link: Link, deadline: float) -> _Server:
    """Requests the versions and the type of a new connection's server."""
    request = pb.ApiVersionsRequest(
        client_software_name="sluice", client_software_version=__version__
    )
    body = request.SerializeToString()
    hello = _success(*link.exchange(apis.API_VERSIONS.key, 0, body, deadline))
    reply = parse_body(pb.ApiVersionsResponse, hello, "the response to ApiVersions")
    offered = {v.api_key: (v.min_version, v.max_version) for v in reply.api_versions}
    known = {role.value: role for role in Role}
    return _Server(link, hello, known.get(reply.server_type), offered)


def _authenticate(credentials: Credentials, server: _Server, deadline: float) -> None:
    def exchange(request: pb.AuthenticateRequest) -> pb.AuthenticateResponse:
        body = request.SerializeToString()
        answer = _success(*server.link.exchange(AUTHENTICATE.key, 0, body, deadline))
        return parse_body(pb.AuthenticateResponse, answer, "the response to Authenticate")

    def sleep(seconds: float) -> None:
        if time.monotonic() + seconds > deadline:
            raise RequestTimeOut("the server requests the login again and again", sent=False)
        time.sleep(seconds)

    authenticate(credentials, exchange, sleep)


def _success(kind: ResponseType, answer: memoryview) -> memoryview:
    """The response's message. :raises FlussError: the server answered with an error."""
    if kind is ResponseType.ERROR:
        raise parse_error(answer)
    return answer


def _version(server: _Server, api: Api) -> int:
    """The highest version that both support.

    :raises UnsupportedVersion: if there is none.
    """
    offered = server.offered.get(api.key)
    if offered is None:
        raise UnsupportedVersion(
            f"the server does not offer this call (api key {api.key})", sent=False
        )
    lowest, highest = offered
    if lowest > api.max_version or highest < 0:
        raise UnsupportedVersion(
            f"the server offers versions {lowest} to {highest} of this call (api key {api.key}),"
            f" this client 0 to {api.max_version}",
            sent=False,
        )
    return min(api.max_version, highest)
