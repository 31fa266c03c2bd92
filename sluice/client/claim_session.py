"""Claims several tables in turn and holds unsuitable ones until the session ends."""

from __future__ import annotations

import logging
from collections.abc import Callable

from sluice.client.heartbeats import Heartbeats, HeartbeatSender
from sluice.errors import FlussError, NetworkError, RequestTimeOut
from sluice.model import Claim

_LOG = logging.getLogger(__name__)

HELD_MAX = 10_000
"""Maximum number of tables held in one session."""


class ClaimSession:
    """Claims tables one by one inside a ``with`` block; for one thread.

    An Apache Fluss coordinator assigns any due table, and a table released at once is assigned
    again at once. So the session holds the claims of unsuitable tables (not requested, paused, or
    waiting after a failure) until the block ends, and sends their heartbeats. Then it releases
    them. Until then it also sends the heartbeats of the suitable tables.
    """

    def __init__(
        self,
        take: Callable[[], Claim | None],
        why_not: Callable[[Claim], str | None],
        give_back: Callable[[Claim, str], None],
        beats: HeartbeatSender,
    ) -> None:
        """:param take: claims the next table that the coordinator assigns.
        :param why_not: returns why a table is unsuitable now; None if it is suitable.
        :param give_back: called once for each unsuitable table, with that reason.
        """
        self._take, self._why_not, self._give_back = take, why_not, give_back
        self._heartbeats = Heartbeats(beats)
        self._beating = False
        self._held: dict[int, tuple[Claim, str]] = {}

    def next(self) -> Claim | None:
        """Claims the next suitable table; None if none is left."""
        while len(self._held) < HELD_MAX:
            claim = self._take()
            if claim is None:
                return None
            try:
                reason = self._why_not(claim)
            except Exception as error:
                self._hold(claim, str(error))  # released with the others
                raise
            if reason is None:
                self._heartbeats.add(claim)  # its round starts when the others are released
                return claim
            again = claim.table_id in self._held
            self._hold(claim, reason)
            if again:  # revoked and assigned again: every due table was seen
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

    def __exit__(self, *_: object) -> None:
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
                # Every further call would wait as long. Claims without heartbeats expire anyway.
                _LOG.warning(
                    "the claims of %d tables could not be released; the coordinator revokes them"
                    " without heartbeats: %s",
                    len(self._held) - at,
                    failed,
                )
                return
            except FlussError as failed:
                _LOG.warning(
                    "table %s: the unsuitable claim could not be released: %s", claim.path, failed
                )
