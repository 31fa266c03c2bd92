"""Reads the tiering statuses of a cluster in the background, for many readers of the page."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from sluice.client import Client
from sluice.clock import Clock, SystemClock
from sluice.masking import mask
from sluice.model import TablePath, TieringStatus

READ_EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class SeenTable:
    """The status of a table, and when it and its lag were read (epoch milliseconds)."""

    status: TieringStatus
    status_read_ms: int
    lag_read_ms: int | None


@dataclass(frozen=True, slots=True)
class Seen:
    """What was last read of a cluster. Immutable."""

    tables: Mapping[TablePath, SeenTable] = field(default_factory=dict)
    read_ms: int | None = None
    is_complete: bool = False
    error: str | None = None


class ClusterReader:
    """Reads a cluster again and again until it is stopped. Safe for use by many threads."""

    def __init__(self, client: Client, clock: Clock | None = None) -> None:
        self._client = client
        self._clock = clock or SystemClock()
        self._seen = Seen()  # replaced as a whole, by the thread alone
        self._wake = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="sluice-page-reader", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped = True
        self._wake.set()
        self._thread.join()

    @property
    def seen(self) -> Seen:
        return self._seen

    def read_soon(self) -> None:
        """Reads again now: something has changed."""
        self._wake.set()

    def _run(self) -> None:
        while not self._stopped:
            self._wake.clear()
            self._read()
            self._wake.wait(READ_EVERY_S)

    def _read(self) -> None:
        try:
            statuses = self._client.statuses.list()
        except Exception as error:  # shown by the page; the next read tries again
            text = mask(f"{type(error).__name__}: {error}")
            seen = self._seen
            self._seen = Seen(seen.tables, seen.read_ms, seen.is_complete, text)
            return
        now_ms = self._clock.now_ms()
        found = {each.path: SeenTable(each, now_ms, now_ms) for each in statuses}
        self._seen = Seen(found, now_ms, True)
