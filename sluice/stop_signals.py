"""SIGTERM and Ctrl-C: a server waits for them, a command ends its work because of them."""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

EXIT_TERMINATED = 128 + signal.SIGTERM
"""The exit code of a command that SIGTERM ended."""
EXIT_INTERRUPTED = 128 + signal.SIGINT
"""The exit code of a command that Ctrl-C ended."""
_REPEATED_S = 1.0
"""Some senders, such as `timeout`, send SIGTERM twice at once."""
_AGAIN_S = 0.05
"""After so long, a signal is sent again whose exception was dropped."""


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived; whatever handles Ctrl-C handles it, too."""


def explain_stop(stop: KeyboardInterrupt, effect: str = "") -> None:
    """Adds a note, which the command prints: the signal, and what the round had done until then.

    :param effect: begins with its punctuation. The first explanation counts.
    """
    if not getattr(stop, "__notes__", ()):
        stop.add_note(f"stopped by {signal_name(stop)}{effect}")


def signal_name(stop: KeyboardInterrupt) -> str:
    """SIGTERM or Ctrl-C."""
    return "SIGTERM" if isinstance(stop, Terminated) else "Ctrl-C"


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """Inside, SIGTERM raises Terminated in the main thread, as Ctrl-C raises KeyboardInterrupt.

    Both leave the block with an explanation (:func:`explain_stop`). Does nothing in other threads,
    which receive no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    last_s = -_REPEATED_S
    again = _SentAgain()

    def handle(number: int, frame: Any) -> None:
        nonlocal last_s
        del number, frame
        now_s = time.monotonic()
        is_repeated = now_s - last_s < _REPEATED_S and again.dropped is None
        last_s, again.dropped = now_s, None
        if not is_repeated:
            raise Terminated

    before = signal.signal(signal.SIGTERM, handle)
    try:
        yield
        if again.dropped is not None:  # it is about to be sent
            raise again.dropped
    except KeyboardInterrupt as stop:
        explain_stop(stop)
        raise
    finally:
        again.end()
        signal.signal(signal.SIGTERM, before)


class _SentAgain:
    """Sends a signal again whose exception Python has dropped, until :meth:`end`.

    Python drops exceptions of finalizers, and a signal may arrive while one runs: py4j has them.
    """

    def __init__(self) -> None:
        self.dropped: type[KeyboardInterrupt] | None = None
        """What was dropped, and has not been raised since."""
        self._before = sys.unraisablehook
        self._hook = self._on_dropped
        sys.unraisablehook = self._hook

    def end(self) -> None:
        """Nothing is sent any more."""
        self.dropped = None
        if sys.unraisablehook is self._hook:
            sys.unraisablehook = self._before

    def _on_dropped(self, found: sys.UnraisableHookArgs) -> None:
        if not issubclass(found.exc_type, KeyboardInterrupt):
            self._before(found)
            return
        self.dropped = found.exc_type
        # Not threading.Thread: the finalizer may run while its lock is held.
        _thread.start_new_thread(self._send, ())

    def _send(self) -> None:
        time.sleep(_AGAIN_S)
        if self.dropped is not None:
            is_term = issubclass(self.dropped, Terminated)
            os.kill(os.getpid(), signal.SIGTERM if is_term else signal.SIGINT)


@contextmanager
def signals_deferred(*, also_second: bool = False) -> Iterator[None]:
    """Inside, SIGTERM and Ctrl-C wait for the end of the block; a second Ctrl-C does not wait.

    For calls that must not be interrupted, because their effect would then be unknown.

    :param also_second: a second Ctrl-C waits, too. For steps that time limits end soon.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []

    def handle(number: int, frame: Any) -> None:
        del frame
        if number == signal.SIGINT and number in arrived and not also_second:
            raise KeyboardInterrupt
        arrived.append(number)

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if arrived:
            signal.raise_signal(arrived[0])


class StopSignals:
    """Catches SIGTERM and SIGINT from now on; a second signal of either ends the process at once.

    Signals arrive through a pipe, to which the interpreter writes immediately. A handler that sets
    a ``threading.Event`` could lose a signal: handlers run between two instructions of the main
    thread, which may be about to wait for ever, or hold the lock that the handler needs. Create one
    instance per process, in the main thread.
    """

    def __init__(self, limit_s: float | None = None) -> None:
        """:param limit_s: the process ends so long after the first signal at the latest, whatever
        its threads do, unless :meth:`end` was called. None: no limit.
        """
        self._limit_s = limit_s
        self._read, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def wait(self) -> None:
        """Waits until a signal arrives; returns at once if it has already arrived."""
        os.read(self._read, 1)

    def end(self) -> None:
        """The limit does not count any more."""
        if self._limit_s is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _handle(self, number: int, frame: Any) -> None:
        del number, frame
        for both in (signal.SIGTERM, signal.SIGINT):
            signal.signal(both, signal.SIG_DFL)
        if self._limit_s is not None:
            # The system itself ends the process, even if a thread keeps Python's lock.
            signal.setitimer(signal.ITIMER_REAL, self._limit_s)
