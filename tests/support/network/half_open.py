"""Callers that connect and then hold a connection, as strangers do."""

from __future__ import annotations

import resource
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress


@contextmanager
def half_open(port: int, count: int, sent: bytes = b"") -> Iterator[list[socket.socket]]:
    """Connections that have sent this and nothing else.

    The server may end some of them; their sockets stay here.
    """
    _allow_files(count)
    held: list[socket.socket] = []
    try:
        for _ in range(count):
            held.append(socket.create_connection(("127.0.0.1", port), 60))
            with suppress(OSError):  # it has made room already
                held[-1].sendall(sent)
        yield held
    finally:
        for one in held:
            one.close()


def _allow_files(more: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2 * more + 512:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2 * more + 512), hard))


@contextmanager
def trickling(held: Sequence[socket.socket], every_s: float = 0.05) -> Iterator[None]:
    """Each of them sends one byte now and then, while the block lasts."""
    ends = threading.Event()

    def send() -> None:
        while not ends.wait(every_s):
            for one in held:
                with suppress(OSError):
                    one.send(b"x")

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def ended(connection: socket.socket, within_s: float = 60) -> bool:
    """Whether the server ends a connection in time, after whatever it sends."""
    connection.settimeout(within_s)
    try:
        while connection.recv(65_536):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True
