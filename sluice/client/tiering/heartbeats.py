"""Sends the heartbeats of claims in the background and reports lost claims."""

from __future__ import annotations

import logging
import random as random_module
import threading
import time
from collections.abc import Callable
from typing import Protocol

from sluice.client.connection.heartbeat_entries import LIVENESS_TIMEOUT_S
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


_BEATS_PER_TIMEOUT = 3
"""How many heartbeats are sent at least in the time after which a claim without one is lost."""


def beat_interval_s(interval_s: float, claim_timeout_s: float | None) -> float:
    """The time between two heartbeats: shorter than requested if the coordinator needs that.

    :param claim_timeout_s: as :attr:`TieringClient.claim_timeout_s`.
    """
    if claim_timeout_s is None:
        return interval_s
    return min(interval_s, claim_timeout_s / _BEATS_PER_TIMEOUT)


class HeartbeatSender(Protocol):
    """The part of a TieringClient that Heartbeats uses."""

    @property
    def claim_timeout_s(self) -> float | None: ...

    def heartbeat(
        self, claims: list[Claim], *, retry: bool = True
    ) -> dict[int, FlussError | None]: ...


class Heartbeats:
    """Sends the heartbeats of several claims from one background thread.

    A failed heartbeat is sent again after the interval. A claim is lost when the coordinator
    reports it (codes 23, 7, 50), or when no heartbeat succeeded for as long as the coordinator
    waits for one: by then it has revoked the claim.
    """

    def __init__(
        self,
        tiering: HeartbeatSender,
        interval_s: float = 20.0,
        *,
        on_lost: Callable[[Claim, ClaimLost], None] | None = None,
        now: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = random_module.random,
    ) -> None:
        """:param interval_s: maximum time between two heartbeats, in seconds; it is less if the
            coordinator waits for a shorter time (:func:`beat_interval_s`).
        :param on_lost: called once for each lost claim, on the thread that detected it.
        """
        self._tiering = tiering
        self._interval_s = interval_s
        self._on_lost = on_lost
        self._now, self._random = now, random
        self._changed = threading.Condition()  # guards what follows
        self._alive_at: dict[Claim, float] = {}
        self._lost: dict[Claim, ClaimLost] = {}
        self._has_asked = False
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
        with self._changed:
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def add(self, claim: Claim) -> None:
        """Adds a claim that was assigned, or had a heartbeat, just now."""
        with self._changed:
            self._alive_at[claim] = self._now()
            self._changed.notify_all()

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
            self._has_asked = self._has_asked or bool(claims)
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
                elif silent_s >= (self._tiering.claim_timeout_s or LIVENESS_TIMEOUT_S):
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
        while self._wait_for_beat():
            try:
                self.beat()
            except Exception:  # a broken callback must not affect the other claims
                _LOG.exception("heartbeat failed; it is sent again after the interval")

    def _wait_for_beat(self) -> bool:
        """Waits until the next heartbeat is due; False: the thread ends."""
        # Jitter spreads the heartbeats of many tasks over time.
        share, began = 0.5 + 0.5 * self._random(), self._now()
        with self._changed:
            while not self._stop.is_set():
                timeout_s = self._tiering.claim_timeout_s
                if timeout_s is None and self._alive_at and not self._has_asked:
                    return True  # the first answer may say that the interval is too long
                left_s = began + share * beat_interval_s(self._interval_s, timeout_s) - self._now()
                if left_s <= 0:
                    return True
                self._changed.wait(left_s)
        return False


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
