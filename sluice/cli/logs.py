"""Sets up structured logs for a command."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

from sluice.masking import MaskingFormatter, mask


def configure(log_format: str, level: str = "info") -> None:
    """Writes structlog events to standard error, and warnings of the standard library's loggers.

    :param log_format: ``console`` for lines to read, ``json`` for one JSON object a line.
    """
    import structlog

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(MaskingFormatter("%(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    renderer: Any
    if log_format == "json":
        renderer = structlog.processors.JSONRenderer()
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
        _masked,
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
    return {key: mask(value) if isinstance(value, str) else value for key, value in event.items()}
