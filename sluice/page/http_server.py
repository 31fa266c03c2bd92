"""The HTTP server of `sluice ui`: uvicorn with bounds, on a thread of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

CONNECTIONS_MAX = 64
"""Open connections, each with one request at a time. One more is closed at once."""
REQUEST_TIMEOUT_S = 10
"""A connection that sends no whole request for this long is closed."""
KEEP_ALIVE_S = 30
HEAD_BYTES_MAX = 16_384
"""Request line and headers."""
STOP_GRACE_S = 1
"""Time for requests in progress at a stop."""


class _Bounded(H11Protocol):
    """A connection that makes room if it is one too many, or sends nothing."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS_MAX:
            transport.abort()
        else:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_no_more()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        is_whole = self.conn.their_state is not h11.SEND_BODY
        if self.cycle is not None and not self.cycle.response_complete and is_whole:
            self._wait_no_more()  # the answer has its own time limits
        elif self._waiting is None:
            self._wait()  # uvicorn's own limit ends with the first byte of a request

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(REQUEST_TIMEOUT_S, self._close)

    def _wait_no_more(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _close(self) -> None:
        self._waiting = None
        self.transport.abort()


class PageServer:
    """Serves an application at a bound socket until it is stopped."""

    def __init__(self, app: Any, bound: socket.socket) -> None:
        self._socket = bound
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                http=_Bounded,
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
