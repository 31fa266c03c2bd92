"""Renews a lease in the background and reports its loss."""

from __future__ import annotations

import logging
import random as random_module
import threading
import time
from collections.abc import Callable

from sluice.errors import FlussError, LeaseLost, LeaseNotExist

_LOG = logging.getLogger(__name__)

_RENEWALS = 3
"""Minimum number of renewals within the duration of a lease."""
_INTERVAL_MAX_S = 60.0
"""Longest time between two renewals; a dropped lease is detected within it."""
_RETRIES = 10
"""Number of renewals in the remaining time after one has failed."""
_RETRY_MIN_S = 0.05


class LeaseKeeper:
    """Renews one lease from a background thread, from when it was acquired.

    The lease is lost when the coordinator reports that it does not exist, or when no renewal
    succeeded during its full duration, even while a call hangs. A lost lease stays lost. An Apache
    Fluss coordinator never reports a missing lease: there, a renewal creates a new one.
    """

    def __init__(
        self,
        lease_id: str,
        duration_ms: int,
        renew: Callable[[], None],
        *,
        on_lost: Callable[[LeaseLost], None] | None = None,
        acquired_at: float | None = None,
        now: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = random_module.random,
    ) -> None:
        """:param renew: renews once, without retries; raises a FlussError on failure.
        :param on_lost: called once, on the thread that detected the loss.
        :param acquired_at: when the acquire request was sent, by the clock ``now``.
        """
        self.lease_id = lease_id
        self._duration_s = duration_ms / 1000
        self._renew = renew
        self._on_lost = on_lost
        self._now, self._random = now, random
        self._changed = threading.Condition()  # guards what follows
        self._held_until = (now() if acquired_at is None else acquired_at) + self._duration_s
        self._failure: FlussError | None = None
        self._lost: LeaseLost | None = None
        self._stopped = False
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> LeaseKeeper:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Starts the renewals; may be called once."""
        assert not self._threads, "the keeper is already started"
        self._threads = [
            threading.Thread(target=self._run, name="sluice-lease-renew", daemon=True),
            threading.Thread(target=self._watch, name="sluice-lease-watch", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Ends the threads; from now on no loss is reported.

        Waits at most ``timeout_s`` for a renewal that is being sent.
        """
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._stop.set()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(timeout_s)

    @property
    def lost(self) -> LeaseLost | None:
        """Why the lease is lost; None while it is held."""
        self._check_expiry()
        with self._changed:
            return self._lost

    def check(self) -> None:
        """Raises an error if the lease was lost.

        :raises LeaseLost: the lease was lost.
        """
        lost = self.lost
        if lost is not None:
            raise LeaseLost(lost.message)

    def wait_lost(self, timeout_s: float) -> bool:
        """Waits at most ``timeout_s`` for the loss of the lease; returns whether it is lost."""
        with self._changed:
            return self._changed.wait_for(lambda: self._lost is not None, timeout_s)

    def renew(self) -> None:
        """Renews the lease now, as the thread does at each interval."""
        sent_at = self._now()
        try:
            self._renew()
        except LeaseNotExist as error:
            self._lose(f"the coordinator reports: {error}")
        except FlussError as error:
            with self._changed:
                self._failure = error
            _LOG.info("lease %s was not renewed, trying again: %s", self.lease_id, error)
            self._check_expiry()
        else:
            with self._changed:
                # Counted from when it was sent: the coordinator cannot have received it earlier.
                self._held_until = max(self._held_until, sent_at + self._duration_s)
                self._failure = None

    def _check_expiry(self) -> None:
        with self._changed:
            late, failure = self._now() - self._held_until, self._failure
        if late >= 0:
            why = "the coordinator sent no response" if failure is None else str(failure)
            silent_s = late + self._duration_s
            self._lose(f"no renewal succeeded for {silent_s:.0f} s: {why}")

    def _lose(self, reason: str) -> None:
        with self._changed:
            if self._lost is not None or self._stopped:
                return
            lost = self._lost = LeaseLost(
                f"lease {self.lease_id} is lost, its KV snapshots may be deleted: {reason}"
            )
            self._changed.notify_all()
        self._stop.set()
        _LOG.warning("%s", lost)
        if self._on_lost is not None:
            self._on_lost(lost)

    def _pause_s(self) -> float:
        with self._changed:
            if self._failure is not None:
                left_s = self._held_until - self._now()
                return max(left_s / _RETRIES, _RETRY_MIN_S)
        # Jitter spreads the renewals of many tasks over time.
        interval_s = min(self._duration_s / _RENEWALS, _INTERVAL_MAX_S)
        return interval_s * (0.5 + 0.5 * self._random())

    def _run(self) -> None:
        while not self._stop.wait(self._pause_s()):
            try:
                self.renew()
            except Exception:  # a broken callback must not end the renewals
                _LOG.exception("lease %s was not renewed, trying again", self.lease_id)

    def _watch(self) -> None:
        """Detects the end of the lease while a renewal hangs."""
        while True:
            with self._changed:
                left_s = self._held_until - self._now()
                if self._stopped or self._lost is not None:
                    return
                if left_s > 0:
                    self._changed.wait(left_s)
                    continue
            self._check_expiry()
