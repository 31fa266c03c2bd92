"""Limits the duration of one try of a tier task. Does not import Airflow."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from sluice.errors import TierTimedOut
from sluice.masking import mask
from sluice.rounds.records.copy_size import CopySize
from sluice.rounds.records.json_files import read_json

log = logging.getLogger(__name__)


class TimeLimit:
    """Calls ``on_reached`` if a round takes longer than its limit. Its caller checks the time.

    KV snapshots and scans extend the limit, because a round cannot commit a part of them, and logs
    do, because they are copied for the table's freshness. Without that, each try of a large table
    would be stopped, and the next one would start from zero.
    """

    def __init__(
        self,
        base_s: float,
        size_uri: str | None,
        on_reached: Callable[[TierTimedOut], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """The time begins now.

        :param base_s: the limit in seconds for a small round; 0: no limit.
        :param size_uri: the file in which the driver leaves the round's size before it copies. It
            is read once, when ``base_s`` has passed. None: nothing extends the limit.
        """
        self._base_s = base_s
        self._size_uri = size_uri
        self._on_reached = on_reached
        self._now = now
        self._started_s = now()
        self._size: CopySize | None = None

    def check(self) -> float | None:
        """Checks the time; returns the seconds left, None if the limit is reached or missing."""
        if self._base_s <= 0:
            return None
        if (left_s := self._left_s()) > 0:
            return left_s
        if self._size is None:
            self._size = self._read_size()
            if (left_s := self._left_s()) > 0:
                log.info("this try may take %s", self)
                return left_s
        self._on_reached(
            TierTimedOut(
                f"this try took longer than {self}; raise tier_timeout_seconds, an option of"
                " section sluice and an argument of the DAG file, if the driver was still working"
            )
        )
        return None

    def __str__(self) -> str:
        """The limit in seconds and its parts."""
        base = f"{self._base_s:g} s (tier_timeout_seconds)"
        if self._size is None or not self._size.seconds:
            return base
        return f"{self._base_s + self._size.seconds:.0f} s: {base} and {self._size}"

    def _left_s(self) -> float:
        extra_s = self._size.seconds if self._size else 0.0
        return self._started_s + self._base_s + extra_s - self._now()

    def _read_size(self) -> CopySize:
        try:
            content = read_json(self._size_uri) if self._size_uri else None
            return CopySize() if content is None else CopySize.from_json(content)
        except Exception as error:  # some file systems raise errors of their own
            log.warning("cannot read %s: %s", self._size_uri, mask(str(error)))
            return CopySize()
