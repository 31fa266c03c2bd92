"""Sets up structured logs for a command."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

from sluice.json_text import json_shown
from sluice.masking import MaskingFormatter, lines, masked_values
from sluice.masking.uncaught import hide_in_tracebacks


class _Terminal(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes warnings to standard error, but not those of py4j.

    After a JVM has died, py4j logs each call with a traceback, some of them by the root logger. The
    command prints one error of its own.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        return record.module != "java_gateway" and bool(super().filter(record))


def show_warnings() -> None:
    """Writes warnings of commands that set up no logs, each as its text alone.

    It is a handler of the root logger: without one, a message of py4j would add another, which
    masks nothing. Tracebacks that nobody caught have no secrets, too.
    """
    hide_in_tracebacks()
    handler = _Terminal(sys.stderr)
    handler.setLevel(logging.WARNING)  # as logging's own handler of last resort
    handler.setFormatter(MaskingFormatter("%(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


def configure(log_format: str, level: str = "info") -> None:
    """Writes structlog events to standard error, and warnings of the standard library's loggers.

    :param log_format: ``console`` for lines to read, ``json`` for one JSON object a line.
    """
    import structlog

    own = [one for one in logging.getLogger().handlers if isinstance(one, _Terminal)]
    for handler in own or [_Terminal(sys.stderr)]:
        handler.setFormatter(MaskingFormatter("%(name)s: %(message)s"))
        logging.basicConfig(level=logging.WARNING, handlers=[handler])
    renderer: Any
    if log_format == "json":
        renderer = structlog.processors.JSONRenderer(json_shown)
    else:
        # The default formatter shows variables, which hold rows and tokens.
        renderer = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    processors: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _masked if log_format == "json" else _safe,
    ]
    structlog.configure(
        processors=[*processors, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )


def default_level(log_format: str) -> str:
    """``info``, which would disturb the other commands of a terminal: there, ``warning``."""
    return "warning" if log_format == "console" and sys.stderr.isatty() else "info"


def _masked(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> Any:
    """Masks secrets: an error of the system or of a client may quote one."""
    return masked_values(event)


def _safe(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> Any:
    """Makes control characters visible besides, before the renderer adds its colours."""
    found = masked_values(event).items()
    return {key: _indented(part) if isinstance(part, str) else part for key, part in found}


def _indented(text: str) -> str:
    """No event looks like two."""
    return lines(text).replace("\n", "\n  ")
