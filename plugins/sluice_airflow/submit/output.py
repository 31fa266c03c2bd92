"""The lines that spark-submit prints, and how they are logged.

Does not import Airflow.
"""

from __future__ import annotations

import logging
import re
from typing import Any

_DRIVER = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (DEBUG|INFO|WARNING|ERROR|CRITICAL) \S+ (.*)"
)
"""A line of the driver's own log: see sluice/driver/spark/phase_log.py."""
_SPARK = re.compile(
    r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d (TRACE|DEBUG|INFO|WARN|ERROR|FATAL) (\S+?): (.*)"
)
"""A line of Spark's default log format."""
_LEVELS = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "WARNING": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.ERROR,
    "CRITICAL": logging.ERROR,
}
HARMLESS = re.compile(
    r"WARNING: Using incubator modules|Using Spark's default log4j profile"
    r"|.* NativeCodeLoader: Unable to load native-hadoop library"
    r"|Picked up (?:_JAVA_OPTIONS|JAVA_TOOL_OPTIONS|JDK_JAVA_OPTIONS)"
    r"|Setting (?:default|Spark) log level to|To adjust logging level use"
)
"""What nearly each start prints, and nobody can act on."""


def leveled(line: str) -> tuple[int, str]:
    """Returns the level of a line, and its text without the time and level that it begins with."""
    if HARMLESS.match(line):
        return logging.DEBUG, line
    if found := _DRIVER.match(line):
        return _LEVELS[found[1]], found[2]
    if found := _SPARK.match(line):
        return _LEVELS[found[1]], f"Spark: {found[2]}: {found[3]}"
    return logging.INFO, line


class LeveledLog:
    """A logger that logs a line of spark-submit at the level that the line itself names."""

    def __init__(self, log: Any) -> None:
        self._log = log

    def info(self, event: Any, *args: Any, **kwargs: Any) -> None:
        if args or kwargs or not isinstance(event, str):
            self._log.info(event, *args, **kwargs)
            return
        level, text = leveled(event)
        if text:
            self._log.log(level, "%s", text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)
