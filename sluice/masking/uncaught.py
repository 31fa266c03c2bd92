"""What Python itself would print as it is: errors that nobody caught, and warnings."""

from __future__ import annotations

import logging
import sys
import threading
import traceback
import warnings
from types import TracebackType
from typing import TextIO

from sluice.masking.texts import lines


def hide_in_tracebacks() -> None:
    """From now on, such a traceback is printed on standard error without secrets.

    For the start of a program: a traceback quotes what a catalog or a storage has answered. So may
    a warning. A record of a log that cannot be formatted is lost: Python prints its raw arguments.
    """
    sys.excepthook = _print
    threading.excepthook = _print_of_thread
    sys.unraisablehook = _print_of_finalizer
    warnings.showwarning = _print_warning
    logging.raiseExceptions = False


def _print(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None, where: str = ""
) -> None:
    if sys.stderr is None:
        return
    text = "".join(traceback.format_exception(kind, error, trace))
    sys.stderr.write(where + lines(text))
    sys.stderr.flush()


def _print_of_finalizer(found: sys.UnraisableHookArgs) -> None:
    error = found.exc_value if found.exc_value is not None else found.exc_type()
    where = lines(f"{found.err_msg or 'Exception ignored in'}: {found.object!r}")
    _print(found.exc_type, error, found.exc_traceback, f"{where}\n")


def _print_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    out = file if file is not None else sys.stderr
    if out is not None:
        out.write(lines(warnings.formatwarning(message, category, filename, lineno, line)))


def _print_of_thread(found: threading.ExceptHookArgs) -> None:
    if found.exc_type is SystemExit:
        return
    name = found.thread.name if found.thread is not None else "unknown"
    error = found.exc_value if found.exc_value is not None else found.exc_type()
    _print(found.exc_type, error, found.exc_traceback, f"Exception in thread {lines(name)}:\n")
