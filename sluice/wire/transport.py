"""The one small interface behind which gRPC and Fluss's native protocol stand."""

from __future__ import annotations

from typing import Protocol

from google.protobuf.message import Message

from sluice.wire.apis import Api, Role

ANSWER_OVERHEAD_BYTES = 1024 * 1024
"""How much larger an answer with the largest batch may be than the request that brought it."""


class Transport(Protocol):
    """A connection to one server. Safe for use by many threads."""

    address: str

    def call(self, role: Role, api: Api, request: Message, timeout_ms: int) -> Message:
        """Sends one request and waits for its answer, at most ``timeout_ms``.

        :raises FlussError: the server's error whatever way it came (NetworkError if it cannot be
            reached, RequestTimeOut if it does not answer in time, UnsupportedVersion if it does
            not offer the call, RecordTooLarge if the message is over the limit).
        """

    def exchange(self, role: Role, api: Api, request: Message, timeout_ms: int) -> memoryview:
        """As ``call``, but gives the answer's bytes, for who reads them without a copy."""

    def close(self) -> None:
        """Ends the connection; calls under way fail with NetworkError."""
