"""A clock that stands still until the simulation moves it."""

from __future__ import annotations

START_MS = 1_700_000_000_000


class ManualClock:
    """Implements Clock. Used by one thread at a time."""

    def __init__(self) -> None:
        self._now_ms = START_MS

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_s(self) -> float:
        return (self._now_ms - START_MS) / 1000

    def sleep(self, seconds: float) -> None:
        self.advance(int(seconds * 1000))

    def advance(self, milliseconds: int) -> None:
        """Moves the time forward."""
        self._now_ms += milliseconds
