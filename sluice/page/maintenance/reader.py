"""Reads in the background what maintenance did, while somebody looks at it."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import dataclass, field, replace
from weakref import WeakKeyDictionary

from sluice.client import Client
from sluice.clock import Clock
from sluice.masking import reason_text, secrets_of
from sluice.page.cluster.cluster_reader import ClusterReader
from sluice.page.cluster.per_owner import PerOwner
from sluice.page.cluster.seen import Seen
from sluice.page.maintenance.rounds import RoundsReader
from sluice.page.maintenance.runs import RunReader, SeenRun
from sluice.page.maintenance.tables import MaintenanceListing
from sluice.page.requests.ports import Place

READ_EVERY_S = 15.0
"""What is older is read again, once somebody asks."""
READ_S = 20.0
"""Longest read of each kind. The next one begins with what this one did not reach."""


@dataclass(frozen=True, slots=True)
class SeenMaintenance:
    """What was last read. Times are epoch milliseconds. Immutable."""

    runs: tuple[SeenRun, ...] = ()
    """The newest first."""
    runs_read_ms: int | None = None
    unread_runs: tuple[str, ...] = ()
    """Why files of the work folder, or all of them, cannot be read."""
    rounds: RoundsReader | None = field(default=None, repr=False)
    rounds_read_ms: int | None = None
    are_rounds_read: bool = False
    """Whether the history of each table is known as far as it went then."""
    error: str | None = None
    """Why the histories cannot be read."""


class MaintenanceReader:
    """Reads for one page. Nothing is read while nobody asks. Safe for use by many threads."""

    def __init__(self, client: Client, work_uri: str | None, clock: Clock) -> None:
        """:param work_uri: the work folder of the runs; None: not known."""
        self._client, self._clock = client, clock
        self._secrets = secrets_of(work_uri or "")
        self._runs = RunReader(work_uri, clock) if work_uri else None
        self._rounds = RoundsReader(clock)
        self._lock = threading.Lock()  # guards the thread and its time
        self._thread: threading.Thread | None = None
        self._began_s: float | None = None
        self._seen = SeenMaintenance()  # replaced as a whole
        self._listed: WeakKeyDictionary[Seen, tuple[SeenMaintenance, MaintenanceListing]] = (
            WeakKeyDictionary()  # a reading that is replaced takes its list with it
        )

    def listing(self, seen: Seen) -> tuple[SeenMaintenance, MaintenanceListing]:
        """What is known now. If that is old, it is read again in the background.

        :param seen: the tables of the cluster.
        """
        self._read_soon(seen)
        found, listed = self._seen, self._listed.get(seen)
        if listed is None or listed[0] is not found:
            facts = found.rounds.known if found.rounds is not None else {}
            listed = found, MaintenanceListing(seen, found.runs, facts)
            self._listed[seen] = listed
        return listed

    def wait(self, timeout_s: float) -> bool:
        """Waits for the read that is under way; returns whether none is left."""
        with self._lock:
            thread = self._thread
        if thread is None:
            return True
        thread.join(timeout_s)
        return not thread.is_alive()

    def _read_soon(self, seen: Seen) -> None:
        if seen.read_ms is None:
            return  # the tables are not known yet
        now_s = self._clock.monotonic_s()
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                return
            is_done = self._seen.are_rounds_read or self._seen.error is not None
            if is_done and self._began_s is not None and now_s - self._began_s < READ_EVERY_S:
                return
            self._began_s = now_s
            self._thread = threading.Thread(
                target=self._read, args=(seen,), name="sluice-page-maintenance", daemon=True
            )
            self._thread.start()

    def _read(self, seen: Seen) -> None:
        self._read_runs()
        self._read_rounds(seen)

    def _read_runs(self) -> None:
        if self._runs is None:
            return
        try:
            runs, unread = self._runs.read(self._clock.monotonic_s() + READ_S)
        except Exception as error:  # of any file system; the next read tries again
            why = reason_text(f"{type(error).__name__}: {error}", self._secrets)
            self._seen = replace(self._seen, unread_runs=(why,))
            return
        now_ms = self._clock.now_ms()
        self._seen = replace(
            self._seen, runs=tuple(runs), runs_read_ms=now_ms, unread_runs=tuple(unread)
        )

    def _read_rounds(self, seen: Seen) -> None:
        try:
            with closing(self._client.status_watch()) as watch:
                is_complete = self._rounds.read(watch, seen, self._clock.monotonic_s() + READ_S)
        except Exception as error:  # shown by the page; the next read tries again
            why = reason_text(f"{type(error).__name__}: {error}")
            self._seen = replace(self._seen, rounds=self._rounds, error=why)
            return
        self._seen = replace(
            self._seen,
            rounds=self._rounds,
            rounds_read_ms=self._clock.now_ms(),
            are_rounds_read=is_complete,
            error=None,
        )


_READERS: PerOwner[ClusterReader, MaintenanceReader] = PerOwner()


def maintenance_of(place: Place) -> MaintenanceReader:
    """The reader of a place: it lasts as long as the place's reader of statuses."""
    return _READERS.of(
        place.reader, lambda: MaintenanceReader(place.client, place.work_uri, place.clock)
    )
