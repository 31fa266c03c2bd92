"""Warnings about what strangers do, logged at a bounded rate so that they cannot fill a disk."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from sluice.clock import Clock
from sluice.masking import cut

WINDOW_S = 60.0
"""The time in which a kind of warning is counted."""

LOGGED_MAX = 10
"""Most warnings of one kind in this time; the next one that is logged counts those left out."""

DETAIL_CHARS_MAX = 256
"""Longest text of a detail, most of which a stranger may have written."""


@dataclass(slots=True)
class _Window:
    began_s: float
    logged: int = 0
    left_out: int = 0


class RefusalLog:
    """Logs warnings by kind. Safe for use by many threads."""

    def __init__(self, log: Any, clock: Clock) -> None:
        """:param log: a structlog logger."""
        self._log = log
        self._clock = clock
        self._lock = threading.Lock()  # guards _windows
        self._windows: dict[str, _Window] = {}

    def warning(self, kind: str, **details: object) -> None:
        """Logs a warning, or counts it as left out.

        :param kind: one of a few fixed texts.
        """
        now_s = self._clock.monotonic_s()
        with self._lock:
            window = self._windows.setdefault(kind, _Window(now_s))
            if now_s - window.began_s >= WINDOW_S:
                window.began_s, window.logged = now_s, 0
            if window.logged >= LOGGED_MAX:
                window.left_out += 1
                return
            window.logged += 1
            left_out, window.left_out = window.left_out, 0
        shown = {name: _short(value) for name, value in details.items()}
        if left_out:
            shown["left_out_before"] = left_out
        self._log.warning(kind, **shown)

    def flush(self) -> None:
        """Logs the counts of warnings that were left out, at the end of a listener."""
        with self._lock:
            left = {kind: one.left_out for kind, one in self._windows.items() if one.left_out}
            self._windows.clear()
        for kind, left_out in left.items():
            self._log.warning(f"{kind}, more often than was logged", left_out=left_out)


def _short(value: object) -> object:
    if isinstance(value, str) and len(value) > DETAIL_CHARS_MAX:
        return f"{cut(value, DETAIL_CHARS_MAX)}..."
    return value
