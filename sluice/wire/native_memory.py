"""The memory that all connections of a native listener share, and who gives way when it is full.

A request is counted as its bytes come, an answer once it is made. Clients that make the server wait
for them (inside a frame, or with answers to take) may do so for long while there is room. Once
somebody waits for room, those that hardly move lose their connection, and the rest go on. Frames
that fill the memory together cannot block each other: one at a time goes over the limit.

Everything here belongs to the loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from sluice.errors import NetworkError

FREE_BYTES = 64 * 1024
"""What each connection has for its requests beside the shared memory: small ones never wait."""

STEP_BYTES = 1024 * 1024
"""How much of a frame is counted at once, before it comes."""

CHUNK_BYTES = 1024 * 1024
"""What a client must take or give within ``stall_s``."""

PRESSED_BYTES = 64 * 1024
"""What it must take or give within ``pressed_s`` while others wait for memory."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client, and all clients together, may use of a native listener."""

    max_frame_bytes: int
    """Largest request."""
    max_bytes: int
    """Bytes of requests and answers in memory, over all connections, before reading and making
    pauses: half for each. One request and as many answers as there are workers may go over it."""
    max_requests: int = 64
    """Unanswered requests of one connection before it is not read from."""
    idle_s: float = 600.0
    """A connection without requests for this long is closed, as Fluss does."""
    stall_s: float = 30.0
    """A client that is inside a frame or has answers to take must bring its end, or move
    ``CHUNK_BYTES``, within this time, which then begins anew."""
    pressed_s: float = 1.0
    """Time for ``PRESSED_BYTES``, while others wait for memory."""


@dataclass(eq=False, slots=True)
class Share:
    """What one connection has of the memory."""

    free: int = FREE_BYTES
    held: int = 0
    charges: set[Charge] = field(default_factory=set)


@dataclass(eq=False, slots=True)
class Charge:
    """Bytes counted for one request and its answer."""

    share: Share
    free: int = 0
    request: int = 0
    answer: int = 0


class Transfer:
    """A frame on its way from a client, or an answer on its way to one."""

    __slots__ = ("_left_s", "_loop", "_mark", "_moved", "_seen", "_share", "_stall_s", "_turn")

    def __init__(self, share: Share, stall_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._share = share
        self._stall_s = self._left_s = stall_s
        self._moved = self._mark = 0
        self._seen: int | None = None  # what had moved when it was looked at
        self._turn: asyncio.Timeout | None = None

    async def wait(self, moving: Coroutine[Any, Any, int | None], count: int = 0) -> int:
        """Waits for the client; counts what ``moving`` answers, or ``count``.

        :raises TimeoutError: it stalls.
        :raises NetworkError: it hardly moves while others wait for memory.
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
                "the server's memory is full and this client moves less than"
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

    def held_up(self) -> None:
        """It is not the client who does not move."""
        self._seen = None

    def look(self, *, first: bool) -> None:
        """Ends the transfer if its client has hardly moved since the last look."""
        if self._turn is None or not self._share.held:
            self._seen = None
            return
        seen, self._seen = self._seen, self._moved
        if not first and seen is not None and self._moved - seen < PRESSED_BYTES:
            self._turn.reschedule(self._loop.time())


@dataclass(eq=False, slots=True)
class _Waiter:
    charge: Charge
    count: int
    missing: int
    """Bytes that its frame lacks."""
    admitted: asyncio.Future[None]


class Memory:
    """Counts requests and answers of all connections."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._half = limits.max_bytes // 2
        self._requests = self._answers = 0
        self._over: Charge | None = None  # the one request that may go over the limit
        self._waiters: list[_Waiter] = []
        self._makers = 0
        self._answers_left = asyncio.Event()
        self._transfers: set[Transfer] = set()
        self._looking: asyncio.TimerHandle | None = None

    def charge(self, share: Share) -> Charge:
        """Begins to count one request; ``release`` ends it."""
        charge = Charge(share)
        share.charges.add(charge)
        return charge

    def release(self, charge: Charge) -> None:
        """Gives back what was counted; a second time does nothing."""
        if charge not in charge.share.charges:
            return
        charge.share.charges.remove(charge)
        charge.share.free += charge.free
        charge.share.held -= charge.request + charge.answer
        self._requests -= charge.request
        self._answers -= charge.answer
        if self._over is charge:
            self._over = None
        self._answers_left.set()
        self._admit()

    def release_all(self, share: Share) -> None:
        for charge in list(share.charges):
            self.release(charge)

    def begin(self, share: Share) -> Transfer:
        """A transfer of that connection; ``end`` forgets it."""
        transfer = Transfer(share, self._limits.stall_s)
        self._transfers.add(transfer)
        return transfer

    def end(self, transfer: Transfer) -> None:
        self._transfers.discard(transfer)

    async def take(self, charge: Charge, transfer: Transfer, missing: int) -> int:
        """Waits until bytes of a frame may come in, and counts them.

        :param missing: bytes that the frame lacks.
        :return: how many may come now.
        """
        if not charge.request and missing <= charge.share.free:
            charge.free = missing
            charge.share.free -= missing
            return missing
        count = min(missing, STEP_BYTES)
        waiter = _Waiter(charge, count, missing, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        self._admit()
        if not waiter.admitted.done():
            transfer.held_up()
            self._look_after()
            try:
                await waiter.admitted
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
        return count

    async def wait_to_answer(self) -> None:
        """Waits until the answers that were made before have left room for others."""
        while self._answers > self._half:
            self._answers_left.clear()
            self._makers += 1
            self._look_after()
            try:
                await self._answers_left.wait()
            finally:
                self._makers -= 1

    def answered(self, charge: Charge, count: int) -> None:
        """Counts an answer that was made."""
        charge.answer += count
        charge.share.held += count
        self._answers += count

    def _admit(self) -> None:
        """Lets frames go on in the order in which they asked, as far as there is room.

        Without room one goes on all the same, the one that lacks least: so it ends, and its
        memory is free again.
        """
        while self._waiters:
            waiter = self._waiters[0]
            over = [one for one in self._waiters if one.charge is self._over]
            if over:
                waiter = over[0]
            elif self._requests + waiter.count > self._half:
                if self._over is not None:
                    return
                waiter = min(self._waiters, key=lambda one: one.missing)
                self._over = waiter.charge
            self._waiters.remove(waiter)
            if not waiter.admitted.done():  # cancelled otherwise
                waiter.admitted.set_result(None)
                waiter.charge.request += waiter.count
                waiter.charge.share.held += waiter.count
                self._requests += waiter.count

    # -- who gives way

    def _look_after(self) -> None:
        """Looks at all transfers from now on, while anybody waits."""
        if self._looking is None:
            self._look(first=True)

    def _look(self, *, first: bool = False) -> None:
        self._looking = None
        if not self._waiters and not self._makers and not first:
            return
        for transfer in self._transfers:
            transfer.look(first=first)
        loop = asyncio.get_running_loop()
        self._looking = loop.call_later(self._limits.pressed_s, self._look)
