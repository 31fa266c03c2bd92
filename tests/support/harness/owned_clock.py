"""A monotonic clock that a test moves."""

from __future__ import annotations


class MonotonicClock:
    """``now_s`` is its time; nobody asks it for wall time, and nobody sleeps."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def now_ms(self) -> int:
        raise AssertionError("nobody asks for wall time here")

    def monotonic_s(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody sleeps here")
