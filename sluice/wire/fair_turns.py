"""Who gets the next free worker: peers take turns, whatever each has waiting."""

from __future__ import annotations

import threading
from collections import deque


class FairTurns:
    """Hands out workers. Safe for use by many threads; calls of one peer keep their order."""

    def __init__(self, workers: int) -> None:
        self._lock = threading.Lock()  # guards the next fields
        self._free = workers
        self._waiting: dict[str, deque[threading.Lock]] = {}  # whose turn is next comes first

    def take(self, peer: str) -> bool:
        """Waits for a worker; whether it had to wait."""
        with self._lock:
            if self._free:
                self._free -= 1
                return False
            turn = threading.Lock()
            turn.acquire()
            self._waiting.setdefault(peer, deque()).append(turn)
        turn.acquire()
        return True

    def give_back(self) -> None:
        """A worker is free: it goes to the peer whose turn is next."""
        with self._lock:
            if not self._waiting:
                self._free += 1
                return
            peer = next(iter(self._waiting))
            turns = self._waiting.pop(peer)
            turn = turns.popleft()
            if turns:
                self._waiting[peer] = turns
        turn.release()
