"""Bounds the connections to a gRPC listener: those of one peer, and those without a call.

gRPC counts connections in all, and tells nobody which it has. So this looks at the sockets of the
process now and then, and ends what a peer has too many: connections without a call first, then
those whose last call is the longest ago, and last those with a call in progress. When few places
are free, it also ends connections without a call, those of the peer with the most of them first.
A call is one of a known caller. If no users are known, every caller is.
"""

from __future__ import annotations

import heapq
import math
import os
import socket
import stat
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

from sluice.clock import Clock
from sluice.wire.listeners.admission import address_of, peer_of
from sluice.wire.listeners.refusals import RefusalLog

_FILES = "/dev/fd"
"""The open files of this process, on Linux and macOS."""

_USED_MAX = 8192
"""Most connections whose last call is remembered before closed ones are forgotten."""

ROOM_SHARE = 8
"""This part of all places is kept free of connections without a call."""

GREEDY_S = 1.0
"""Time for the first call of a peer's connections, if those without one take that part."""

CALM_S = 2.0
"""How often it looks while three quarters of all places are free: a look at 6,000 files takes
13 ms of CPU."""


class _Client(NamedTuple):
    host: str
    port: int

    @classmethod
    def of(cls, host: str, port: int) -> _Client:
        return cls(address_of(host), port)


class _Open(NamedTuple):
    """A connection. Several may have one client: the server may have several addresses."""

    file: int
    inode: int
    client: _Client
    peer: str


class Connections:
    """Those of one listener. ``used`` is safe for use by many threads."""

    def __init__(self, most: int, handshake_s: float, clock: Clock, refusals: RefusalLog) -> None:
        """:param most: that gRPC accepts; half of them may be of one peer.
        :param handshake_s: time for the first call before a connection may have to make room.
        """
        self._per_peer = max(most // 2, 1)
        self._room = most // ROOM_SHARE
        self._most = most
        self._handshake_s = handshake_s
        self._now_s = clock.monotonic_s
        self._refusals = refusals
        self._next_s = self._now_s()
        self._used: dict[str, float] = {}
        self._seen_s: dict[_Open, float] = {}  # the oldest first
        self._sockets: dict[int, tuple[int, _Open | None]] = {}
        """The inode of each file that is a socket, and its connection if it is one."""

    def used(self, client: str) -> None:
        """A caller who is known makes a call.

        :param client: its address as gRPC writes it, like ``ipv4:10.0.0.5:41234``.
        """
        self._used[client] = self._now_s()

    def end_surplus(self, port: int, busy: Iterable[str]) -> int:
        """Ends what a peer has too many, and what has to make room; returns how many connections.

        Call it often: it does nothing when it is not yet time to look.

        :param port: that of the listener.
        :param busy: clients with calls in progress, named as for ``used``.
        """
        now_s = self._now_s()
        if now_s < self._next_s:
            return 0
        self._next_s = now_s + CALM_S
        try:
            with os.scandir(_FILES) as listed:
                files = [int(file.name) for file in listed]
        except OSError:  # a system without the list
            self._forget_oldest()
            return 0
        if len(files) <= self._per_peer and len(self._used) <= _USED_MAX:
            return 0
        seen_s, found = self._seen_s, self._find(files, port)
        if len(found) > self._most // 4:
            self._next_s = now_s
        self._seen_s = {one: at_s for one, at_s in seen_s.items() if one in found}
        self._seen_s |= {one: now_s for one in found if one not in seen_s}
        last_s = self._last_calls(now_s)
        # A large upload may have begun before all other calls.
        last_s |= {_named(client): math.inf for client in busy}
        of_peer: dict[str, list[_Open]] = defaultdict(list)
        for one in self._seen_s:
            of_peer[one.peer].append(one)
        ended = 0
        for peer, those in of_peer.items():
            surplus = max(len(those) - self._per_peer, 0)
            if surplus:
                those.sort(key=lambda one: last_s.get(one.client, 0.0))
                ended += self._end("too many connections", peer, those[:surplus], port)
                del those[:surplus]
        lacking = sum(map(len, of_peer.values())) - (self._most - self._room)
        if lacking > 0:
            for peer, those in self._without_a_call(of_peer, last_s, now_s, lacking).items():
                ended += self._end("connections without a call made room", peer, those, port)
        return ended

    def _find(self, files: Sequence[int], port: int) -> dict[_Open, None]:
        """The connections. Asks for the addresses of a socket once: that is what costs time."""
        before, self._sockets = self._sockets, {}
        found: dict[_Open, None] = {}
        for file in files:
            try:
                status = os.fstat(file)
            except OSError:
                continue  # it was closed
            if not stat.S_ISSOCK(status.st_mode):
                continue
            inode = status.st_ino
            known = before.get(file)
            if known is None or known[0] != inode or not inode:  # 0: the system has none
                client = _client_of(file, port)
                one = client and _Open(file, inode, client, peer_of(client.host))
                known = inode, one
            self._sockets[file] = known
            if known[1] is not None:
                found[known[1]] = None
        return found

    def _last_calls(self, now_s: float) -> dict[_Client, float]:
        """When each client called last. Forgets those who have left."""
        clients = {one.client for one in self._seen_s}
        last_s = {}
        for name, used_s in dict(self._used).items():  # a copy: other threads add to it
            client = _named(name)
            if client in clients:
                last_s[client] = used_s
            elif used_s < now_s:  # else it may have come since the files were listed
                self._used.pop(name, None)
        return last_s

    def _without_a_call(
        self,
        of_peer: dict[str, list[_Open]],
        last_s: dict[_Client, float],
        now_s: float,
        most: int,
    ) -> dict[str, list[_Open]]:
        """By peer, the connections that have to make room."""
        idle: dict[str, list[_Open]] = {}
        for peer, those in of_peer.items():
            uncalled = [one for one in those if one.client not in last_s]
            # Many clients that start together get the time. A peer with many does not need it.
            time_s = GREEDY_S if len(uncalled) > self._room else self._handshake_s
            idle[peer] = [one for one in uncalled if now_s - self._seen_s[one] >= time_s]
        greediest = [(-len(those), peer) for peer, those in idle.items() if those]
        heapq.heapify(greediest)
        counts: dict[str, int] = defaultdict(int)
        for _ in range(most):
            if not greediest:
                break
            left, peer = greediest[0]
            counts[peer] += 1
            if left < -1:
                heapq.heapreplace(greediest, (left + 1, peer))
            else:
                heapq.heappop(greediest)
        return {peer: idle[peer][:count] for peer, count in counts.items()}

    def _end(self, kind: str, peer: str, those: Sequence[_Open], port: int) -> int:
        self._refusals.warning(kind, peer=peer, ended=len(those))
        return sum(_end(one.file, port, one.client) for one in those)

    def _forget_oldest(self) -> None:
        used = dict(self._used)
        for name in sorted(used, key=used.__getitem__)[: max(len(used) - _USED_MAX, 0)]:
            self._used.pop(name, None)


@lru_cache(_USED_MAX)
def _named(client: str) -> _Client:
    """A client from gRPC's form of its address."""
    port = client.rpartition(":")[2]
    return _Client.of(client, int(port) if port.isdigit() else 0)


def _client_of(file: int, port: int) -> _Client | None:
    """The client at the other end of a connection of that port; None for any other file."""
    try:
        connection = socket.socket(fileno=file)
    except OSError:
        return None
    try:
        return _client(connection, port)
    finally:
        connection.detach()  # the file is gRPC's


def _client(connection: socket.socket, port: int) -> _Client | None:
    try:
        here, there = connection.getsockname(), connection.getpeername()
    except OSError:
        return None  # it listens, or its client has left
    if not isinstance(here, tuple) or here[1] != port:
        return None
    return _Client.of(there[0], there[1])


def _end(file: int, port: int, client: _Client) -> bool:
    """Shuts a connection down; gRPC then closes it."""
    # gRPC may have closed the file, and its number may be another's by now: a second number stays
    # with what was looked at.
    with suppress(OSError), socket.socket(fileno=os.dup(file)) as connection:
        if _client(connection, port) == client:
            connection.shutdown(socket.SHUT_RDWR)
            return True
    return False
