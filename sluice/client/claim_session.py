"""Claims tables one after the other, and holds those that are not wanted until all is claimed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import TracebackType

from sluice.client.heartbeats import Heartbeats, HeartbeatSender
from sluice.errors import FlussError, NetworkError, RequestTimeOut
from sluice.model import Claim

_LOG = logging.getLogger(__name__)

HELD_MAX = 10_000
"""Most tables held while others are looked for."""


class ClaimSession:
    """A real Fluss hands out any table, and one that is given back at once comes again at once.

    So what is not wanted (not asked for, paused, waiting after a failure) is held and heartbeated
    while the block lasts, and goes back once, at its end: each table comes once. Beside them what
    is wanted is heartbeated too, until all have gone back. For one thread.
    """

    def __init__(
        self,
        take: Callable[[], Claim | None],
        why_not: Callable[[Claim], str | None],
        give_back: Callable[[Claim, str], None],
        beats: HeartbeatSender,
    ) -> None:
        """:param take: the next table that the coordinator hands out.
        :param why_not: why a table is not wanted now; None: it is.
        :param give_back: called once for each table that is not, with that reason.
        """
        self._take, self._why_not, self._give_back = take, why_not, give_back
        self._heartbeats = Heartbeats(beats)
        self._beating = False
        self._held: dict[int, tuple[Claim, str]] = {}

    def next(self) -> Claim | None:
        """The next table that is wanted; None if none is left."""
        while len(self._held) < HELD_MAX:
            claim = self._take()
            if claim is None:
                return None
            reason = self._why_not(claim)
            if reason is None:
                self._heartbeats.add(claim)  # its holder begins when the others have gone back
                return claim
            again = claim.table_id in self._held
            self._hold(claim, reason)
            if again:  # it was taken back and comes anew: whatever waits has been seen
                return None
        return None

    def _hold(self, claim: Claim, reason: str) -> None:
        self._held[claim.table_id] = (claim, reason)
        self._heartbeats.add(claim)
        if not self._beating:
            self._beating = True
            self._heartbeats.start()

    def __enter__(self) -> ClaimSession:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._all_back()
        finally:
            if self._beating:
                self._heartbeats.stop()

    def _all_back(self) -> None:
        for at, (claim, reason) in enumerate(self._held.values()):
            self._heartbeats.remove(claim)
            try:
                self._give_back(claim, reason)
            except (NetworkError, RequestTimeOut) as failed:
                # Each further call would wait as long; what is silent goes back by itself.
                _LOG.warning(
                    "%d tables are not handed back, the coordinator takes them back when it has"
                    " heard nothing for a while: %s",
                    len(self._held) - at,
                    failed,
                )
                return
            except FlussError as failed:
                _LOG.warning("table %s was not wanted and not handed back: %s", claim.path, failed)
