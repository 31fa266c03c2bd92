"""Heartbeats for the tables of a run whose own tier task has not started yet."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from types import TracebackType

from sluice.client.heartbeats import Heartbeats
from sluice.model import Claim

log = logging.getLogger(__name__)

STARTED = frozenset(
    {"running", "success", "failed", "skipped", "upstream_failed", "removed", "restarting"}
)
"""States of a task that keeps its claim itself, or that no longer needs one."""


class WaitingClaims:
    """Hands a Heartbeats the claims that wait, and takes them away as their tasks start.

    A claim is kept only while its task waits: if a started task dies, the coordinator must notice.
    """

    def __init__(
        self,
        heartbeats: Heartbeats,
        claims: Mapping[int, Claim],
        states: Callable[[], Mapping[int, str | None]],
        interval_s: float,
    ) -> None:
        """:param claims: those of the other tier tasks, by map index.
        :param states: state of each tier task by map index; a missing one was not scheduled yet.
        """
        self._heartbeats = heartbeats
        self._claims = claims
        self._states = states
        self._interval_s = interval_s
        self._kept: set[int] = set()  # of the watching thread alone
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sluice-waiting", daemon=True)

    def __enter__(self) -> WaitingClaims:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join(5.0)

    def look(self) -> None:
        """Looks at the states once; the thread does nothing else."""
        states = self._states()
        waiting = {index for index in self._claims if states.get(index) not in STARTED}
        for index in waiting - self._kept:
            self._heartbeats.add(self._claims[index])
        for index in self._kept - waiting:
            self._heartbeats.remove(self._claims[index])
        if waiting - self._kept:
            self._heartbeats.beat()  # nobody may have done so since they were claimed
        self._kept = waiting

    def _run(self) -> None:
        while True:
            try:
                self.look()
            except Exception as error:  # Airflow's API may be away for a while: keep what is kept
                log.warning("states of the other tier tasks: %s", error)
            if self._stop.wait(self._interval_s):
                return
