"""Sends the heartbeats of claims in the background and reports lost claims."""

from __future__ import annotations

import logging
import random as random_module
import threading
import time
from collections.abc import Callable
from typing import Protocol

from sluice.errors import (
    ClaimLost,
    FencedTieringEpoch,
    FlussError,
    InvalidCoordinator,
    TableNotExist,
)
from sluice.model import Claim

_LOG = logging.getLogger(__name__)

CLAIM_LOST = (InvalidCoordinator, TableNotExist, FencedTieringEpoch)
"""Errors (codes 23, 7, 50) with which the coordinator reports that a claim is permanently lost."""

LIVENESS_TIMEOUT_S = 120.0
"""The coordinator revokes a claim after this time without a heartbeat, in seconds.

See docs/fluss/tiering.md#timers
"""


class HeartbeatSender(Protocol):
    """The part of a TieringClient that Heartbeats uses."""

    def heartbeat(
        self, claims: list[Claim], *, retry: bool = True
    ) -> dict[int, FlussError | None]: ...


class Heartbeats:
    """Sends the heartbeats of several claims from one background thread.

    A failed heartbeat is sent again after the interval. A claim is lost when the coordinator
    reports it (codes 23, 7, 50), or when no heartbeat succeeded for ``liveness_timeout_s``: by then
    the coordinator has revoked the claim.
    """

    def __init__(
        self,
        tiering: HeartbeatSender,
        interval_s: float = 20.0,
        *,
        on_lost: Callable[[Claim, ClaimLost], None] | None = None,
        liveness_timeout_s: float = LIVENESS_TIMEOUT_S,
        now: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = random_module.random,
    ) -> None:
        """:param interval_s: maximum time between two heartbeats, in seconds.
        :param on_lost: called once for each lost claim, on the thread that detected it.
        """
        self._tiering = tiering
        self._interval_s = interval_s
        self._on_lost = on_lost
        self._liveness_timeout_s = liveness_timeout_s
        self._now, self._random = now, random
        self._changed = threading.Condition()  # guards _alive_at and _lost
        self._alive_at: dict[Claim, float] = {}
        self._lost: dict[Claim, ClaimLost] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Heartbeats:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Starts the background thread; may be called once."""
        assert self._thread is None, "heartbeats are already started"
        self._thread = threading.Thread(target=self._run, name="sluice-heartbeats", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Ends the thread; waits at most ``timeout_s`` for a heartbeat that is being sent."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def add(self, claim: Claim) -> None:
        """Adds a claim that was assigned, or had a heartbeat, just now."""
        with self._changed:
            self._alive_at[claim] = self._now()

    def remove(self, claim: Claim) -> None:
        """Removes a claim: its round was reported, or another process continues it."""
        with self._changed:
            self._alive_at.pop(claim, None)
            self._lost.pop(claim, None)

    def check(self, claim: Claim) -> None:
        """Raises an error if the claim was lost.

        :raises ClaimLost: the claim was lost.
        """
        with self._changed:
            lost = self._lost.get(claim)
        if lost is not None:
            raise ClaimLost(lost.message)

    def wait_lost(self, claim: Claim, timeout_s: float) -> bool:
        """Waits at most ``timeout_s`` for the loss of the claim; returns whether it is lost."""
        with self._changed:
            return self._changed.wait_for(lambda: claim in self._lost, timeout_s)

    def beat(self) -> None:
        """Sends one heartbeat for all claims now, as the thread does at each interval."""
        with self._changed:
            claims = list(self._alive_at)
        if not claims:
            return
        sent_at = self._now()
        for together in by_table(claims):
            try:
                answers = self._tiering.heartbeat(together, retry=False)
            except FlussError as error:
                answers = {claim.table_id: error for claim in together}
                self._judge(together, answers, sent_at, answered=False)
            else:
                self._judge(together, answers, sent_at, answered=True)

    def _judge(
        self,
        claims: list[Claim],
        answers: dict[int, FlussError | None],
        sent_at: float,
        *,
        answered: bool,
    ) -> None:
        lost: list[tuple[Claim, ClaimLost]] = []
        with self._changed:
            for claim in claims:
                if claim not in self._alive_at:
                    continue  # removed in the meantime
                error = answers[claim.table_id]
                if error is None:
                    # Counted from the sending: the coordinator cannot have received it earlier.
                    self._alive_at[claim] = max(self._alive_at[claim], sent_at)
                    continue
                silent_s = self._now() - self._alive_at[claim]
                if answered and isinstance(error, CLAIM_LOST):
                    reason = f"the coordinator reports: {error}"
                elif silent_s >= self._liveness_timeout_s:
                    reason = f"no heartbeat succeeded for {silent_s:.0f} s: {error}"
                else:
                    continue
                found = ClaimLost(
                    f"claim of {claim.path} (table {claim.table_id}, tiering epoch"
                    f" {claim.tiering_epoch}) is lost: {reason}"
                )
                del self._alive_at[claim]
                self._lost[claim] = found
                lost.append((claim, found))
            if lost:
                self._changed.notify_all()
        for claim, found in lost:
            if self._on_lost is not None:
                self._on_lost(claim, found)

    def _run(self) -> None:
        # Jitter spreads the heartbeats of many tasks over time.
        while not self._stop.wait(self._interval_s * (0.5 + 0.5 * self._random())):
            try:
                self.beat()
            except Exception:  # a broken callback must not affect the other claims
                _LOG.exception("heartbeat failed; it is sent again after the interval")


def by_table(claims: list[Claim]) -> list[list[Claim]]:
    """Groups claims so that no group has two of one table: a response names the table id only.

    Nearly always one group.
    """
    groups: list[dict[int, Claim]] = []
    for claim in claims:
        group = next((group for group in groups if claim.table_id not in group), None)
        if group is None:
            group = {}
            groups.append(group)
        group[claim.table_id] = claim
    return [list(group.values()) for group in groups]
