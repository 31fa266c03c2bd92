"""The output of spark-submit: how its lines are logged, and which one explains a failure.

Does not import Airflow.
"""

from __future__ import annotations

import logging
import re
from typing import Any

_DRIVER = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (DEBUG|INFO|WARNING|ERROR|CRITICAL) \S+ (.*)"
)
"""A line of the driver's own log: see spark_jobs/sluice_spark/tier_tables.py."""
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
_HARMLESS = re.compile(
    r"WARNING: Using incubator modules|Using Spark's default log4j profile"
    r"|.* NativeCodeLoader: Unable to load native-hadoop library"
    r"|Picked up (?:_JAVA_OPTIONS|JAVA_TOOL_OPTIONS|JDK_JAVA_OPTIONS)"
    r"|Setting (?:default|Spark) log level to|To adjust logging level use"
)
"""What nearly each start prints, and nobody can act on."""
_IVY = re.compile(
    r"::|\||-{3,}|confs:|found \S+ in \S+|downloading |\[(?:SUCCESSFUL|FAILED|NOT FOUND)"
    r"|https?://\S+$|Ivy Default Cache|The jars for the packages|(?:local|file):.* added as a dep"
    r"|\S+#\S+ (?:added as a dependency|by \S+ in)|\d+ artifacts copied|==== |tried$|retrieving "
    r"|-- artifact |\(?\d+kB|Server access error|module not found"
)
"""Output of Ivy, which looks up spark.jars.packages. Its last line explains nothing."""
_FRAME = re.compile(r"at \S|File \"|\.\.\. \d+ more|Traceback \(")
_ERROR = re.compile(
    r"Exception in thread \S+ |Caused by: |Error: |[\w.$]+(?:Error|Exception|Interrupt)\b"
)


def leveled(line: str) -> tuple[int, str]:
    """Returns the level of a line, and its text without the time and level that it begins with."""
    if _HARMLESS.match(line):
        return logging.DEBUG, line
    if found := _DRIVER.match(line):
        return _LEVELS[found[1]], found[2]
    if found := _SPARK.match(line):
        return _LEVELS[found[1]], f"Spark: {found[2]}: {found[3]}"
    return logging.INFO, line


class TellingLine:
    """Chooses, of all lines of an output, the one that explains best why it ended.

    The last error or cause of an error, else the last line that is neither of Ivy nor harmless.
    """

    def __init__(self) -> None:
        self._error = ""
        self._last = ""

    def add(self, line: str) -> None:
        text = line.strip()
        if not text or _HARMLESS.match(text) or _IVY.match(text) or _FRAME.match(text):
            return
        level, shown = leveled(text)
        if _ERROR.match(shown):
            self._error = shown
        elif level >= logging.ERROR:
            self._error = shown.removeprefix("Spark: ")
        elif level > logging.DEBUG and not shown.startswith("Spark: "):
            self._last = shown

    def __str__(self) -> str:
        return self._error or self._last


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
