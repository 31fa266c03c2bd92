"""Renews a lease in the background, and says at once when it is lost."""

from __future__ import annotations

import logging
import random as random_module
import threading
import time
from collections.abc import Callable
from types import TracebackType

from sluice.errors import FlussError, LeaseLost, LeaseNotExist

_LOG = logging.getLogger(__name__)

_RENEWALS = 3
"""How many renewals are begun at least in a lease's duration, if all goes well."""
_INTERVAL_MAX_S = 60.0
"""Longest time between two renewals: so soon a lease that somebody dropped is found lost."""
_RETRIES = 10
"""How many are begun, once one has failed, in what is left of it."""
_RETRY_MIN_S = 0.05


class LeaseKeeper:
    """Keeps one lease that was acquired just now.

    It is lost when the coordinator says that there is no such lease, or when no renewal has got
    through for its whole duration: that is seen even while a call hangs. A lost lease stays lost.
    A real Fluss never says so, and takes a renewal of what is gone for a new lease.
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
        """:param renew: one attempt, without retries; raises what is wrong.
        :param on_lost: called once, on the thread that found out.
        :param acquired_at: when the acquire was sent, by ``now``.
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Begins to renew; may be called once."""
        assert not self._threads, "the keeper was started before"
        self._threads = [
            threading.Thread(target=self._run, name="sluice-lease-renew", daemon=True),
            threading.Thread(target=self._watch, name="sluice-lease-watch", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Ends the threads: nothing is found lost from now on.

        Waits for a renewal under way, but no longer than the time-out.
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
        self._look()
        with self._changed:
            return self._lost

    def check(self) -> None:
        """:raises LeaseLost: if the lease was lost."""
        lost = self.lost
        if lost is not None:
            raise LeaseLost(lost.message)

    def wait_lost(self, timeout_s: float) -> bool:
        """Waits until the lease is lost, at most that long; answers whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: self._lost is not None, timeout_s)

    def renew(self) -> None:
        """Renews once, now; the thread does nothing else."""
        sent_at = self._now()
        try:
            self._renew()
        except LeaseNotExist as error:
            self._lose(f"the coordinator answers: {error}")
        except FlussError as error:
            with self._changed:
                self._failure = error
            _LOG.info("lease %s is not renewed yet: %s", self.lease_id, error)
            self._look()
        else:
            with self._changed:
                # Counted from the sending: the coordinator cannot have seen it earlier.
                self._held_until = max(self._held_until, sent_at + self._duration_s)
                self._failure = None

    def _look(self) -> None:
        with self._changed:
            late, failure = self._now() - self._held_until, self._failure
        if late >= 0:
            why = "no answer has come" if failure is None else str(failure)
            silent_s = late + self._duration_s
            self._lose(f"no renewal got through for {silent_s:.0f} s: {why}")

    def _lose(self, reason: str) -> None:
        with self._changed:
            if self._lost is not None or self._stopped:
                return
            lost = self._lost = LeaseLost(
                f"lease {self.lease_id} is lost, its KV snapshots may be gone: {reason}"
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
        # Jitter keeps the keepers of many tasks from renewing in step.
        interval_s = min(self._duration_s / _RENEWALS, _INTERVAL_MAX_S)
        return interval_s * (0.5 + 0.5 * self._random())

    def _run(self) -> None:
        while not self._stop.wait(self._pause_s()):
            try:
                self.renew()
            except Exception:  # a broken callback must not end the renewals
                _LOG.exception("lease %s is not renewed yet", self.lease_id)

    def _watch(self) -> None:
        """Sees the end of the lease while a renewal hangs."""
        while True:
            with self._changed:
                left_s = self._held_until - self._now()
                if self._stopped or self._lost is not None:
                    return
                if left_s > 0:
                    self._changed.wait(left_s)
                    continue
            self._look()
