"""Ports that nobody else gets, whether a server listens there at the moment or not.

A port that was free a moment ago may be taken by the next connection or server of this machine. A
socket that is bound to it and does not listen keeps it: the system gives it to nobody who takes any
free port, and refuses who connects. Servers that let an address be used again can listen on it.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager


def held_port() -> socket.socket:
    """A socket that keeps a port of 127.0.0.1 until it is closed."""
    keeper = socket.socket()
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    keeper.bind(("127.0.0.1", 0))
    return keeper


def port_of(keeper: socket.socket) -> int:
    port: int = keeper.getsockname()[1]
    return port


@contextmanager
def kept_port() -> Iterator[int]:
    """A port where nobody listens but who is told of it, while the block lasts."""
    with held_port() as keeper:
        yield port_of(keeper)
