"""Limits the duration of one try of a tier task. Does not import Airflow."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from sluice.errors import TierTimedOut
from sluice.masking import mask
from sluice.rounds.copy_size import CopySize
from sluice.rounds.files import read_json

log = logging.getLogger(__name__)


class TimeLimit:
    """Calls ``on_reached`` once, on another thread, if its block takes longer than the limit.

    KV snapshots and scans extend the limit, because a round cannot commit a part of them, and logs
    do, because they are copied for the table's freshness. Without that, each try of a large table
    would be stopped, and the next one would start from zero.
    """

    def __init__(
        self,
        base_s: float,
        size_uri: str,
        on_reached: Callable[[TierTimedOut], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """:param base_s: the limit in seconds for a small round; 0: no limit.
        :param size_uri: the file in which the driver leaves the round's size before it copies. It
            is read once, when ``base_s`` has passed.
        """
        self._base_s = base_s
        self._size_uri = size_uri
        self._on_reached = on_reached
        self._now = now
        self._started_s = now()
        self._size: CopySize | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sluice-time-limit", daemon=True)

    def __enter__(self) -> TimeLimit:
        if self._base_s > 0:
            self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(5.0)

    def check(self) -> float | None:
        """Checks the time once; returns the seconds until the next check, None after the last."""
        if (left_s := self._left_s()) > 0:
            return left_s
        if self._size is None:
            self._size = self._read_size()
            if (left_s := self._left_s()) > 0:
                log.info("this try may take %s", self)
                return left_s
        self._on_reached(
            TierTimedOut(
                f"this try took longer than {self}; raise tier_timeout_seconds if the driver was"
                " still working"
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
            content = read_json(self._size_uri)
            return CopySize() if content is None else CopySize.from_json(content)
        except Exception as error:  # some file systems raise errors of their own
            log.warning("cannot read %s: %s", self._size_uri, mask(str(error)))
            return CopySize()

    def _run(self) -> None:
        while (wait_s := self.check()) is not None:
            if self._stop.wait(wait_s):
                return
