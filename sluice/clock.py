"""Time as a constructor argument, so that a test can own it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for what is stored or shown, monotonic time for what is waited for."""

    def now_ms(self) -> int:
        """Epoch milliseconds."""

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary start; never goes back."""

    def sleep(self, seconds: float) -> None:
        """Returns after about that many seconds."""


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
