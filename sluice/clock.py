"""Clocks, which are passed as arguments so that tests can control time."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A clock: wall time for stored and shown values, monotonic time for waiting."""

    def now_ms(self) -> int:
        """The wall time in epoch milliseconds."""

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary start, never decreasing."""

    def sleep(self, seconds: float) -> None:
        """Waits for about this number of seconds."""


class SystemClock:
    """The system clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
