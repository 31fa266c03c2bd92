"""Names of the runs that hold leases, from the work folder. Safe for use by many threads."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from sluice.client.lease_ids import holder_of
from sluice.clock import Clock
from sluice.rounds.run_names import RunName, read_run_name

READ_MAX = 100
"""Most names that one answer reads."""
AGAIN_S = 30.0
"""A run writes its name after it has leased snapshots, so a missing name is read again."""
_AT_ONCE = 8


class KnownRuns:
    """What Airflow calls the runs of a work folder."""

    def __init__(self, work_uri: str | None, clock: Clock) -> None:
        """:param work_uri: None: no name is known."""
        self._work_uri = work_uri
        self._clock = clock
        self._lock = threading.Lock()  # guards the rest; held while names are read
        self._found: dict[str, tuple[RunName | None, float]] = {}

    def of(self, lease_ids: Iterable[str]) -> dict[str, RunName]:
        """The names of those runs that are known."""
        if not self._work_uri:
            return {}
        of_runs = [one for one in lease_ids if holder_of(one).kind == "run"]
        with self._lock:
            now_s = self._clock.monotonic_s()
            self._found = {one: self._found[one] for one in of_runs if one in self._found}
            missing = [one for one in of_runs if self._is_missing(one, now_s)][:READ_MAX]
            if missing:
                with ThreadPoolExecutor(_AT_ONCE, "sluice-run-name") as pool:
                    names = pool.map(read_run_name, [self._work_uri] * len(missing), missing)
                    for lease_id, name in zip(missing, names, strict=True):
                        self._found[lease_id] = name, now_s
            return {one: name for one, (name, _) in self._found.items() if name}

    def _is_missing(self, lease_id: str, now_s: float) -> bool:
        name, read_s = self._found.get(lease_id, (None, -AGAIN_S))
        return name is None and now_s - read_s >= AGAIN_S
