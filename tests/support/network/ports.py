"""Reserves ports, whether a server listens on them at the moment or not.

A free port may be used at any time by another connection or server of this machine. A socket that
is bound to the port without listening reserves it: the system assigns it to nobody else and refuses
connections to it. A server that sets SO_REUSEADDR can still listen on it.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager


def held_port() -> socket.socket:
    """Returns a socket that reserves a port of 127.0.0.1 until it is closed."""
    keeper = socket.socket()
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    keeper.bind(("127.0.0.1", 0))
    return keeper


def port_of(keeper: socket.socket) -> int:
    port: int = keeper.getsockname()[1]
    return port


@contextmanager
def kept_port() -> Iterator[int]:
    """Reserves a port for the block; only a server that is given it listens there."""
    with held_port() as keeper:
        yield port_of(keeper)
