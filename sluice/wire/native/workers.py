"""What all connections of a native listener share: workers, memory, and the log of refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass

from sluice.wire.listeners.fair_turns import LoopTurns
from sluice.wire.listeners.refusals import RefusalLog
from sluice.wire.messages.frames import RequestHead
from sluice.wire.native.memory import Limits, MemoryBudget, RequestUsage

LOGIN_WORKERS_SHARE = 4
"""Requests of clients that have not logged in use at most this part of the workers at once."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request that was read."""

    head: RequestHead
    payload: memoryview
    usage: RequestUsage
    """Bytes counted for it."""


Answer = tuple[bytes, bytes]
"""The frame of a response: the bytes before the body, and the body."""


class SharedState:
    """State of all connections of a server. Only the loop's thread uses it."""

    def __init__(
        self, pool: Executor, max_workers: int, limits: Limits, refusals: RefusalLog
    ) -> None:
        self.limits = limits
        self.refusals = refusals
        self.memory = MemoryBudget(limits)
        self._pool = pool
        self._workers = LoopTurns(max_workers)
        self._login_workers = asyncio.Semaphore(max(max_workers // LOGIN_WORKERS_SHARE, 1))
        self._running: set[Future[Answer]] = set()

    async def make_before_login(
        self, call: Callable[[Request], Answer], request: Request, party: str
    ) -> Answer:
        """Like ``make``, but few at once: users do not wait behind many strangers."""
        async with self._login_workers:
            return await self.make(call, request, party)

    async def make(self, call: Callable[[Request], Answer], request: Request, party: str) -> Answer:
        """Makes a response and counts its bytes, once unsent responses are below the limit.

        At most one response per worker can exceed the limit.

        :param party: whose turn for a worker it takes.
        """
        await self._workers.take(party)
        try:
            await self.memory.wait_to_answer()
            running = self._pool.submit(call, request)
            self._running.add(running)
            running.add_done_callback(self._running.discard)
            answer = await asyncio.wrap_future(running)
            self.memory.answered(request.usage, len(answer[1]))
            return answer
        finally:
            self._workers.give_back()

    def wait_for_handlers(self, timeout_s: float | None) -> bool:
        """Waits until no handler runs any more; False if it takes longer. Any thread may call it.

        No request may arrive any more.
        """
        return not wait(list(self._running), timeout_s).not_done
