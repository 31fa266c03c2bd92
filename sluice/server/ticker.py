"""Work that the server does in the background, again and again."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable

import structlog

from sluice.errors import FlussError

_log = structlog.get_logger("sluice.server")


class Ticker:
    """Does something every so often, on a thread of its own. Start it once, stop it once.

    A tick that fails is logged, since nothing else would report it, and the next one comes.
    """

    def __init__(self, name: str, tick: Callable[[], object]) -> None:
        """:param name: of the thread, and of the work in the log."""
        self._name = name
        self._tick = tick
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_stopping(self) -> bool:
        """Whether ``stop`` was called: a long tick ends early then."""
        return self._stopping.is_set()

    def start(self, interval_ms: int) -> None:
        """The first tick comes after an interval, 0: none does."""
        if interval_ms:
            self._thread = threading.Thread(
                target=self._run, args=(interval_ms / 1000,), name=self._name, daemon=True
            )
            self._thread.start()

    def announce_stop(self) -> None:
        """No further tick begins."""
        self._stopping.set()

    def stop(self, timeout_s: float | None = None) -> None:
        """Waits for a tick in progress; no other begins. Does nothing more before ``start``.

        :param timeout_s: longest wait; None: no limit.
        """
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self, interval_s: float) -> None:
        while not self._stopping.wait(interval_s):
            try:
                self._tick()
            except (FlussError, OSError, sqlite3.Error) as error:
                _log.error("failed, and will be retried", what=self._name, error=str(error))
            except Exception:
                _log.exception("failed, and will be retried", what=self._name)
