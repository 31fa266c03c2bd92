"""Who gets the next free worker: parties take turns, whatever each has waiting.

A party is a user on a host, or a host where nobody logs in.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import Generic, TypeVar

Item = TypeVar("Item")


def party_of(peer: str, user: str) -> str:
    """The party of a call.

    :param user: empty if nobody has logged in.
    """
    return f"{user}@{peer}"


class Turns(Generic[Item]):
    """What waits: parties take turns, those of one party keep their order. For one thread."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Item]] = {}  # whose turn is next comes first
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, party: str, item: Item) -> None:
        self._waiting.setdefault(party, deque()).append(item)
        self._count += 1

    def next(self) -> Item:
        """Takes out what is next. :raises StopIteration: nothing waits."""
        party = next(iter(self._waiting))
        items = self._waiting.pop(party)
        item = items.popleft()
        if items:
            self._waiting[party] = items
        self._count -= 1
        return item

    def drop_one(self) -> Item:
        """Takes out the oldest of the party that has the most. Something must wait."""
        party = max(self._waiting, key=lambda party: len(self._waiting[party]))
        items = self._waiting[party]
        item = items.popleft()
        if not items:
            del self._waiting[party]
        self._count -= 1
        return item


class FairTurns:
    """Hands out workers to threads. Safe for use by many threads."""

    def __init__(self, workers: int) -> None:
        self._lock = threading.Lock()  # guards the next fields
        self._free = workers
        self._waiting = Turns[threading.Lock]()

    def take(self, party: str) -> bool:
        """Waits for a worker; whether it had to wait."""
        with self._lock:
            if self._free:
                self._free -= 1
                return False
            turn = threading.Lock()
            turn.acquire()
            self._waiting.add(party, turn)
        turn.acquire()
        return True

    def give_back(self) -> None:
        """A worker is free: it goes to the party whose turn is next."""
        with self._lock:
            if not self._waiting:
                self._free += 1
                return
            turn = self._waiting.next()
        turn.release()


class LoopTurns:
    """Hands out workers to tasks of one event loop."""

    def __init__(self, workers: int) -> None:
        self._free = workers
        self._waiting = Turns[asyncio.Future[None]]()

    def __len__(self) -> int:
        """How many tasks wait."""
        return len(self._waiting)

    async def take(self, party: str) -> None:
        """Waits for a worker."""
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.add(party, turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it had just got a worker
                self.give_back()
            raise

    def give_back(self) -> None:
        """A worker is free: it goes to the party whose turn is next."""
        while self._waiting:
            turn = self._waiting.next()
            if not turn.done():  # its task was cancelled otherwise
                turn.set_result(None)
                return
        self._free += 1
