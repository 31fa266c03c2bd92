"""What Sluice logs inside Airflow: no secrets, and no line that looks like another record.

Airflow decides where records go. So they are made safe where they are made: those of Sluice's
modules by a factory of log records, which an import of this module sets, and those of operators and
triggers by their ``log``. Does not import Airflow.
"""

from __future__ import annotations

import logging
import traceback
from typing import Any

from sluice.masking import record_lines

PACKAGES = ("sluice", "sluice_airflow")
LEVELS = ("debug", "info", "warning", "error")
_UNREADABLE = "a log message of Sluice cannot be formatted"


def mask_records() -> None:
    """From now on, log records of Sluice's modules are masked. A second call does nothing."""
    before = logging.getLogRecordFactory()
    if getattr(before, "masks_sluice", False):
        return

    def made(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = before(*args, **kwargs)
        # Copies of records are made without a name at first.
        if record.name and record.name.partition(".")[0] in PACKAGES:
            record.msg, record.args = _text_of(record), ()
            record.exc_info = record.exc_text = record.stack_info = None
        return record

    made.masks_sluice = True  # type: ignore[attr-defined]
    logging.setLogRecordFactory(made)


def _text_of(record: logging.LogRecord) -> str:
    """The message, with the traceback below it."""
    try:
        found = [record.getMessage()]
    except Exception:  # logging would print the values as they are
        found = [_UNREADABLE]
    if record.exc_info and record.exc_info[0] is not None:
        found.append("".join(traceback.format_exception(*record.exc_info)))
    if record.stack_info:
        found.append(record.stack_info)
    return record_lines("\n".join(found).rstrip("\n"))


class MaskedLogs:
    """A base of operators and triggers, before that of Airflow: what they log is masked."""

    @property
    def log(self) -> Any:
        return _MaskedLog(super().log)  # type: ignore[misc]


class _MaskedLog:
    """A logger of Airflow. It is given whole messages, without values to put in."""

    def __init__(self, log: Any) -> None:
        self._log = log

    def log(self, level: int, event: Any, *values: Any, **more: Any) -> None:
        self._log.log(level, _message(event, values), **more)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._log, name)
        if name not in LEVELS:
            return found
        return lambda event, *values, **more: found(_message(event, values), **more)


def _message(event: Any, values: tuple[Any, ...]) -> str:
    try:
        text = str(event) % values if values else str(event)
    except (TypeError, ValueError):
        text = _UNREADABLE
    return record_lines(text.rstrip("\n"))


mask_records()
