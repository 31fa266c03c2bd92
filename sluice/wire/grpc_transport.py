"""The gRPC transport: one channel to one server, driven by the table of calls.

A failure of the status and a failure that a server put into the trailing metadata reach the caller
as the same typed exceptions as those inside a body (docs/fluss/rpc.md#error-codes).
"""

from __future__ import annotations

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
from sluice.wire import tls
from sluice.wire.apis import Api, Role
from sluice.wire.error_codes import ERROR_KEY
from sluice.wire.transport import ANSWER_OVERHEAD_BYTES

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
    NetworkError: "is the server up, and is this its address?",
    RecordTooLarge: "the limit is max_message_bytes of client and server",
    StorageBackpressure: "the server has too much to do, it may be tried again",
    UnsupportedVersion: "this server does not offer the call",
}

_TOO_LARGE = "larger than max"
"""gRPC's own words for a message over its limit. It has one status for that and for a server that
refuses calls because it has too many of them."""

_NOT_CONNECTED = "failed to connect to all addresses"
"""gRPC's own words for a request that never left this machine."""

_REFUSED = "Connection refused"
"""gRPC's own words where nobody listens."""

_TLS_PROBE_S = 10.0

CONNECT_ATTEMPT_MS = 10_000
"""A busy or distant server needs more than moments. The deadline of the call counts too."""


class GrpcTransport:
    """A gRPC channel to one server; connects at the first call. Safe for use by many threads."""

    def __init__(
        self,
        address: str,
        target: str,
        max_message_bytes: int,
        *,
        authorities: str | None = None,
        token: str = "",
    ) -> None:
        """Nothing is sent before the first call.

        :param target: ``HOST:PORT``, as gRPC wants it.
        :param authorities: for TLS: who may sign the server's certificate, as PEM; empty: those
            that gRPC brings along. None: no TLS.
        :param token: sent with each call as a bearer token.
        :raises ConfigurationError: the authorities are none, or the token cannot be sent.
        """
        self.address = address
        self._target = target
        self._max_message_bytes = max_message_bytes
        self._metadata = _bearer(token)
        self._plain = authorities is None
        self._answered = False
        options = _options(max_message_bytes)
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
                f"{api.name} of {self.address}: the answer ({len(answer)} bytes) cannot be parsed:"
                f" {error}"
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
            answer: bytes = method(
                payload, timeout=max(timeout_ms, 1) / 1000, metadata=self._metadata
            )
        except grpc.RpcError as error:
            raise self._failed(error, api, timeout_ms) from None
        except ValueError as error:  # what grpc raises for a channel that was closed
            raise NetworkError(
                f"{api.name} to {self.address}: the connection was closed", sent=False
            ) from error
        self._answered = True
        return answer

    def _failed(self, error: Any, api: Api, timeout_ms: int) -> FlussError:
        """The exception of a failed call. One that TLS is the cause of says so."""
        details = error.details() or ""
        if error.code() is grpc.StatusCode.UNAVAILABLE and _NOT_CONNECTED in details:
            why = tls.meaning(details)
            if why is None and self._plain and not self._answered and _REFUSED not in details:
                there = tls.speaks_tls(self._target, min(timeout_ms / 1000, _TLS_PROBE_S))
                why = tls.TLS_THERE if there else None
            if why is not None:
                return TlsError(f"{api.name} to {self.address}: {why}", sent=False)
        return _typed(error, api, self.address, timeout_ms)

    def close(self) -> None:
        self._channel.close()

    def _method(self, name: str) -> Any:
        with self._lock:
            found = self._methods.get(name)
            if found is None:
                try:
                    # Bytes in, bytes out: a message that cannot be parsed becomes our own error.
                    found = self._methods[name] = self._channel.unary_unary(name)
                except ValueError as error:
                    raise NetworkError(
                        f"{name} to {self.address}: the connection was closed", sent=False
                    ) from error
            return found


def _bearer(token: str) -> tuple[tuple[str, str], ...] | None:
    """:raises ConfigurationError: the token is no word of ASCII; it is not shown."""
    if not token:
        return None
    if not all("!" <= character <= "~" for character in token):
        raise ConfigurationError(
            "client.token has a blank, a line's end or a character beyond ASCII: give the token"
            " alone"
        )
    return (("authorization", f"Bearer {token}"),)


def _options(max_message_bytes: int) -> list[tuple[str, int]]:
    return [
        # Requests are checked in call(). An answer with the largest batch is a little larger than
        # the request was that brought it.
        ("grpc.max_send_message_length", -1),
        ("grpc.max_receive_message_length", max_message_bytes + ANSWER_OVERHEAD_BYTES),
        # Finds a peer that vanished without a word. Not more often: servers punish that, and calls
        # end by their deadline anyway.
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        # gRPC's own waits of up to 120 s would hide a server that is back after a restart.
        ("grpc.initial_reconnect_backoff_ms", 100),
        # What its name does not say: how long one attempt to connect may take, greetings included.
        ("grpc.min_reconnect_backoff_ms", CONNECT_ATTEMPT_MS),
        ("grpc.max_reconnect_backoff_ms", 2_000),
        # Retries are decided in one place, sluice.client.retry, which knows what is safe.
        ("grpc.enable_retries", 0),
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
        return RequestTimeOut(f"{where}: no answer within {timeout_ms} ms")
    text = f"{where}: {error.details() or error.code().name}"
    if cls in _HINT:
        text += f" ({_HINT[cls]})"
    details = {"sent": False} if _NOT_CONNECTED in (error.details() or "") else {}
    return cls(text, **details)
