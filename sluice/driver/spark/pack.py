"""Tiers the tables of a pack in one Spark application: one thread and one Spark job per table.

A table that fails, or that must end early, ends alone. Its outcome is in files next to its plan.
"""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any

from sluice.config import Config
from sluice.driver.spark.round import driver_cores, run
from sluice.errors import ClaimLost, DriverLost, SluiceError, UnknownFileVersion
from sluice.failpoints import failpoint
from sluice.masking import mask
from sluice.model import TablePath
from sluice.quantities import counted
from sluice.rounds.records.json_files import read_json, write_json
from sluice.rounds.records.packs import PackFile, SparkApplication, mark_running, read_stops
from sluice.rounds.records.result import failure_uri, result_uri
from sluice.rounds.values.reasons import failure_of

_LOG = logging.getLogger(__name__)
STOPS_POLL_S = 2.0
"""Seconds between two reads of the tables that must end early."""


def run_pack(
    context: Any,
    pack_uri: str,
    attempt: str,
    config: Config,
    task_id: Callable[[], int] | None = None,
) -> int:
    """Runs the rounds of a pack's plans. Writes a result or failure file next to each plan.

    :param task_id: see :func:`sluice.driver.spark.round.run`.
    :returns: the exit code: 1 if a round failed, else 0.
    :raises UnknownFileVersion: the pack file does not exist here, or has another version.
    """
    content = read_json(pack_uri)
    if content is None:
        raise UnknownFileVersion(
            f"pack file {pack_uri} does not exist here: Airflow and this driver must share work_uri"
        )
    plans = PackFile.from_json(content).plans
    tables = {plan: _PackedTable(plan) for plan in plans}

    _quiet_pools(context)
    at_once = min(len(tables), tables_at_once(config, context))
    # Of each table: none waits for the others.
    threads = math.ceil(driver_cores(context) / max(1, at_once))

    def tier(table: _PackedTable) -> int:
        return table.run(context, attempt, config, task_id, threads)

    with (
        _Stops(context, pack_uri, tables),
        ThreadPoolExecutor(at_once, thread_name_prefix="sluice-table") as pool,
    ):
        running = [pool.submit(tier, table) for table in tables.values()]
    for error in filter(None, (future.exception() for future in running)):
        _LOG.error("a table has no outcome: %s", mask(f"{type(error).__name__}: {error}"))
    codes = [1 if future.exception() else future.result() for future in running]
    failed = sum(code != 0 for code in codes)
    if failed:
        _LOG.warning("%d of %s failed", failed, counted(len(codes), "table"))
    else:
        _LOG.info("no table failed")
    return 1 if failed else 0


def fail_pack(pack_uri: str, attempt: str, error: Exception) -> None:
    """Writes an error that concerns the complete application as the failure of each table.

    A table that has an outcome of this attempt keeps it.
    """
    content = read_json(pack_uri)
    found = failure_of(error)
    if not isinstance(error, SluiceError):  # of the work folder or of Spark: a retry may succeed
        found = replace(found, reason=replace(found.reason, retryable=True))
    failure = found.to_json()
    for plan in PackFile.from_json(content).plans if content is not None else ():
        uris = (result_uri(plan, attempt), failure_uri(plan, attempt))
        try:
            if all(read_json(uri) is None for uri in uris):
                write_json(uris[1], failure)
        except Exception as unwritten:  # of the work folder: the other tables are told
            _LOG.error("plan %s: cannot write its failure: %s", plan, mask(str(unwritten)))


def tables_at_once(config: Config, context: Any) -> int:
    """How many tables of a pack are tiered at the same time."""
    return config.tiering.tables_at_once or max(2, driver_cores(context))


def application_of(context: Any) -> SparkApplication:
    """The Spark application of a context."""
    return SparkApplication(str(context.applicationId), str(context.uiWebUrl or ""))


def _quiet_pools(context: Any) -> None:
    """Leaves out Spark's warning, for each table, that its scheduler pool is in no file."""
    log4j = context._jvm.org.apache.logging.log4j
    pools = "org.apache.spark.scheduler.FairSchedulableBuilder"
    with suppress(Exception):  # a Spark that logs with something else
        log4j.core.config.Configurator.setLevel(pools, log4j.Level.ERROR)


class _PackedTable:
    """One table of a pack. Its round runs on one thread; another one may stop it."""

    def __init__(self, plan_uri: str) -> None:
        self.plan_uri = plan_uri
        self.stopped = threading.Event()
        self.group = ""  # set by the round's thread before its Spark job

    def run(
        self,
        context: Any,
        attempt: str,
        config: Config,
        task_id: Callable[[], int] | None,
        threads: int,
    ) -> int:
        try:
            if self.stopped.is_set():
                raise ClaimLost("the table was stopped before its round began")
            mark_running(self.plan_uri, attempt, application_of(context))
            content = read_json(self.plan_uri) or {}
            self.group = str(TablePath.parse(content["table"])) if content else ""
            failpoint("pack.table.running")
            return run(context, self.plan_uri, attempt, config, task_id, self.stopped, threads)
        except DriverLost as error:
            # At once, without a word about the tables: the tier task decides which of them have
            # failed, and which had not begun.
            _LOG.error("%s", error)
            logging.shutdown()
            os._exit(1)
        except Exception as error:  # of the work folder: the other tables continue
            _LOG.error("plan %s: %s", self.plan_uri, mask(str(error)))
            failure = failure_of(error, config.secrets())
            # It may have been committed: the next try finds that out.
            failure = replace(failure, reason=replace(failure.reason, retryable=True))
            write_json(failure_uri(self.plan_uri, attempt), failure.to_json(config.secrets()))
            return 0 if isinstance(error, ClaimLost) else 1

    def stop(self, context: Any) -> None:
        """Ends the round: its Spark job at once, the driver's own copying at its next batch."""
        self.stopped.set()
        if self.group:  # a job that is submitted a moment later is cancelled too
            context._jsc.sc().cancelJobGroupAndFutureJobs(self.group)


class _Stops:
    """Reads in the background which tables must end early, and ends them."""

    def __init__(self, context: Any, pack_uri: str, tables: Mapping[str, _PackedTable]) -> None:
        self._context = context
        self._pack_uri = pack_uri
        self._tables = tables
        self._handled: set[str] = set()  # used by the reading thread only
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sluice-stops", daemon=True)

    def __enter__(self) -> _Stops:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._end.set()
        self._thread.join(5.0)

    def _run(self) -> None:
        logged = ""
        while not self._end.wait(STOPS_POLL_S):
            try:
                for plan in read_stops(self._pack_uri):
                    self._stop(plan)
            except Exception as error:  # of a file system or Spark: read again
                if (text := mask(str(error))) != logged:
                    _LOG.warning("cannot stop tables of pack %s: %s", self._pack_uri, text)
                logged = text

    def _stop(self, plan: str) -> None:
        if plan in self._handled or plan not in self._tables:
            return
        _LOG.info("plan %s: the table must end early", plan)
        self._tables[plan].stop(self._context)
        self._handled.add(plan)
