"""Watches the files of a pack's driver: reports its tables one by one, and stops some early."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sluice.client.tiering.heartbeats import Heartbeats
from sluice.errors import (
    DriverLost,
    FlussError,
    SluiceError,
    SparkSettingsWrong,
    StoppedByUser,
    TablePaused,
    TierTimedOut,
)
from sluice.masking import mask
from sluice.rounds.records.copy_size import size_uri
from sluice.rounds.records.packs import (
    SparkApplication,
    run_file_names,
    running_application,
    write_stops,
)
from sluice.rounds.records.result import RoundFailure
from sluice_airflow.claims.packs import label_of
from sluice_airflow.outcomes.settle import RELEASED_KINDS
from sluice_airflow.tier.reports import report
from sluice_airflow.tier.time_limit import TimeLimit
from sluice_airflow.tier.tried_table import TriedTable

if TYPE_CHECKING:
    from sluice.client import Client

log = logging.getLogger(__name__)

CHECK_S = 3.0
"""Seconds between two looks at the files."""
LOOK_SHARE_MAX = 0.05
"""Largest share of the time for listing files: many files are listed less often."""
PAUSE_MAX_S = 30.0
SAID = "; its output says: "
"""What precedes the line of spark-submit's output in a reason."""
STOP_GRACE_S = 60.0
"""How long the driver may take to end a stopped table while it tiers others, and to end after its
last table. Then the driver is stopped. A shorter time limit of a table counts here, too."""


class PackWatch:
    """Follows one Spark application of a try of the tier task.

    It reports a table as soon as its result is there. It ends tables that lost their claim or
    lease, that a user paused, or that take too long. If no other table is left, it stops the
    driver.
    """

    def __init__(
        self,
        client: Client,
        heartbeats: Heartbeats,
        tables: Sequence[TriedTable],
        pack_uri: str,
        time_limit_s: float,
        stop_driver: Callable[[], None],
        secrets: Sequence[str] = (),
        paused_every_s: float = 20.0,
        on_application: Callable[[SparkApplication], None] = lambda _: None,
    ) -> None:
        """:param time_limit_s: ``tier_timeout_seconds`` of ``SluiceTierOperator``.
        :param stop_driver: ends the Spark driver.
        :param paused_every_s: seconds between two checks for paused tables.
        :param on_application: called once, when the driver has begun a table.
        """
        self._client = client
        self._heartbeats = heartbeats
        self._tables = list(tables)
        self._pack_uri = pack_uri
        self._work_uri, self._lease_id, _, _ = pack_uri.rsplit("/", 3)
        self._time_limit_s = time_limit_s
        self._stop_driver = stop_driver
        self._secrets = secrets
        self._start: TimeLimit | None = self._new_start()
        """How long the driver may take to begin a table, while it tiers none."""
        self._stopped_at: dict[str, float] = {}
        """When each stopped table was written to the stops file, by plan."""
        self._ended_at = 0.0
        """When all tables had an outcome."""
        self._grace_s = min(STOP_GRACE_S, time_limit_s) if time_limit_s > 0 else STOP_GRACE_S
        self._is_ended = False
        self.has_begun = False
        """Whether the driver has begun a table, and so could start; known after :meth:`end`."""
        self._on_application: Callable[[SparkApplication], None] | None = on_application
        self._paused_every_s = paused_every_s
        # The task itself checks before it starts the driver.
        self._paused_next_at = time.monotonic() + paused_every_s
        self._listing_s = 0.0
        self._logged = ""
        self._looking = threading.Lock()  # one look at a time
        self._wake = threading.Event()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sluice-pack", daemon=True)

    def __enter__(self) -> PackWatch:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._end.set()
        self._wake.set()
        self._thread.join(30.0)

    def wake(self) -> None:
        """Looks at once, because a table was stopped. For any thread."""
        self._wake.set()

    def look(self) -> None:
        """Reads what the driver has left so far, and acts on it."""
        with self._looking:
            began = time.monotonic()
            names = run_file_names(self._work_uri, self._lease_id)
            self._listing_s = time.monotonic() - began
            for table in self._unfinished():
                self._look_at(table, names.get(table.plan_uri, set()))
            self._check_limits()
            self._check_paused()
            self._stop_tables()
            self._report_results()

    def end(self, ended: SluiceError, why_lost: Callable[[], SluiceError]) -> SluiceError:
        """Decides the outcome of every table, after the driver has ended and this watch, too.

        :param ended: what to report of tables without any outcome.
        :param why_lost: returns what to report instead, if the driver had started.
        :returns: what was reported of them: settings with which a table has begun did work.
        """
        with self._looking:  # a look may outlast the wait for its thread
            self._name_application(self._tables[0])  # which may have ended between two looks
            for table in self._unfinished():
                self._read_outcome(table, failures_count=not isinstance(ended, StoppedByUser))
            left = self._unfinished()
            begun = {table for table in left if table.has_begun()}
            for table in begun:
                self._name_application(table)
            others = ""
            known = begun or {table for table in self._tables if table not in left}
            self.has_begun = bool(known)
            if isinstance(ended, SparkSettingsWrong) and known:
                ended = why_lost()
            if isinstance(ended, DriverLost):
                # Without any, its start has failed: a reason that every table shows.
                others = label_of([table.entry for table in self._tables if table in known])
                if len(begun) > 1:
                    what, said, line = str(ended).partition(SAID)
                    ended = DriverLost(f"{what}; it was tiering {others}{said}{line}")
            for table in left:
                table.end(ended, "" if table in begun else others)
            self._report_results()
        return ended

    def _unfinished(self) -> list[TriedTable]:
        return [table for table in self._tables if table.outcome is None]

    def _look_at(self, table: TriedTable, names: set[str]) -> None:
        attempt = table.attempt
        if {f"result-{attempt}.json", f"failure-{attempt}.json"} & names:
            self._read_outcome(table)
        if table.limit is None and f"running-{attempt}.json" in names:
            size = size_uri(table.plan_uri, attempt)
            table.limit = TimeLimit(self._time_limit_s, size, table.stop)
            self._name_application(table)

    def _name_application(self, table: TriedTable) -> None:
        if self._on_application is None:
            return
        try:
            application = running_application(table.plan_uri, table.attempt)
        except Exception as error:  # the next table may show it
            self._log_once(f"cannot read which Spark application tiers {table.name}: {error}")
            return
        if application is not None:
            found, self._on_application = self._on_application, None
            for one in self._tables:
                one.spark_application = application.id
            found(application)

    def _read_outcome(self, table: TriedTable, *, failures_count: bool = True) -> None:
        try:
            table.read_outcome(failures_count=failures_count)
        except Exception as error:  # the end of the driver decides
            self._log_once(f"cannot read the outcome of {table.name}: {error}")

    def _report_results(self) -> None:
        for table in self._tables:
            if table.is_reported or not _has_ended(table):
                continue
            if not table.is_lost:
                if not report(self._client, table, self._secrets):
                    return  # the coordinator is away: not one time limit for each table
                table.is_reported = True
            self._heartbeats.remove(table.claim)

    def _check_limits(self) -> None:
        left = self._unfinished()
        if any(table.limit for table in left):
            self._start = None
        elif left:  # the driver starts, or has ended some tables and begun no other
            self._start = self._start or self._new_start()
            self._start.check()
        for table in self._unfinished():
            if table.limit is not None and table.why_stopped is None:
                table.limit.check()

    def _check_paused(self) -> None:
        began = time.monotonic()
        if began >= self._paused_next_at:
            stop_paused(self._client, self._unfinished())
            now = time.monotonic()
            # With many tables on the server, its answer costs more.
            self._paused_next_at = now + max(self._paused_every_s, (now - began) / LOOK_SHARE_MAX)

    def _new_start(self) -> TimeLimit:
        return TimeLimit(self._time_limit_s, None, self._stop_all)

    def _stop_all(self, why: TierTimedOut) -> None:
        for table in self._unfinished():
            table.stop(why)

    def _stop_tables(self) -> None:
        """Asks the driver to end the stopped tables. Without other tables, ends the driver."""
        left = self._unfinished()
        stopped = [table for table in left if table.why_stopped is not None]
        now = time.monotonic()
        if new := [table for table in stopped if table.plan_uri not in self._stopped_at]:
            for table in new:
                log.warning("%s; the table is stopped", mask(str(table.why_stopped)))
            if len(stopped) < len(left):
                write_stops(self._pack_uri, [*self._stopped_at, *(t.plan_uri for t in new)])
            self._stopped_at.update({table.plan_uri: now for table in new})
        if not left:
            self._ended_at = self._ended_at or now
            if now - self._ended_at >= self._grace_s:
                self._end_driver("all of its tables have ended, but the Spark driver has not")
            return
        running = [table for table in left if table.limit is not None]
        hangs = running and all(
            now - self._stopped_at.get(table.plan_uri, now) >= self._grace_s for table in running
        )
        if stopped and (len(stopped) == len(left) or hangs):
            self._end_driver(str(stopped[0].why_stopped))

    def _end_driver(self, why: str) -> None:
        if not self._is_ended:
            self._is_ended = True
            log.warning("%s; stopping the Spark driver", mask(why))
            self._stop_driver()

    def _log_once(self, text: str) -> None:
        shown = mask(text, self._secrets)
        if shown != self._logged:
            log.warning("%s", shown)
        self._logged = shown

    def _run(self) -> None:
        pause_s = CHECK_S
        while not self._end.is_set():
            self._wake.wait(pause_s)
            self._wake.clear()
            if self._end.is_set():
                return
            try:
                self.look()
            except Exception as error:  # of a file system: look again
                self._log_once(f"cannot read the files of {self._pack_uri}: {error}")
            pause_s = min(max(CHECK_S, self._listing_s / LOOK_SHARE_MAX), PAUSE_MAX_S)


def stop_paused(client: Client, tables: Sequence[TriedTable]) -> None:
    """Stops the tables that a user has paused. If that cannot be read, their rounds continue."""
    left = {t.claim: t for t in tables if t.outcome is None and t.why_stopped is None}
    try:
        paused = client.statuses.paused([*left])
    except FlussError as error:
        log.info("cannot read which tables are paused: %s", mask(str(error)))
        return
    for claim in paused:
        left[claim].stop(TablePaused(f"a user paused the table {claim.path}"))


def _has_ended(table: TriedTable) -> bool:
    """Whether no retry of the task tries the table again. Settle releases other claims."""
    outcome = table.outcome
    if not isinstance(outcome, RoundFailure) or table.is_paused:
        return outcome is not None
    return outcome.reason.kind not in RELEASED_KINDS and not outcome.reason.retryable
