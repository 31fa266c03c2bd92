"""Errors of files in the work folder, which end no task. Does not import Airflow."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from sluice.errors import SluiceError
from sluice.masking import mask

log = logging.getLogger(__name__)

UNREADABLE = (OSError, SluiceError, ValueError, TypeError, KeyError, ImportError)
"""Errors of reading a file: storage, version, JSON, or a file system that is not installed."""


@contextmanager
def logged(what: str, *more: type[Exception]) -> Iterator[None]:
    """Ends its block at such an error, and logs ``cannot WHAT: ERROR``.

    :param more: other errors that it catches, too.
    """
    caught: tuple[type[Exception], ...] = (*UNREADABLE, *more)
    try:
        yield
    except caught as error:
        log.warning("cannot %s: %s", what, mask(str(error)))
