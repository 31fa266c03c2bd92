"""Measures the phases of a round, and runs the failpoints around each one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sluice.clock import Clock
from sluice.failpoints import failpoint
from sluice.rounds.values.progress import Progress

_ATTRIBUTE = "seconds_of_round"


def seconds_of(error: BaseException) -> dict[str, float]:
    """Seconds per phase of the round that raised this error; empty if no round raised it."""
    seconds: dict[str, float] = getattr(error, _ATTRIBUTE, {})
    return seconds


class Phases:
    """Measures phases one after the other. Used by the round's thread only."""

    def __init__(self, clock: Clock, progress: Progress) -> None:
        self._clock = clock
        self._progress = progress
        self._started_s = clock.monotonic_s()
        self._seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """A phase: ``round.<name>.before`` and ``.after`` are its failpoints."""
        self._progress.phase(name)
        failpoint(f"round.{name}.before")
        started_s = self._clock.monotonic_s()
        try:
            yield
        finally:
            spent_s = self._clock.monotonic_s() - started_s
            self._seconds[name] = self._seconds.get(name, 0.0) + spent_s
        failpoint(f"round.{name}.after")

    def elapsed_ms(self) -> int:
        """Milliseconds since the round started."""
        return round(1000 * (self._clock.monotonic_s() - self._started_s))

    def seconds(self) -> dict[str, float]:
        """Seconds per finished phase, and ``total``."""
        total = self._clock.monotonic_s() - self._started_s
        return {name: round(s, 4) for name, s in {**self._seconds, "total": total}.items()}

    def attach_to(self, error: BaseException) -> None:
        """Attaches the seconds to the error with which the round ends; see :func:`seconds_of`."""
        setattr(error, _ATTRIBUTE, self.seconds())
