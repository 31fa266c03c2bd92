"""Health checking of a gRPC listener (grpc.health.v1): Check and Watch, which need no token.

Nothing is sent while a lock is held, and each watch has a queue of its own: a client that leaves,
or does not read, stops nobody else.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2

from sluice.clock import Clock
from sluice.wire.grpc.calls import Receiver
from sluice.wire.listeners.admission import Admission

SERVICE_NAME = "grpc.health.v1.Health"

MESSAGES_MAX = 8
"""Most calls at once whose message has not arrived: it may have the largest size, too."""

MESSAGES_PER_PEER = 4

ANSWERS_MAX = 64
"""Most checks at once whose answer has not been read. They take no thread, and little memory."""

ANSWERS_PER_PEER = 16

WATCHES_MAX = 64
"""Most watches at once; each has a thread, which waits."""

WATCHES_PER_PEER = 8

MESSAGE_S = 2.0
"""Longest time until the message of a check or a watch has arrived, and an answer was read."""

SERVICE_BYTES_MAX = 1024
"""Largest message: the name of a service."""

_Response = health_pb2.HealthCheckResponse

_Changes = queue.SimpleQueue[int | None]
"""The statuses that a watch has yet to send; None ends it."""


class HealthService:
    """The status of each service. Safe for use by many threads."""

    def __init__(self, services: Iterable[str], clock: Clock, receiver: Receiver) -> None:
        """:param services: full names; they do not serve yet."""
        self._lock = threading.Lock()  # guards the next fields
        self._statuses = dict.fromkeys(("", *services), _Response.NOT_SERVING)
        self._watches: dict[_Changes, str] = {}
        self._ended = False
        self._receiver = receiver
        self.messages = Admission(
            "health messages", MESSAGES_MAX, MESSAGES_PER_PEER, clock, pending_s=MESSAGE_S
        )
        # Neither of these is ever settled. So the oldest can always make room.
        self.answers = Admission(
            "health checks", ANSWERS_MAX, ANSWERS_PER_PEER, clock, pending_s=MESSAGE_S
        )
        self.watches = Admission("watches", WATCHES_MAX, WATCHES_PER_PEER, clock)

    def handlers(self) -> dict[str, grpc.RpcMethodHandler]:
        """The handlers by name. Each reads its message itself, once it was admitted."""
        return {
            "Check": grpc.stream_unary_rpc_method_handler(self._check),
            "Watch": grpc.stream_stream_rpc_method_handler(self._watch),
        }

    def serve(self) -> None:
        """All services serve from now on."""
        self._set(_Response.SERVING)

    def end(self) -> None:
        """No service serves any more; each watch is told so and ends."""
        self._set(_Response.NOT_SERVING)
        with self._lock:
            self._ended = True
            for watch in self._watches:
                watch.put(None)

    def _set(self, status: int) -> None:
        with self._lock:
            self._statuses = dict.fromkeys(self._statuses, status)
            for watch, service in self._watches.items():
                if service in self._statuses:
                    watch.put(status)  # never waits

    def _check(self, messages: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        status = self._statuses.get(self._service(messages, context))
        if status is None:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
        self._receiver.admit(context, self.answers).release()  # the end of the call ends it
        return _response(status)

    def _service(self, messages: Iterator[bytes], context: grpc.ServicerContext) -> str:
        """The service that a message names. Its large message has a place only until then."""
        admitted = self._receiver.begin(context, self.messages)
        try:
            return _service(self._receiver.message(messages, context, admitted), context)
        finally:
            admitted.release()

    def _watch(self, messages: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        service = self._service(messages, context)
        admitted = self._receiver.admit(context, self.watches)
        changes: _Changes = queue.SimpleQueue()
        try:
            # On the thread that receives all calls, which must not wait.
            if not context.add_callback(lambda: changes.put(None)):
                return
            with self._lock:
                changes.put(self._statuses.get(service, _Response.SERVICE_UNKNOWN))
                if self._ended:
                    changes.put(None)
                self._watches[changes] = service
            shown: int | None = None
            while (status := changes.get()) is not None:
                if status != shown:
                    shown = status
                    admitted.expect_end(MESSAGE_S)
                    yield _response(status)
                    admitted.expect_end(None)  # the answer was read
        finally:
            with self._lock:
                self._watches.pop(changes, None)
            admitted.release()


def _service(payload: bytes, context: grpc.ServicerContext) -> str:
    if len(payload) > SERVICE_BYTES_MAX:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the message is too large for a name")
    try:
        return str(health_pb2.HealthCheckRequest.FromString(payload).service)
    except DecodeError:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the message is not a HealthCheckRequest")
        raise AssertionError("abort returned") from None  # pragma: no cover


def _response(status: int | None) -> bytes:
    return bytes(_Response(status=status).SerializeToString())
