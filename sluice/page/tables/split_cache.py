"""Splits that were read some seconds ago: one read for all who look at a table."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import NamedTuple

from sluice.clock import Clock
from sluice.errors import RequestTimeOut
from sluice.model import TablePath
from sluice.page.tables.splits import FoundSplits

KEPT_S = 5.0
"""How long an answer is given again."""
KEPT_MAX = 20
"""Answers that are kept, the newest: one may have a thousand splits, which are about 1.3 MB."""
WAIT_S = 4.0
"""Longest wait for a read of another thread."""


class Asked(NamedTuple):
    """One page of the splits of a table."""

    path: TablePath
    offset: int
    limit: int


@dataclass(frozen=True, slots=True)
class _Read:
    began_s: float
    began_ms: int
    result: Future[FoundSplits] = field(default_factory=Future)


class SplitCache:
    """For one cluster. Safe for use by many threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # guards the rest; nobody reads under it
        self._reads: dict[Asked, _Read] = {}

    def of(self, asked: Asked, read: Callable[[], FoundSplits]) -> tuple[FoundSplits, int]:
        """The splits, and when their read began, epoch milliseconds.

        Who asks for what another thread reads just now waits for that. A failure is not kept.

        :param read: called if nothing is known.
        :raises RequestTimeOut: the read of another thread takes too long.
        :raises Exception: that of ``read``.
        """
        now_s = self._clock.monotonic_s()
        with self._lock:
            self._drop_old(now_s)
            known = self._reads.get(asked)
            if known is None:
                self._make_room()
            kept = known or _Read(now_s, self._clock.now_ms())
            self._reads[asked] = kept
        if known is None:
            try:
                kept.result.set_result(read())
            except BaseException as error:
                with self._lock:
                    self._reads.pop(asked, None)
                kept.result.set_exception(error)
        wait([kept.result], WAIT_S)
        if kept.result.done():
            return kept.result.result(), kept.began_ms
        raise RequestTimeOut(
            f"the splits of table {asked.path} are still being read after {WAIT_S:g} s"
        )

    def _drop_old(self, now_s: float) -> None:
        for asked in self._done():
            if now_s - self._reads[asked].began_s >= KEPT_S:
                del self._reads[asked]

    def _make_room(self) -> None:
        over = len(self._reads) + 1 - KEPT_MAX
        for asked in self._done()[: max(over, 0)]:
            del self._reads[asked]

    def _done(self) -> list[Asked]:
        """Those that are not being read, the oldest first."""
        return [asked for asked, each in self._reads.items() if each.result.done()]
