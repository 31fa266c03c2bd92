"""Waits for SIGTERM or Ctrl-C, without losing a signal."""

from __future__ import annotations

import os
import signal
from typing import Any


class StopSignals:
    """Catches SIGTERM and SIGINT from now on; a second signal ends the process at once.

    Signals arrive through a pipe, to which the interpreter writes immediately. A handler that sets
    a ``threading.Event`` could lose a signal: handlers run between two instructions of the main
    thread, which may be about to wait for ever, or hold the lock that the handler needs. Create one
    instance per process, in the main thread.
    """

    def __init__(self) -> None:
        self._read, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def wait(self) -> None:
        """Waits until a signal arrives; returns at once if it has already arrived."""
        os.read(self._read, 1)

    @staticmethod
    def _handle(number: int, frame: Any) -> None:
        del frame
        signal.signal(number, signal.SIG_DFL)
