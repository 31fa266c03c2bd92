"""States of DAGs, kept for some seconds: each list of the page shows one, for each viewer."""

from __future__ import annotations

import threading

from sluice.clock import Clock, SystemClock
from sluice.page.cluster.models import DagState
from sluice_airflow.page.runs import dag_state

KEPT_S = 2.0
"""After so long, a DAG that was paused or has a new run is noticed."""
DAGS_MAX = 100
"""States that are kept: those that were read last."""


class DagStates:
    """Reads the state of a DAG from Airflow's database. Safe for use by many threads."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()  # guards the rest; nobody reads the database under it
        self._kept: dict[str, tuple[float, DagState]] = {}
        self._changes = 0

    def of(self, dag_id: str) -> DagState:
        """The state of a DAG, at most :data:`KEPT_S` old."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            changes = self._changes
            read_s, known = self._kept.get(dag_id, (0.0, None))
            if known is not None and now_s - read_s < KEPT_S:
                return known
        found = dag_state(dag_id)
        with self._lock:
            self._kept.pop(dag_id, None)  # to the end
            if changes == self._changes:  # else it may be of a time before the change
                self._kept[dag_id] = now_s, found
            while len(self._kept) > DAGS_MAX:
                del self._kept[next(iter(self._kept))]
        return found

    def forget(self, dag_id: str) -> None:
        """The page has changed a DAG: its state is read again."""
        with self._lock:
            self._changes += 1
            self._kept.pop(dag_id, None)
