"""Logs the phases of a table's round as they end: one line each, with rows and rates.

A phase without rows that took less than 50 ms has no line of its own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from sluice.masking import MaskingFormatter
from sluice.masking.uncaught import hide_in_tracebacks
from sluice.quantities import counted
from sluice.rounds.records.log_line import SHORT_S, rate

_LOG = logging.getLogger(__name__)


def begin_log() -> None:
    """Begins the log of a driver's process, on standard error and without secrets."""
    hide_in_tracebacks()
    handler = logging.StreamHandler()
    handler.setFormatter(MaskingFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("py4j").setLevel(logging.WARNING)


class PhaseLog:
    """A Progress for a log that several tables share: each line names its table.

    Used by the round's thread, ``copied`` also by copying threads.
    """

    def __init__(self, table: str, now: Callable[[], float] = time.monotonic) -> None:
        """:param now: returns seconds of a clock that never goes back."""
        self._table = table
        self._now = now
        self._phase = ""
        self._began_s = 0.0
        self._splits = self._offsets = 0
        self.copied_by = ""
        """What copies the rows, set when the copy begins. Empty: nothing was copied."""

    def phase(self, name: str) -> None:
        """Logs the phase before. The last one is in the line of the result."""
        now_s = self._now()
        if self._phase:
            self._log(self._phase, now_s - self._began_s)
        self._phase, self._began_s = name, now_s

    def planned(self, splits: int, offsets: int) -> None:
        self._splits, self._offsets = splits, offsets

    def copied(self, rows: int) -> None:
        """Does nothing: only the driver's own threads report, executors do not."""

    def _log(self, phase: str, spent_s: float) -> None:
        more = ""
        if phase == "plan" and self._splits:
            more = f": {self._offsets:,} offsets in {counted(self._splits, 'split')}"
        if phase == "copy":
            by = f" by {self.copied_by}" if self.copied_by else ""
            more = f": {self._offsets:,} offsets{by}{rate(self._offsets, spent_s)}"
        if more or spent_s >= SHORT_S:  # the others are in the line of the result
            _LOG.info("%s: %s took %.2f s%s", self._table, phase, spent_s, more)
