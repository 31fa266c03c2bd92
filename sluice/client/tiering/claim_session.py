"""Claims several tables in turn and holds unsuitable ones until the session ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from sluice.client.tiering.heartbeats import Heartbeats, HeartbeatSender
from sluice.errors import FlussError, NetworkError, RequestTimeOut
from sluice.model import Claim
from sluice.statuses.recorded import ASSIGNED_AGAIN

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
        why_not: Callable[[Sequence[Claim]], Sequence[str | None]],
        give_back: Callable[[Claim, str], None],
        beats: HeartbeatSender,
    ) -> None:
        """:param take: claims the next table that the coordinator assigns.
        :param why_not: returns for each table why it is unsuitable now; None if it is suitable.
        :param give_back: called once for each unsuitable table, with that reason.
        """
        self._take, self._why_not, self._give_back = take, why_not, give_back
        self._heartbeats = Heartbeats(beats)
        self._beating = False
        self._is_over = False
        self._held: dict[int, tuple[Claim, str]] = {}
        self._taken: set[Claim] = set()

    def next(self) -> Claim | None:
        """Claims the next suitable table; None if none is left."""
        found = self.take(1)
        return found[0] if found else None

    def take(self, most: int) -> list[Claim]:
        """Claims up to ``most`` suitable tables; fewer if no more are left.

        Whether they are suitable is asked of all at once. If that fails, their claims go back with
        the others: also one that another worker holds, whose round then ends with
        :class:`~sluice.errors.FencedTieringEpoch`.
        """
        suitable: list[Claim] = []
        claims: list[Claim] = []
        try:
            while len(suitable) < most and len(self._held) < HELD_MAX and not self._is_over:
                claims = []
                wanted = most - len(suitable)
                self._take_some(wanted, claims)
                suitable += self._suitable(claims)
                if len(claims) < wanted:
                    break
        except Exception as error:
            for claim in dict.fromkeys((*suitable, *claims)):
                self._hold(claim, str(error))  # released with the others
            raise
        return suitable

    def _take_some(self, most: int, claims: list[Claim]) -> None:
        for _ in range(HELD_MAX):
            claim = self._take() if len(claims) < most else None
            if claim is None:
                return
            if claim in self._taken:  # from an old entry of the queue, see is_assigned_again
                continue
            self._taken.add(claim)
            claims.append(claim)
            self._heartbeats.add(claim)  # its round starts when the others are released
            if most > 1:
                self._beat()

    def _suitable(self, claims: Sequence[Claim]) -> list[Claim]:
        """Those of the claims that are suitable; holds the others."""
        suitable = []
        for claim, reason in zip(claims, self._why_not(claims) if claims else (), strict=True):
            if reason is None:
                suitable.append(claim)
                continue
            if reason == ASSIGNED_AGAIN:
                self._heartbeats.remove(claim)  # its worker sends them as long as it lives
                continue
            if claim.table_id in self._held:
                self._is_over = True  # revoked and assigned again: every due table was seen
            self._hold(claim, reason)
        return suitable

    def _hold(self, claim: Claim, reason: str) -> None:
        self._held[claim.table_id] = (claim, reason)
        self._heartbeats.add(claim)
        self._beat()

    def _beat(self) -> None:
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
