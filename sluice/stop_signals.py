"""Waits for SIGTERM or Ctrl-C."""

from __future__ import annotations

import os
import signal
from typing import Any


class StopSignals:
    """Takes SIGTERM and SIGINT from now on; a second one ends the process at once.

    They arrive through a pipe, into which the interpreter writes at the moment of the signal. With
    a ``threading.Event`` that a handler sets, a signal can be lost for ever: handlers run between
    two instructions of the main thread, which may be on its way into a wait that then never ends,
    or hold the lock that the handler needs. For the main thread, once in a process.
    """

    def __init__(self) -> None:
        self._read, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._heard)

    def wait(self) -> None:
        """Returns once a signal has come, however early."""
        os.read(self._read, 1)

    @staticmethod
    def _heard(number: int, frame: Any) -> None:
        del frame
        signal.signal(number, signal.SIG_DFL)
