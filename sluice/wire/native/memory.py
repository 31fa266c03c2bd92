"""The memory that all connections of a native listener share, and which connections it closes.

A request is counted as its bytes arrive, a response once it is made. While memory is free, a client
may be slow inside a frame or in reading its responses. As soon as another connection waits for
memory, the server closes connections that transfer too slowly. Frames that together fill the memory
cannot block each other: one frame at a time may exceed the limit.

Only the event loop's thread uses this module.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from sluice.errors import NetworkError

FREE_BYTES = 64 * 1024
"""Memory of each connection in addition to the shared memory: small requests never wait."""

STEP_BYTES = 1024 * 1024
"""Bytes of a frame that are counted at a time, before they arrive."""

CHUNK_BYTES = 1024 * 1024
"""Bytes that a client must transfer within ``stall_s``."""

PRESSED_BYTES = 64 * 1024
"""Bytes that a client must transfer within ``pressed_s`` while others wait for memory."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client, and all clients together, may use of a native listener."""

    max_frame_bytes: int
    """Largest request."""
    max_bytes: int
    """Bytes of requests and responses in memory, over all connections: half for each. At the limit
    the server stops reading or calling handlers. One request may exceed it, and one response per
    worker."""
    max_connections: int = 1024
    """Connections at once on all ports together, half of them of one peer. A further one is refused
    with an error, unless one that has not logged in makes room for it."""
    max_requests: int = 64
    """Unanswered requests at which the server stops reading from a connection."""
    idle_s: float = 600.0
    """A connection without requests for this long is closed, as Fluss does."""
    stall_s: float = 30.0
    """Within this time a client must complete its frame, read its responses, or transfer
    ``CHUNK_BYTES``; then the time starts again."""
    pressed_s: float = 1.0
    """Time for ``PRESSED_BYTES``, while others wait for memory."""


@dataclass(eq=False, slots=True)
class ConnectionUsage:
    """The memory that one connection uses."""

    free: int = FREE_BYTES
    held: int = 0
    requests: set[RequestUsage] = field(default_factory=set)


@dataclass(eq=False, slots=True)
class RequestUsage:
    """Bytes counted for one request and its response."""

    connection: ConnectionUsage
    free: int = 0
    request: int = 0
    answer: int = 0


class Transfer:
    """The transfer of a frame from a client, or of a response to one."""

    __slots__ = ("_left_s", "_loop", "_mark", "_moved", "_seen", "_stall_s", "_turn", "_usage")

    def __init__(self, connection: ConnectionUsage, stall_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._usage = connection
        self._stall_s = self._left_s = stall_s
        self._moved = self._mark = 0
        self._seen: int | None = None  # what had moved at the last check
        self._turn: asyncio.Timeout | None = None

    async def wait(self, moving: Coroutine[Any, Any, int | None], count: int = 0) -> int:
        """Waits for the client; counts the bytes that ``moving`` returns, or ``count``.

        :raises TimeoutError: the client stalls.
        :raises NetworkError: the client is too slow while others wait for memory.
        """
        began = self._loop.time()
        dropped = None
        try:
            async with asyncio.timeout(max(self._left_s, 0.0)) as turn:
                self._turn = turn
                count = await moving or count
        except TimeoutError:
            # Raised outside of this block: no traceback may keep the frame's memory alive.
            dropped = self._left_s > self._loop.time() - began
            if not dropped:
                raise
        finally:
            self._turn = None
        if dropped:
            raise NetworkError(
                "the server's memory is full and this client transfers less than"
                f" {PRESSED_BYTES:,} bytes at a time: send the request again"
            )
        self._left_s -= self._loop.time() - began
        self.moved(count)
        return count

    def moved(self, count: int) -> None:
        """Counts bytes that moved without a wait."""
        self._moved += count
        if self._moved - self._mark >= CHUNK_BYTES:
            self._mark, self._left_s = self._moved, self._stall_s

    def skip_next_check(self) -> None:
        """Ignores the progress until the next check: the server itself pauses the transfer."""
        self._seen = None

    def check_progress(self, *, first: bool) -> None:
        """Ends the transfer if the client was too slow since the last check."""
        if self._turn is None or not self._usage.held:
            self._seen = None
            return
        seen, self._seen = self._seen, self._moved
        if not first and seen is not None and self._moved - seen < PRESSED_BYTES:
            self._turn.reschedule(self._loop.time())


@dataclass(eq=False, slots=True)
class _Waiter:
    usage: RequestUsage
    count: int
    missing: int
    """Bytes that its frame lacks."""
    admitted: asyncio.Future[None]


class MemoryBudget:
    """Counts requests and responses of all connections."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._half = limits.max_bytes // 2
        self._requests = self._answers = 0
        self._over: RequestUsage | None = None  # the one request that may go over the limit
        self._waiters: list[_Waiter] = []
        self._makers = 0
        self._answers_left = asyncio.Event()
        self._transfers: set[Transfer] = set()
        self._check_timer: asyncio.TimerHandle | None = None

    def add_request(self, connection: ConnectionUsage) -> RequestUsage:
        """Starts to count one request; ``release`` ends it."""
        usage = RequestUsage(connection)
        connection.requests.add(usage)
        return usage

    def release(self, usage: RequestUsage) -> None:
        """Releases the bytes counted for a request; a second call does nothing."""
        if usage not in usage.connection.requests:
            return
        usage.connection.requests.remove(usage)
        usage.connection.free += usage.free
        usage.connection.held -= usage.request + usage.answer
        self._requests -= usage.request
        self._answers -= usage.answer
        if self._over is usage:
            self._over = None
        self._answers_left.set()
        self._admit()

    def release_all(self, connection: ConnectionUsage) -> None:
        for usage in list(connection.requests):
            self.release(usage)

    def begin(self, connection: ConnectionUsage) -> Transfer:
        """Starts a transfer of that connection; ``end`` removes it."""
        transfer = Transfer(connection, self._limits.stall_s)
        self._transfers.add(transfer)
        return transfer

    def end(self, transfer: Transfer) -> None:
        self._transfers.discard(transfer)

    async def take(self, usage: RequestUsage, transfer: Transfer, missing: int) -> int:
        """Waits until the next bytes of a frame may be read, and counts them.

        :param missing: bytes that the frame lacks.
        :return: the number of bytes that may be read now.
        """
        if not usage.request and missing <= usage.connection.free:
            usage.free = missing
            usage.connection.free -= missing
            return missing
        count = min(missing, STEP_BYTES)
        waiter = _Waiter(usage, count, missing, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        self._admit()
        if not waiter.admitted.done():
            transfer.skip_next_check()
            self._start_checks()
            try:
                await waiter.admitted
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
        return count

    async def wait_to_answer(self) -> None:
        """Waits until earlier responses were sent and their memory is free."""
        while self._answers > self._half:
            self._answers_left.clear()
            self._makers += 1
            self._start_checks()
            try:
                await self._answers_left.wait()
            finally:
                self._makers -= 1

    def answered(self, usage: RequestUsage, count: int) -> None:
        """Counts a response that was made."""
        usage.answer += count
        usage.connection.held += count
        self._answers += count

    def _admit(self) -> None:
        """Admits waiting frames in their order, as far as memory is free.

        Without free memory it admits one frame nevertheless, the one that lacks least. That frame
        completes, and its memory becomes free again.
        """
        while self._waiters:
            waiter = self._waiters[0]
            over = [one for one in self._waiters if one.usage is self._over]
            if over:
                waiter = over[0]
            elif self._requests + waiter.count > self._half:
                if self._over is not None:
                    return
                waiter = min(self._waiters, key=lambda one: one.missing)
                self._over = waiter.usage
            self._waiters.remove(waiter)
            if not waiter.admitted.done():  # cancelled otherwise
                waiter.admitted.set_result(None)
                waiter.usage.request += waiter.count
                waiter.usage.connection.held += waiter.count
                self._requests += waiter.count

    # -- which connections are closed

    def _start_checks(self) -> None:
        """Checks all transfers from now on, while a frame or a response waits."""
        if self._check_timer is None:
            self._check_transfers(first=True)

    def _check_transfers(self, *, first: bool = False) -> None:
        self._check_timer = None
        if not self._waiters and not self._makers and not first:
            return
        for transfer in self._transfers:
            transfer.check_progress(first=first)
        loop = asyncio.get_running_loop()
        self._check_timer = loop.call_later(self._limits.pressed_s, self._check_transfers)
