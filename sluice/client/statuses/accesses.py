"""Accesses to Sluice's tables of a cluster, with a deadline and pauses: none may fail a round."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from enum import Enum
from typing import TypeVar

from sluice.client.connection.heartbeat_entries import LIVENESS_TIMEOUT_S
from sluice.clock import Clock
from sluice.errors import (
    FlussError,
    LeaderNotAvailable,
    NetworkError,
    NotLeaderOrFollower,
    RequestTimeOut,
)
from sluice.formats.rows.column_memory import load_kernels
from sluice.masking import mask
from sluice.model import TablePath

T = TypeVar("T")
_LOG = logging.getLogger(__name__)

RETRY_AFTER_S = 60.0
"""Pause after a failed access, in seconds."""
CLAIM_PATIENCE_S = LIVENESS_TIMEOUT_S / 2
"""How long a claim reads again. Half of its time is left for its release, or its round's start."""
CONNECT_S = 20.0
"""Most seconds to connect before the first access. Less than the time between two heartbeats."""
_PAUSE_S = 1.0
_MAY_PASS = (RequestTimeOut, NetworkError, LeaderNotAvailable, NotLeaderOrFollower)


class EventKind(Enum):
    """Kinds of accesses. A kind pauses after one of its accesses failed.

    The value is the consequence of a failure, in words.
    """

    WRITE = "`sluice status` may be outdated; the round continues"
    END = "`sluice status` may be outdated; the round has ended all the same"
    ROUND = "`sluice history` lacks a round"
    TIDY = "rows of dropped tables are kept"
    REQUEST = "a later round makes a requested compaction"


class StatusEvents:
    """Runs accesses within a deadline. Safe for use by many threads."""

    def __init__(
        self,
        clock: Clock,
        deadline_s: float,
        connect: Callable[[], object] = lambda: None,
        connect_s: float = CONNECT_S,
    ) -> None:
        """:param connect: done before the first access, for ``connect_s`` at most.

        A new process on a slow cluster may need the whole deadline for its connections.
        """
        self.deadline_s = deadline_s
        self._connect_s = min(connect_s, CONNECT_S)
        self._connect: Callable[[], object] | None = connect  # None: it is done
        self._clock = clock
        self._lock = threading.Lock()  # guards the pauses
        self._retry_at_s: dict[tuple[TablePath, EventKind], float] = {}
        self._thread = threading.local()  # its ``given_up`` is set when the deadline has passed

    def is_late(self) -> bool:
        """Whether the deadline of the access that runs on this thread has passed."""
        return bool(self._thread.given_up.is_set())

    def event(
        self, path: TablePath, what: str, do: Callable[[], T], kind: EventKind, table: TablePath
    ) -> T | None:
        """Calls ``do`` within the deadline; logs a failure and returns None.

        Of several failures of a table in a row, only the first is a warning. Each kind pauses
        alone: the end of a round is tried although its claim was not recorded.

        :param path: the lake table of the access.
        :param table: the table that is accessed.
        """
        with self._lock:
            until_s = self._retry_at_s.get((table, kind))
        if until_s is not None and self._clock.monotonic_s() < until_s:
            return None
        try:
            answer = self.bounded(do, table)
        except Exception as error:  # no error here may fail the round
            with self._lock:
                known = any(failed == table for failed, _ in self._retry_at_s)
                self._retry_at_s[table, kind] = self._clock.monotonic_s() + RETRY_AFTER_S
            _LOG.log(
                logging.DEBUG if known else logging.WARNING,
                "table %s: cannot %s in table %s, so %s: %s",
                path,
                what,
                table,
                kind.value,
                mask(f"{type(error).__name__}: {error}"),
            )
            return None
        with self._lock:
            for each in EventKind:
                self._retry_at_s.pop((table, each), None)
        return answer

    def bounded(self, do: Callable[[], T], table: TablePath) -> T:
        """Connects once, then calls ``do`` on a thread and waits for it until the deadline.

        :raises RequestTimeOut: the deadline has passed; the thread ends by itself later.
        """
        load_kernels()  # may compile once, which must not count against the deadline
        self._connect_once(table)
        limit = f"within {self.deadline_s:g} s (client.tiering_status_timeout_ms)"
        return self._waited(do, self.deadline_s, f"table {table} could not be accessed {limit}")

    def patient(self, do: Callable[[], T], table: TablePath) -> T:
        """As ``bounded``, again and again while the time of a claim that waits for it allows."""
        until_s = self._clock.monotonic_s() + CLAIM_PATIENCE_S
        while True:
            try:
                return self.bounded(do, table)
            except _MAY_PASS as error:
                if not error.retryable or self._clock.monotonic_s() >= until_s:
                    raise
                _LOG.info("table %s is read again: %s", table, mask(str(error)))
            self._clock.sleep(_PAUSE_S)

    def _connect_once(self, table: TablePath) -> None:
        """:raises NetworkError, RequestTimeOut: the cluster cannot be reached."""
        if (connect := self._connect) is None:
            return
        late = f"table {table} could not be accessed: no connection within {self._connect_s:g} s"
        try:
            self._waited(connect, self._connect_s, late)
        except (NetworkError, RequestTimeOut):
            raise
        except FlussError:  # the access meets the same, and says it of what it does
            return
        self._connect = None

    def _waited(self, do: Callable[[], T], limit_s: float, late: str) -> T:
        answer: Future[T] = Future()
        given_up = threading.Event()

        def run() -> None:
            self._thread.given_up = given_up
            try:
                answer.set_result(do())
            except BaseException as error:
                answer.set_exception(error)

        threading.Thread(target=run, name="sluice-statuses", daemon=True).start()
        try:
            return answer.result(limit_s)
        except TimeoutError as error:
            given_up.set()
            raise RequestTimeOut(late) from error
