"""A small HTTP server for callers that nobody knows: threads, with bounds on what each may hold."""

from __future__ import annotations

import http.client
import io
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from sluice.clock import SystemClock
from sluice.errors import StorageBackpressure
from sluice.wire.listeners.admission import Admission, Admitted, peer_of, within_files

CONNECTIONS_MAX = 64
"""Connections at once, half of them of one host. The oldest that has sent no request ends for one
more."""
HEAD_TIMEOUT_S = 5.0
"""From the connection to the end of the request's head, however it arrives."""
HEAD_BYTES_MAX = 16_384
"""Request line and headers."""
ANSWER_TIMEOUT_S = 20.0
"""Time to read an answer. Until then its connection ends for another one, if it is the oldest."""
STOP_S = 1.0
"""A stop waits for answers in progress for so long."""
_LOOK_S = 0.2
_TURN_S = 0.05
_PLACE = "sluice.place"


class BoundedServer(WSGIServer):
    """Serves a WSGI application, a thread for each connection, and one request for each.

    A request keeps its place while its answer is made. Who sends nothing, waits for an answer or
    reads nothing keeps it only until another caller comes.
    """

    def __init__(self, bound: socket.socket, application: Any) -> None:
        """:param bound: a socket that listens; it is closed with the server."""
        host, port = bound.getsockname()[:2]
        super().__init__((host, port), WSGIRequestHandler, bind_and_activate=False)
        self.socket.close()
        self.socket, self.server_name, self.server_port = bound, host, port
        self.setup_environ()
        self.set_app(application)
        most = within_files(CONNECTIONS_MAX)
        self._admission = Admission(
            "connections", most, most // 2, SystemClock(), pending_s=HEAD_TIMEOUT_S
        )
        self._threads: set[threading.Thread] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Gives a connection to a thread, or closes it if all places are taken by answers."""
        try:
            place = self._admission.admit(peer_of(client_address[0]), partial(_shut, request))
        except StorageBackpressure:
            self.shutdown_request(request)
            return
        thread = threading.Thread(
            target=self._serve, args=(request, client_address, place), name="metrics-call"
        )
        thread.daemon = True
        self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError:  # the system gives no more threads
            self._end(thread, request, place)

    def _serve(self, request: Any, client_address: Any, place: Admitted) -> None:
        try:
            # What is left of a connection that has made room, or whose caller has gone, is no news.
            with suppress(OSError, StorageBackpressure, http.client.LineTooLong):
                _Handler(request, client_address, self, place)
        finally:
            self._end(threading.current_thread(), request, place)

    def _end(self, thread: threading.Thread, request: Any, place: Admitted) -> None:
        self.shutdown_request(request)
        place.release()
        self._threads.discard(thread)

    def service_actions(self) -> None:
        """Ends what is late; ``serve_forever`` calls it again and again."""
        self._admission.end_late()

    def run(self) -> None:
        """Serves until :meth:`stop`."""
        self.serve_forever(_LOOK_S)

    def stop(self) -> None:
        """Ends :meth:`run` and all connections, and releases the port."""
        self.shutdown()
        self.server_close()
        self._admission.end_all()
        for thread in list(self._threads):
            thread.join(STOP_S)


def begins(environ: dict[str, Any]) -> None:
    """From now on, an answer is made for this request.

    :raises ConnectionAbortedError: it has made room for another one.
    """
    try:
        environ[_PLACE].settle()
    except StorageBackpressure as error:
        raise ConnectionAbortedError(str(error)) from error


@contextmanager
def turn(environ: dict[str, Any], lock: threading.Lock) -> Iterator[None]:
    """Holds a lock. A request that makes room meanwhile waits no longer: nothing counts its thread.

    :raises ConnectionAbortedError: it has made room for another one.
    """
    while not lock.acquire(timeout=_TURN_S):
        if environ[_PLACE].dropped:
            raise ConnectionAbortedError("made room for another one")
    try:
        yield
    finally:
        lock.release()


def answered(environ: dict[str, Any], answer: Callable[[], Any]) -> Any:
    """Makes an answer; then its connection waits for the caller again, who has to read it."""
    made = answer()
    environ[_PLACE].unsettle(ANSWER_TIMEOUT_S)
    return made


def _shut(connection: socket.socket) -> None:
    """Ends the waits of the thread that serves a connection."""
    with suppress(OSError):  # it has ended already
        connection.shutdown(socket.SHUT_RDWR)


class _Head(io.RawIOBase):
    """What a connection sends, up to :data:`HEAD_BYTES_MAX`."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._left = HEAD_BYTES_MAX

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        if not self._left:
            raise http.client.LineTooLong("head")
        read = self._connection.recv_into(memoryview(into)[: self._left])
        self._left -= read
        return read


class _Handler(WSGIRequestHandler):
    """One request."""

    def __init__(self, request: Any, client_address: Any, server: Any, place: Admitted) -> None:
        self._place = place
        super().__init__(request, client_address, server)  # answers it

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_Head(self.connection), 4_096)

    def get_environ(self) -> Any:
        """:raises StorageBackpressure: it has made room for another one."""
        self._place.settle()
        self._place.unsettle(ANSWER_TIMEOUT_S)  # it may wait for an answer to another one
        return {**super().get_environ(), _PLACE: self._place}

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the name of the base)
        """Logs nothing: scrapes are frequent."""
