"""How long requests to a store may take, and how often they are tried."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class StorageTimeouts:
    """Timeouts of single requests, and the number of attempts."""

    connect_s: float = 10.0
    request_s: float = 60.0
    """Seconds without a byte of the response."""
    attempts_max: int = 4

    @property
    def all_attempts(self) -> timedelta:
        """How long one call may be retried, where a client counts time and not attempts."""
        return timedelta(seconds=max(1, math.ceil(self.attempts_max * self.request_s)))


DEFAULT_TIMEOUTS = StorageTimeouts()
