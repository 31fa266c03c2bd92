"""The interface that gRPC and Fluss's native protocol share."""

from __future__ import annotations

from typing import Protocol

from google.protobuf.message import Message

from sluice.wire.apis import Api, Role

RESPONSE_OVERHEAD_BYTES = 1024 * 1024
"""How much larger a response with the largest batch may be than the request that wrote it."""


CONNECT_ATTEMPT_MS = 10_000
"""Longest time for one attempt to connect: a busy or distant server needs more than a second. The
deadline of the call counts too."""


class Transport(Protocol):
    """A connection to one server. Safe for use by many threads."""

    address: str

    def call(self, role: Role, api: Api, request: Message, timeout_ms: int) -> Message:
        """Sends one request and waits for its response, at most ``timeout_ms``.

        :raises FlussError: the server's own error; NetworkError if the server cannot be reached,
            WrongProtocol if the port speaks another protocol, RequestTimeOut if no response arrives
            in time, UnsupportedVersion if the server does not offer the call, RecordTooLarge if
            the message is over the limit.
        """

    def exchange(self, role: Role, api: Api, request: Message, timeout_ms: int) -> memoryview:
        """As ``call``, but returns the response's bytes, which the caller reads without a copy."""

    def close(self) -> None:
        """Ends the connection; calls under way fail with NetworkError."""
