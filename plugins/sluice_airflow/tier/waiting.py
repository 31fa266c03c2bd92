"""Sends heartbeats for claims whose own tier task has not started yet."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence

from sluice.client.tiering.heartbeats import Heartbeats
from sluice.model import Claim
from sluice_airflow.airflow_api.task_states import STARTED

log = logging.getLogger(__name__)


class WaitingClaims:
    """Adds waiting claims to a Heartbeats and removes them as their tasks start.

    It keeps a claim only while its task waits. If a started task dies, its heartbeats must end.
    """

    def __init__(
        self,
        heartbeats: Heartbeats,
        claims: Mapping[int, Sequence[Claim]],
        states: Callable[[], Mapping[int, str | None]],
        interval_s: float,
    ) -> None:
        """:param claims: claims of the other tier tasks, by map index.
        :param states: returns the state of each scheduled tier task, by map index.
        """
        self._heartbeats = heartbeats
        self._claims = claims
        self._states = states
        self._interval_s = interval_s
        self._kept: set[int] = set()  # used by the watching thread only
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sluice-waiting", daemon=True)

    def __enter__(self) -> WaitingClaims:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join(5.0)

    def update(self) -> None:
        """Reads the states once, and adds or removes claims."""
        states = self._states()
        waiting = {index for index in self._claims if states.get(index) not in STARTED}
        for claim in self._of(waiting - self._kept):
            self._heartbeats.add(claim)
        for claim in self._of(self._kept - waiting):
            self._heartbeats.remove(claim)
        if waiting - self._kept:
            self._heartbeats.beat()  # acquire_lease sent the last heartbeat
        self._kept = waiting

    def _of(self, indexes: set[int]) -> list[Claim]:
        return [claim for index in indexes for claim in self._claims[index]]

    def _run(self) -> None:
        while True:
            try:
                self.update()
            except Exception as error:  # Airflow's API may be unavailable: keep the same claims
                log.warning("cannot read the states of the other tier tasks: %s", error)
            if self._stop.wait(self._interval_s):
                return
