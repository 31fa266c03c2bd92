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


def monotonic_ms(clock: Clock) -> int:
    """The monotonic time of a clock in whole milliseconds."""
    return round(clock.monotonic_s() * 1000)


class SystemClock:
    """The system clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
