"""The HTTP server of `sluice ui`: uvicorn with bounds, on a thread of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from sluice.clock import SystemClock
from sluice.errors import StorageBackpressure
from sluice.wire.listeners.admission import Admission, Admitted, peer_of, within_files

CONNECTIONS_MAX = 128
"""Open connections, half of them of one host, each with one request at a time. For one more, the
oldest ends that holds no login, or else the one that is idle for the longest time."""
REQUEST_TIMEOUT_S = 10
"""From the first byte of a request to its last, however they arrive; also before the first one."""
ANSWER_TIMEOUT_S = 60
"""To make an answer, which has its own limits, and to send it."""
KEEP_ALIVE_S = 30
HEAD_BYTES_MAX = 16_384
"""Request line and headers."""
STOP_GRACE_S = 1
"""Time for requests in progress at a stop."""

IsKnown = Callable[[Any], bool]
"""Whether the request of an ASGI scope has a login."""


class _Room:
    """Which connections are open. Used by the thread of the server only."""

    def __init__(self, is_known: IsKnown) -> None:
        self.is_known = is_known
        most = within_files(CONNECTIONS_MAX)
        self._admission = Admission("connections", most, most // 2, SystemClock())
        self._idle: dict[_Bounded, None] = {}  # those with a login, idle for the longest time first

    def admit(self, one: _Bounded, host: str) -> Admitted | None:
        """The place of a connection, for which another one may end; None: there is none."""
        peer = peer_of(host)
        for _ in range(2):
            try:
                return self._admission.admit(peer, one.end)
            except StorageBackpressure:  # all the others have logins
                if not self._end_idle(peer):
                    return None
        return None

    def _end_idle(self, peer: str) -> bool:
        is_full = len(self._admission) >= self._admission.most
        for one in self._idle:
            if one.place is not None and (is_full or one.place.peer == peer):
                one.end()
                one.leave()
                return True
        return False

    def rests(self, one: _Bounded) -> None:
        self._idle[one] = None

    def works(self, one: _Bounded) -> None:
        self._idle.pop(one, None)


class _Bounded(H11Protocol):
    """A connection with a time limit for what it waits for.

    It makes room for others while it holds no login, and while it is idle.
    """

    place: Admitted | None = None
    _limit: asyncio.TimerHandle | None = None
    _phase: object = None
    """What it waits for: "request", "idle", or the end of one answer."""
    _is_known = False

    def __init__(self, *arguments: Any, room: _Room, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._room = room

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.place = self._room.admit(self, self.client[0] if self.client else "")
        if self.place is None:
            transport.abort()
        else:
            self._wait_for("request", REQUEST_TIMEOUT_S)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._limit is not None:
            self._limit.cancel()
        self.leave()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._phase == "idle":
            self._room.works(self)
            self._wait_for("request", REQUEST_TIMEOUT_S)
        self._look()

    def on_response_complete(self) -> None:
        self._settle()  # it may have logged in
        self._wait_for("idle", KEEP_ALIVE_S + 1)  # uvicorn closes before; this ends what is unread
        if self._is_known:
            self._room.rests(self)
        super().on_response_complete()
        self._look()

    def end(self) -> None:
        """Ends it, with what it has not sent yet."""
        self.transport.abort()

    def leave(self) -> None:
        """Gives its place up."""
        self._room.works(self)
        if self.place is not None:
            self.place.release()
            self.place = None

    def _look(self) -> None:
        """Notices a request, whose body may be missing."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete or self.place is None:
            return
        if self._phase == "idle":  # a request that came with the one before
            self._room.works(self)
        if self._phase is cycle:
            return
        self._settle()
        if self.conn.their_state is not h11.SEND_BODY:
            self._wait_for(cycle, ANSWER_TIMEOUT_S)

    def _settle(self) -> None:
        """Keeps the place of a connection whose request has a login."""
        if self.place is None or self.place.dropped:
            return
        was_known, self._is_known = self._is_known, self._room.is_known(self.scope)
        if self._is_known and not was_known:
            self.place.settle()
        if was_known and not self._is_known:
            self.place.unsettle(REQUEST_TIMEOUT_S)

    def _wait_for(self, phase: object, limit_s: float) -> None:
        if self._limit is not None:
            self._limit.cancel()
        self._phase, self._limit = phase, self.loop.call_later(limit_s, self.end)


def _nobody(scope: Any) -> bool:  # noqa: ARG001
    return False


class PageServer:
    """Serves an application at a bound socket until it is stopped."""

    def __init__(self, app: Any, bound: socket.socket, is_known: IsKnown = _nobody) -> None:
        """:param is_known: whose connections are kept when others are too many."""
        self._socket = bound
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                http=partial(_Bounded, room=_Room(is_known)),  # type: ignore[arg-type]
                loop="asyncio",
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="critical",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=STOP_GRACE_S,
                h11_max_incomplete_event_size=HEAD_BYTES_MAX,
            )
        )
        self._thread = threading.Thread(
            target=self._server.run, args=([bound],), name="sluice-page", daemon=True
        )

    def start(self) -> None:
        """Returns at once: connections that come before the thread runs wait in the backlog."""
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Ends it, with its connections; whether it has ended in time."""
        self._server.should_exit = True
        self._thread.join(timeout_s)
        self._socket.close()
        return not self._thread.is_alive()
