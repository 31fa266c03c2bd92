"""Tracebacks of errors that nobody caught, which Python itself would print as they are."""

from __future__ import annotations

import sys
import threading
import traceback
from types import TracebackType

from sluice.masking.texts import lines


def hide_in_tracebacks() -> None:
    """From now on, such a traceback is printed on standard error without secrets.

    For the start of a program: a traceback quotes what a catalog or a storage has answered.
    """
    sys.excepthook = _print
    threading.excepthook = _print_of_thread


def _print(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None, where: str = ""
) -> None:
    if sys.stderr is None:
        return
    text = "".join(traceback.format_exception(kind, error, trace))
    sys.stderr.write(where + lines(text))
    sys.stderr.flush()


def _print_of_thread(found: threading.ExceptHookArgs) -> None:
    if found.exc_type is SystemExit:
        return
    name = found.thread.name if found.thread is not None else "unknown"
    error = found.exc_value if found.exc_value is not None else found.exc_type()
    _print(found.exc_type, error, found.exc_traceback, f"Exception in thread {lines(name)}:\n")
