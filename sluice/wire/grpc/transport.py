"""The gRPC transport: one channel to one server, driven by the table of calls.

A gRPC status, and an error that a server puts into the trailing metadata, reach the caller as the
same typed exceptions as errors inside a body (docs/fluss/rpc.md#error-codes).
"""

from __future__ import annotations

import queue
import threading
from typing import Any

import grpc
from google.protobuf.message import DecodeError, EncodeError, Message

from sluice.errors import (
    AuthenticateError,
    AuthorizationError,
    ConfigurationError,
    CorruptMessage,
    FlussError,
    NetworkError,
    RecordTooLarge,
    RequestTimeOut,
    StorageBackpressure,
    TlsError,
    UnknownServerError,
    UnsupportedVersion,
    from_code,
)
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Api, Role
from sluice.wire.endpoint_probe import PATIENCE_S, wrong_protocol
from sluice.wire.error_codes import ERROR_KEY
from sluice.wire.sockets import tcp, tls
from sluice.wire.transport import CONNECT_ATTEMPT_MS, RESPONSE_OVERHEAD_BYTES

_OF_STATUS: dict[Any, type[FlussError]] = {
    grpc.StatusCode.UNAVAILABLE: NetworkError,
    grpc.StatusCode.CANCELLED: NetworkError,
    grpc.StatusCode.DEADLINE_EXCEEDED: RequestTimeOut,
    grpc.StatusCode.UNIMPLEMENTED: UnsupportedVersion,
    grpc.StatusCode.RESOURCE_EXHAUSTED: StorageBackpressure,  # unless _TOO_LARGE
    grpc.StatusCode.UNAUTHENTICATED: AuthenticateError,
    grpc.StatusCode.PERMISSION_DENIED: AuthorizationError,
}

_HINT = {
    NetworkError: "is the server running, and is this its address?",
    RecordTooLarge: "the limit is max_message_bytes of client and server",
    StorageBackpressure: "the server is overloaded, try again later",
    UnsupportedVersion: "this server does not offer the call",
}

_STATE_S = 5.0
"""Longest time until gRPC has reported the state of its connection, which it knows at once."""

_TOO_LARGE = "larger than max"
"""gRPC's text for a message over its limit. The same status also means that a server refuses calls
because it has too many."""

_NOT_CONNECTED = "failed to connect to all addresses"
"""gRPC's text for a request that was not sent."""

_REFUSED = "Connection refused"
"""gRPC's text for a port that nothing listens on."""

_NOT_RESOLVED = ("DNS resolution failed", "errors resolving", "Domain name not found")
"""gRPC's texts for a host name without an address, by version."""

_SILENT = "before receiving SETTINGS frame"
"""gRPC's text for a server that accepts the connection and sends nothing."""

_NOT_ACCEPTED = ("attempt timed out", "Timeout occurred", "Connection timed out")
"""gRPC's texts for packets without a response."""

_HUNG_UP = ("Socket closed", "Connection reset")
"""gRPC's texts for a server that accepts the connection and closes it."""


class GrpcTransport:
    """A gRPC channel to one server; connects at the first call. Safe for use by many threads."""

    def __init__(
        self,
        address: str,
        host: str,
        port: int,
        max_message_bytes: int,
        *,
        authorities: str | None = None,
        token: str = "",
        attempt_ms: int = CONNECT_ATTEMPT_MS,
    ) -> None:
        """Nothing is sent before the first call.

        :param authorities: for TLS: certificates of the authorities that may sign the server's
            certificate, as PEM; empty: those that gRPC contains. None: no TLS.
        :param token: sent with each call as a bearer token.
        :param attempt_ms: longest time for one attempt to connect.
        :raises ConfigurationError: the authorities are not valid certificates, or the token
            cannot be sent.
        """
        self.address = address
        self._host, self._port = host, port
        self._attempt_ms = attempt_ms
        self._max_message_bytes = max_message_bytes
        self._metadata = _bearer(token)
        self._plain = authorities is None
        self._answered = False
        options, target = _options(max_message_bytes, attempt_ms), tcp.target(host, port)
        if authorities is None:
            self._channel = grpc.insecure_channel(target, options=options)
        else:
            credentials = tls.channel_credentials(authorities)
            self._channel = grpc.secure_channel(target, credentials, options=options)
        self._lock = threading.Lock()  # guards _methods
        self._methods: dict[str, Any] = {}

    def call(self, role: Role, api: Api, request: Message, timeout_ms: int) -> Message:
        answer = self._exchange(role, api, request, timeout_ms)
        try:
            return api.response.FromString(answer)
        except DecodeError as error:
            raise CorruptMessage(
                f"{api.name} of {self.address}: the response ({len(answer)} bytes) cannot be"
                f" parsed: {error}"
            ) from error

    def exchange(self, role: Role, api: Api, request: Message, timeout_ms: int) -> memoryview:
        return memoryview(self._exchange(role, api, request, timeout_ms))

    def _exchange(self, role: Role, api: Api, request: Message, timeout_ms: int) -> bytes:
        method = self._method(api.grpc_method(role))
        try:
            payload = request.SerializeToString()
        except EncodeError as error:
            raise CorruptMessage(f"{api.name}: request cannot be encoded: {error}") from error
        if len(payload) > self._max_message_bytes:
            raise RecordTooLarge(
                f"{api.name} to {self.address}: the request has {len(payload):,} bytes, the limit"
                f" client.max_message_bytes is {self._max_message_bytes:,}"
            )
        try:
            answer: bytes = self._sent(method, payload, max(timeout_ms, 1) / 1000)
        except grpc.RpcError as error:
            raise self._failed(error, api, timeout_ms) from None
        except grpc.FutureCancelledError:  # close() while the first call was under way
            raise NetworkError(f"{api.name} to {self.address}: the connection was closed") from None
        except ValueError as error:  # what grpc raises for a channel that was closed
            raise NetworkError(
                f"{api.name} to {self.address}: the connection was closed", sent=False
            ) from error
        self._answered = True
        return answer

    def _sent(self, method: Any, payload: bytes, timeout_s: float) -> bytes:
        """The response's bytes. If a first call waits long for a connection, the port is probed.

        :raises grpc.RpcError: the call failed.
        :raises NetworkError: the port speaks another protocol.
        """
        if self._answered or timeout_s <= PATIENCE_S:
            answer: bytes = method(payload, timeout=timeout_s, metadata=self._metadata)
            return answer
        call = method.future(payload, timeout=timeout_s, metadata=self._metadata)
        try:
            answer = call.result(timeout=PATIENCE_S)
        except grpc.FutureTimeoutError:
            if not self._answered and not self._is_connected():
                wrong = self._wrong_protocol()
                # A call that is done has its own error. Where there is a connection, it was sent.
                if wrong is not None and not call.done() and not self._is_connected():
                    raise wrong from None
            answer = call.result()
        finally:
            call.cancel()  # has no effect after a response
        return answer

    def _is_connected(self) -> bool:
        """Whether the server has sent its HTTP/2 settings, so that calls are sent to it."""
        states: queue.SimpleQueue[grpc.ChannelConnectivity] = queue.SimpleQueue()
        report = states.put
        self._channel.subscribe(report)
        try:
            return states.get(timeout=_STATE_S) is grpc.ChannelConnectivity.READY
        except queue.Empty:
            return False
        finally:
            self._channel.unsubscribe(report)

    def _wrong_protocol(self) -> NetworkError | None:
        wrong = wrong_protocol("grpc", self._host, self._port)
        if isinstance(wrong, TlsError) and not self._plain:
            return None  # gRPC itself reports the error of a certificate
        return wrong

    def _failed(self, error: Any, api: Api, timeout_ms: int) -> FlussError:
        """The exception of a failed call. Without a connection, it names what the port speaks."""
        details = error.details() or ""
        if error.code() is not grpc.StatusCode.UNAVAILABLE:
            return _typed(error, api, self.address, timeout_ms)
        if any(words in details for words in _NOT_RESOLVED):
            return tcp.unknown_host(self._host)
        if _NOT_CONNECTED not in details:
            return _typed(error, api, self.address, timeout_ms)
        if _REFUSED in details:
            return tcp.unreachable(self._host, self._port, ConnectionRefusedError(), 0)
        if not self._answered:
            wrong = None if _SILENT in details else self._wrong_protocol()
            if wrong is not None:
                return wrong
        why = tls.handshake_advice(details)
        if why is not None:
            return TlsError(f"{self.address}: {why}", sent=False)
        where, attempt_s = tcp.target(self._host, self._port), self._attempt_ms / 1000
        if _SILENT in details:
            return tcp.silent(where, attempt_s)
        if any(words in details for words in _NOT_ACCEPTED):
            return tcp.not_accepted(where, attempt_s)
        if any(words in details for words in _HUNG_UP):
            return tcp.hung_up(where)
        return _typed(error, api, self.address, timeout_ms)

    def close(self) -> None:
        self._channel.close()

    def _method(self, name: str) -> Any:
        with self._lock:
            found = self._methods.get(name)
            if found is None:
                try:
                    # Bytes in, bytes out: parsing, and its errors, are up to Sluice.
                    found = self._methods[name] = self._channel.unary_unary(name)
                except ValueError as error:
                    raise NetworkError(
                        f"{name} to {self.address}: the connection was closed", sent=False
                    ) from error
            return found


def _bearer(token: str) -> tuple[tuple[str, str], ...] | None:
    """:raises ConfigurationError: the token has characters that a header cannot carry."""
    if not token:
        return None
    if not all("!" <= character <= "~" for character in token):
        raise ConfigurationError(
            "client.token has a space, a line break or a character beyond ASCII: set it to the"
            " token alone"
        )
    return (("authorization", f"Bearer {token}"),)


def _options(max_message_bytes: int, attempt_ms: int) -> list[tuple[str, int]]:
    return [
        # Requests are checked in call(). A response with the largest batch is a little larger than
        # the request that wrote it.
        ("grpc.max_send_message_length", -1),
        ("grpc.max_receive_message_length", max_message_bytes + RESPONSE_OVERHEAD_BYTES),
        # Detects a peer that no longer exists. Servers disconnect clients that check more often,
        # and calls end by their deadline anyway.
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        # gRPC's own waits of up to 120 s would hide a server that is back after a restart.
        ("grpc.initial_reconnect_backoff_ms", 100),
        # Despite its name: the longest time for one attempt to connect, with handshakes.
        ("grpc.min_reconnect_backoff_ms", attempt_ms),
        ("grpc.max_reconnect_backoff_ms", 2_000),
        # gRPC itself sends a call again only if it surely reached no handler: the server closed
        # the connection in an orderly way. Other retries are up to sluice.client.connection.retry.
        ("grpc.enable_retries", 1),
        ("grpc.service_config_disable_resolution", 1),  # a service could ask for more retries
        ("grpc.use_local_subchannel_pool", 1),
    ]


def _typed(error: Any, api: Api, address: str, timeout_ms: int) -> FlussError:
    """The exception of a failed call."""
    for key, value in error.trailing_metadata() or ():
        if key == ERROR_KEY:
            try:
                answer = pb.ErrorResponse.FromString(value)
            except DecodeError:
                break
            return from_code(answer.error_code, answer.error_message)
    cls = _OF_STATUS.get(error.code(), UnknownServerError)
    if cls is StorageBackpressure and _TOO_LARGE in (error.details() or ""):
        cls = RecordTooLarge
    where = f"{api.name} to {address}"
    if cls is RequestTimeOut:
        return RequestTimeOut(f"{where}: no response within {timeout_ms} ms")
    text = f"{where}: {error.details() or error.code().name}"
    if cls in _HINT:
        text += f" ({_HINT[cls]})"
    details = {"sent": False} if _NOT_CONNECTED in (error.details() or "") else {}
    return cls(text, **details)
