"""Bounds the connections that one peer has to a gRPC listener.

gRPC counts connections in all, and tells nobody which it has. So this looks at the sockets of the
process now and then, and ends what a peer has too many: connections without a call of a known
caller first, then those whose last call is the longest ago, and last those with a call in progress.
"""

from __future__ import annotations

import math
import os
import socket
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress

from sluice.clock import Clock
from sluice.wire.admission import peer_of
from sluice.wire.refusals import RefusalLog

_FILES = "/dev/fd"
"""The open files of this process, on Linux and macOS."""

_USED_MAX = 8192
"""Most connections whose last call is remembered before closed ones are forgotten."""

_Address = tuple[str, int]
"""The peer and the port of a client."""


class Connections:
    """Those of one listener. ``used`` is safe for use by many threads."""

    def __init__(self, per_peer: int, clock: Clock, refusals: RefusalLog) -> None:
        """:param per_peer: most connections of one peer."""
        self._per_peer = max(per_peer, 1)
        self._now_s = clock.monotonic_s
        self._refusals = refusals
        self._used: dict[str, float] = {}
        self._seen: dict[_Address, None] = {}  # the oldest first

    def used(self, client: str) -> None:
        """A caller who is known makes a call.

        :param client: its address as gRPC writes it, like ``ipv4:10.0.0.5:41234``.
        """
        self._used[client] = self._now_s()

    def end_surplus(self, port: int, busy: Iterable[str]) -> int:
        """Ends what a peer has too many; returns how many connections.

        :param port: that of the listener.
        :param busy: clients with calls in progress, named as for ``used``.
        """
        try:
            with os.scandir(_FILES) as found:
                files = [int(file.name) for file in found]
        except OSError:
            return 0  # a system without the list
        if len(files) <= self._per_peer and len(self._used) <= _USED_MAX:
            return 0
        open_ = {address: file for file in files if (address := _client_of(file, port)) is not None}
        self._seen = {address: None for address in [*self._seen, *open_] if address in open_}
        last_s = {}
        for client, used_s in list(self._used.items()):
            address = _address(client)
            if address in open_:
                last_s[address] = used_s
            else:
                self._used.pop(client, None)
        # A large upload may have begun before all other calls.
        last_s |= {_address(client): math.inf for client in busy}
        of_peer = defaultdict(list)
        for address in self._seen:
            of_peer[address[0]].append(address)
        ended = 0
        for peer, addresses in of_peer.items():
            surplus = max(len(addresses) - self._per_peer, 0)
            addresses.sort(key=lambda address: last_s.get(address, 0.0))
            for address in addresses[:surplus]:
                ended += _end(open_[address], port, address)
            if surplus:
                self._refusals.warning("too many connections", peer=peer, ended=surplus)
        return ended


def _address(client: str) -> _Address:
    port = client.rpartition(":")[2]
    return peer_of(client), int(port) if port.isdigit() else 0


def _client_of(file: int, port: int) -> _Address | None:
    """The client at the other end of a connection of that port; None for any other file."""
    try:
        connection = socket.socket(fileno=file)
    except OSError:
        return None
    try:
        return _client(connection, port)
    finally:
        connection.detach()  # the file is gRPC's


def _client(connection: socket.socket, port: int) -> _Address | None:
    try:
        here, there = connection.getsockname(), connection.getpeername()
    except OSError:
        return None  # it listens, or its client has left
    if not isinstance(here, tuple) or here[1] != port:
        return None
    return peer_of(there[0]), there[1]


def _end(file: int, port: int, address: _Address) -> bool:
    """Shuts a connection down; gRPC then closes it."""
    # gRPC may have closed the file, and its number may be another's by now: a second number stays
    # with what was looked at.
    with suppress(OSError), socket.socket(fileno=os.dup(file)) as connection:
        if _client(connection, port) == address:
            connection.shutdown(socket.SHUT_RDWR)
            return True
    return False
