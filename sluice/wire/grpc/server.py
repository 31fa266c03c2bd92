"""The gRPC listener of a server: puts handlers behind the calls of :mod:`sluice.wire.apis`.

``grpc_calls`` serves the calls, ``grpc_health`` answers health checks.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import grpc
import structlog
from grpc_reflection.v1alpha import reflection, reflection_pb2

from sluice.clock import Clock, SystemClock
from sluice.errors import ConfigurationError
from sluice.wire import fluss_services_pb2
from sluice.wire.apis import SERVICE
from sluice.wire.grpc import health as grpc_health
from sluice.wire.grpc.calls import ApiCalls, Receiver
from sluice.wire.grpc.connections import Connections
from sluice.wire.grpc.health import HealthService
from sluice.wire.listeners.admission import Admission
from sluice.wire.listeners.handlers import Handlers
from sluice.wire.listeners.refusals import RefusalLog
from sluice.wire.listeners.tokens import UsersFile
from sluice.wire.sockets.tls import ServerTls
from sluice.wire.transport import RESPONSE_OVERHEAD_BYTES

CALLS_PER_WORKER = 4
"""Most calls at once for each worker, those included whose messages have not arrived: a request is
in memory as it arrives. Half of them may be of one peer. Further ones are refused unread, with
RESOURCE_EXHAUSTED."""

STREAMS_MAX = 128
"""Most calls at once on one connection: further calls wait at the client."""

SPARE_THREADS = 64
"""Threads that refuse calls."""

SAFE_S = 1.0
"""Time in which the message of a call may arrive before the call may have to make room."""

KEPT_S = 15.0
"""The same for a call whose host and user have no more calls than the new one's: on a slow link a
running upload is worth more than one that has yet to begin."""

TICK_S = 0.5
"""How often late calls, and peers with too many connections, are looked for."""

CANCELLED_S = 2.0
"""Time for calls to end that were cancelled at a stop."""

_log = structlog.get_logger("sluice.grpc")


@dataclass(frozen=True, slots=True)
class GrpcLimits:
    """What all clients together may use of a gRPC listener."""

    max_message_bytes: int
    """Largest request."""
    max_workers: int
    """Calls that are served at once."""
    max_connections: int = 1024
    """Further connections are closed at once. One peer keeps half as many."""
    receive_s: float = 60.0
    """Time for the message of a call to arrive."""
    age_s: float = 600.0
    """A connection takes calls for about this long; it is closed once they have ended."""
    handshake_s: float = 10.0
    """Time for a new connection to do its handshakes."""


class GrpcServer:
    """A gRPC server over handlers. Start once, stop once."""

    def __init__(
        self,
        handlers: Handlers,
        host: str,
        port: int,
        *,
        limits: GrpcLimits,
        tls: ServerTls | None = None,
        tokens: UsersFile | None = None,
        clock: Clock | None = None,
    ) -> None:
        """:param tokens: the users whose calls are answered; None: all callers."""
        self._tls = tls
        self._address = f"{f'[{host}]' if ':' in host else host}:{port}"
        clock = clock or SystemClock()
        most = CALLS_PER_WORKER * limits.max_workers
        self._refusals = RefusalLog(_log, clock)
        receiver = Receiver(self._refusals)
        self._connections = Connections(
            limits.max_connections, limits.handshake_s, clock, self._refusals
        )
        self._port = port
        self._calls = Admission(
            "calls",
            most,
            most // 2,
            clock,
            pending_s=limits.receive_s,
            safe_s=SAFE_S,
            kept_s=KEPT_S,
        )
        services = [SERVICE[role] for role in handlers]
        assert all(
            name.removeprefix("fluss.") in fluss_services_pb2.DESCRIPTOR.services_by_name
            for name in services
        )
        self._health = HealthService(services, clock, receiver)
        self._admissions = (
            self._calls, self._health.messages, self._health.answers, self._health.watches
        )  # fmt: skip
        threads = sum(admission.most for admission in self._admissions) + SPARE_THREADS
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="grpc")
        self._server = grpc.server(
            self._pool, maximum_concurrent_rpcs=threads, options=_options(limits)
        )
        self._api_calls = api_calls = ApiCalls(
            self._calls, receiver, limits.max_workers, tokens, self._connections.used
        )
        methods = {SERVICE[role]: api_calls.handlers(calls) for role, calls in handlers.items()}
        methods[grpc_health.SERVICE_NAME] = self._health.handlers()
        methods[reflection.SERVICE_NAME] = _reflection([*methods], api_calls)
        self._server.add_generic_rpc_handlers(
            tuple(
                grpc.method_handlers_generic_handler(service, named)
                for service, named in methods.items()
            )
        )
        if tokens is not None:
            self._server.add_generic_rpc_handlers((api_calls.not_offered(),))
        self._stopping = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="grpc-late-calls", daemon=True)

    def start(self) -> int:
        """Binds the port and starts to serve; returns the port that was bound.

        :raises ConfigurationError: the address cannot be bound.
        """
        try:
            if self._tls is None:
                port = self._server.add_insecure_port(self._address)
            else:
                port = self._server.add_secure_port(self._address, self._tls.credentials())
        except RuntimeError as error:
            what = str(error).split("; set GRPC_VERBOSITY")[0]  # no help for a used port
            raise ConfigurationError(
                f"cannot listen on grpc://{self._address}: {what}; choose another address with"
                f" --listen grpc://{self._address.rpartition(':')[0]}:PORT"
            ) from error
        self._server.start()
        self._port = int(port)
        self._ticker.start()
        self._health.serve()
        return self._port

    def stop(self, grace_s: float, handlers_s: float | None = None) -> bool:
        """Accepts no new calls; ends running calls after the grace period.

        :param handlers_s: how long to wait for handlers that still run then; None: until they end.
        :return: whether all handlers have ended.
        """
        self._health.end()
        self._server.stop(grace_s).wait(grace_s + CANCELLED_S)
        self._stopping.set()
        if self._ticker.ident is not None:
            self._ticker.join()
        ended = self._calls.wait_empty(handlers_s)
        self._pool.shutdown(wait=ended)
        self._refusals.flush()
        return ended

    def _tick(self) -> None:
        while not self._stopping.wait(TICK_S):
            try:
                for admission in self._admissions:
                    admission.end_late()
                self._connections.end_surplus(self._port, self._calls.clients())
            except Exception:  # keep looking, and log it: nothing else would report it
                self._refusals.warning(
                    "late calls and connections were not looked for; will be retried",
                    exc_info=True,
                )


def _options(limits: GrpcLimits) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", limits.max_message_bytes),
        ("grpc.max_send_message_length", limits.max_message_bytes + RESPONSE_OVERHEAD_BYTES),
        # A small compressed message could be as large as the limit in memory. 1: none but identity.
        ("grpc.compression_enabled_algorithms_bitset", 1),
        ("grpc.max_concurrent_streams", STREAMS_MAX),
        ("grpc.max_allowed_incoming_connections", limits.max_connections),
        ("grpc.server_handshake_timeout_ms", round(limits.handshake_s * 1000)),
        # Not max_connection_idle_ms: that closes without a word, under a call that just arrived.
        # A client that is told first sends no call that is lost, and makes another connection.
        ("grpc.max_connection_age_ms", round(limits.age_s * 1000)),
        # Finds clients that are gone without a word, and ends their calls.
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        # Two servers on one port would share its calls silently.
        ("grpc.so_reuseport", 0),
    ]


def _reflection(services: list[str], calls: ApiCalls) -> dict[str, grpc.RpcMethodHandler]:
    servicer = reflection.ReflectionServicer([*services, reflection.SERVICE_NAME])
    handler = grpc.stream_stream_rpc_method_handler(
        calls.streamed(servicer.ServerReflectionInfo),
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    return {"ServerReflectionInfo": handler}
