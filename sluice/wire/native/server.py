"""The native listener of a server: Fluss's frames over TCP, in front of the handlers.

See docs/fluss/rpc.md#frames and docs/fluss/rpc.md#connection-start

Each role has its own port, because Fluss's clients request the type of a server and disconnect from
one of another type. One thread reads and writes all sockets; handlers run on a pool. The responses
of a connection keep the order of its requests, as in Fluss and as idempotent writers need it. Only
fetches, which may wait, are answered out of order.

Connections are bounded, in all and of one peer (see ``admission``). Hosts take turns for the start
of theirs.
Memory is bounded: each connection has a limit of unanswered requests, and all connections together
have a limit of bytes. The server stops reading from a connection that reaches a limit, until it has
sent responses. If other connections wait for memory, it closes a connection that transfers too
slowly (see ``memory``).
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import structlog

from sluice.clock import Clock, SystemClock
from sluice.errors import ConfigurationError, NetworkError, StorageBackpressure
from sluice.wire.apis import Role
from sluice.wire.listeners.admission import Admission, peer_of
from sluice.wire.listeners.fair_turns import Turns
from sluice.wire.listeners.handlers import Handlers
from sluice.wire.listeners.refusals import RefusalLog
from sluice.wire.listeners.tokens import UsersFile
from sluice.wire.native.connection import Connection, send_failure
from sluice.wire.native.memory import Limits
from sluice.wire.native.sasl import Login
from sluice.wire.native.workers import SharedState

ACCEPT_PAUSE_S = 0.1
"""How long to wait when the system has no more file handles."""

ACCEPTS_AT_ONCE = 64
"""Most clients that are accepted before others are served again."""

STARTS_AT_ONCE = 8
"""Most clients that are started before others are served again."""

LOGIN_S = 30.0
"""Longest time from the start of a connection until its client has logged in."""

TICK_S = 0.5
"""How often connections whose login is late are closed."""

_log = structlog.get_logger("sluice.native")


@dataclass(slots=True)
class _Listener:
    """One port."""

    role: Role
    socket: socket.socket


class _Arrived(NamedTuple):
    """A client that was accepted and waits for its turn."""

    socket: socket.socket
    role: Role
    host: str
    port: int


class NativeServer:
    """Native ports over handlers. Start once, stop once.

    Everything after ``start`` happens on the loop's own thread; ``stop`` talks to it by the loop.
    """

    def __init__(
        self,
        handlers: Handlers,
        host: str,
        ports: Mapping[Role, int],
        *,
        max_workers: int,
        limits: Limits,
        tokens: UsersFile | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Binds nothing yet.

        :param ports: where each role listens; 0 takes a free port.
        :param tokens: the users, who must log in by SASL PLAIN. None: no login is required.
        """
        self._handlers = handlers
        self._host = host
        self._ports = ports
        self._limits = limits
        self._tokens = tokens
        self._pool = ThreadPoolExecutor(max_workers, thread_name_prefix="native")
        clock = clock or SystemClock()
        self._refusals = RefusalLog(_log, clock)
        most = limits.max_connections
        self._admission = Admission("connections", most, most // 2, clock, pending_s=LOGIN_S)
        self._shared = SharedState(self._pool, max_workers, limits, self._refusals)
        self._listeners: list[_Listener] = []
        self._loop: asyncio.AbstractEventLoop
        self._thread = threading.Thread(target=self._run, name="native-loop", daemon=True)
        self._connections: dict[asyncio.Task[None], Connection] = {}
        self._arrived = Turns[_Arrived]()
        self._arrived_max = max(most // 2, ACCEPTS_AT_ONCE)
        self._starting = False

    def start(self) -> Mapping[Role, int]:
        """Binds the ports and starts to serve; returns the ports that were bound.

        :raises ConfigurationError: an address cannot be bound; nothing is bound then.
        """
        try:
            for role, port in self._ports.items():
                self._listeners.append(_Listener(role, bind(self._host, port, role)))
        except BaseException:
            for listener in self._listeners:
                listener.socket.close()
            raise
        self._loop = asyncio.new_event_loop()
        self._thread.start()
        return {listener.role: listener.socket.getsockname()[1] for listener in self._listeners}

    def stop(self, grace_s: float, handlers_s: float | None = None) -> bool:
        """Accepts no new requests; closes connections after their responses or the grace period.

        :param handlers_s: how long to wait for handlers that still run then; None: until they end.
        :return: whether all handlers have ended.
        """
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._end(grace_s), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        ended = self._shared.wait_for_handlers(handlers_s)
        self._pool.shutdown(wait=ended)
        self._refusals.flush()
        return ended

    # -- on the loop's thread

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        for listener in self._listeners:
            self._listen_to(listener)
        if self._tokens is not None:
            self._close_late()
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def _listen_to(self, listener: _Listener) -> None:
        if listener.socket.fileno() >= 0:
            self._loop.add_reader(listener.socket, self._accept, listener)

    def _close_late(self) -> None:
        self._admission.end_late()
        self._loop.call_later(TICK_S, self._close_late)

    def _accept(self, listener: _Listener) -> None:
        """Accepts waiting clients. Their hosts then take turns: accepting costs much less.

        A callback, not a task: no client is accepted and then forgotten while listeners close.
        """
        for _ in range(ACCEPTS_AT_ONCE):
            try:
                peer, address = listener.socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                break
            except OSError as error:
                self._refusals.warning(
                    "cannot accept a connection", role=listener.role.name, error=str(error)
                )
                self._loop.remove_reader(listener.socket)
                self._loop.call_later(ACCEPT_PAUSE_S, self._listen_to, listener)
                break
            peer.setblocking(False)
            if _has_left(peer):
                peer.close()
                continue
            self._arrived.add(peer_of(address[0]), _Arrived(peer, listener.role, *address[:2]))
            if len(self._arrived) > self._arrived_max:
                self._arrived.drop_one().socket.close()
                self._refusals.warning("connection refused: too many wait", peer=address[0])
        if not self._starting:
            self._start_some()

    def _start_some(self) -> None:
        for _ in range(min(len(self._arrived), STARTS_AT_ONCE)):
            self._take(self._arrived.next())
        self._starting = bool(self._arrived)
        if self._starting:
            self._loop.call_soon(self._start_some)

    def _take(self, arrived: _Arrived) -> None:
        """Starts to serve a client."""
        peer, role, host = arrived.socket, arrived.role, arrived.host
        with suppress(OSError):
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        login = None if self._tokens is None else Login(self._tokens)
        name = f"{host}:{arrived.port}"
        connection = Connection(peer, name, role, self._handlers[role], self._shared, login)
        task = self._loop.create_task(connection.run())
        try:
            admitted = self._admission.admit(peer_of(host), task.cancel)
        except StorageBackpressure as error:
            task.cancel()  # before it has begun
            self._refusals.warning("connection refused", peer=name, error=str(error))
            # Retried by all clients; those of Fluss 0.9.1 do not know the code of the caught error.
            send_failure(peer, NetworkError(str(error)))
            peer.close()
            return
        if login is None:
            admitted.settle()
        else:
            connection.on_login(admitted.settle)
        self._connections[task] = connection

        def ended(done: asyncio.Task[None]) -> None:
            del self._connections[done]
            admitted.release()
            if admitted.dropped:
                self._refusals.warning("connection closed: it has not logged in", peer=name)

        task.add_done_callback(ended)

    async def _end(self, grace_s: float) -> None:
        self._close_listeners()
        tasks = list(self._connections)
        for connection in self._connections.values():
            connection.end()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=max(grace_s, 0))
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            # A socket that the loop waits for must leave the loop before it is closed.
            self._loop.remove_reader(listener.socket)
            listener.socket.close()
        while self._arrived:
            self._arrived.next().socket.close()


def _has_left(peer: socket.socket) -> bool:
    """Whether a client has closed its connection and sent nothing."""
    try:
        return not peer.recv(1, socket.MSG_PEEK)
    except (BlockingIOError, InterruptedError):
        return False
    except OSError:
        return True


def not_listening(scheme: str, host: str, port: int, role: str, reason: str) -> str:
    """The message about an address that cannot be bound, with the option that changes it."""
    place = f"{scheme}://{f'[{host}]' if ':' in host else host}"
    part = f" ({role} server)" if role else ""
    return (
        f"cannot listen on {place}:{port}{part}: {reason};"
        f" choose another address with --listen {place}:PORT"
        f"{'?tablet=PORT' if role == 'tablet' else ''}"
    )


def bind(host: str, port: int, role: Role, scheme: str = "fluss") -> socket.socket:
    """A socket that listens; port 0 takes a free one.

    :param scheme: of the listener's address, for the error.
    :raises ConfigurationError: the address cannot be bound.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        try:
            # Binds the address of a server that has just ended, but not of a running one.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(socket.SOMAXCONN)
            listening.setblocking(False)
        except BaseException:
            listening.close()
            raise
    except OSError as error:
        own = role.name.lower() if scheme == "fluss" else ""  # gRPC has both roles on one port
        raise ConfigurationError(
            not_listening(scheme, host, port, own, error.strerror or str(error))
        ) from error
    return listening
