"""Maintains lake tables in one Spark application: executors convert, the driver's JVM commits.

The Spark context is an argument: this package does not import PySpark. Tables are maintained one
after the other, and the buckets of a table at the same time. A table that fails does not stop the
others. Request and reports are files (``sluice.rounds.records.maintenance``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sluice.checks.lake import check_lake
from sluice.client import connect
from sluice.client.client import Client
from sluice.config import Config
from sluice.driver.conversions import SparkConversions
from sluice.driver.lakes.open_lake import open_lake
from sluice.driver.maintaining import maintain_table
from sluice.driver.spark.round import jvm_is_lost
from sluice.errors import DriverLost, FlussError, SluiceError, TableNotExist
from sluice.failpoints import failpoint
from sluice.lake.iceberg.lake import IcebergLake
from sluice.masking import mask
from sluice.model import Reason, TablePath
from sluice.model.patterns import is_pattern, matches
from sluice.quantities import counted
from sluice.rounds.plan.dropped import is_unanswered
from sluice.rounds.records.maintenance import (
    MaintenanceFiles,
    MaintenanceRequest,
    TableReport,
    keys_uri_beside,
)
from sluice.rounds.upkeep.maintenance import MaintenanceReport, table_report
from sluice.rounds.values.reasons import reason_of

_LOG = logging.getLogger(__name__)
_NO_MATCH = "no table of the cluster matches this pattern: correct the parameter tables"
_LOST = "the JVM of the Spark driver does not answer any more"


def run_maintenance(
    context: Any, request_uri: str, config: Config, task_id: Callable[[], int]
) -> int:
    """Maintains the tables of a request, and writes a report of each one as soon as it is done.

    :param context: the SparkContext.
    :param task_id: returns, on an executor, a number that is unique to this execution of a bucket.
    :returns: the exit code: 1 if something did not work, else 0.
    :raises UnknownFileVersion: the request does not exist here, or has another version.
    :raises DriverLost: the driver's JVM was killed. Finished tables have their reports.
    """
    files = MaintenanceFiles(request_uri)
    request = files.read_request()
    try:
        failed = _Run(context, files, request, config, task_id).tables()
    except Exception as error:
        if isinstance(error, DriverLost) or jvm_is_lost(context):
            raise DriverLost(_LOST) from error
        reason = reason_of(error, config.secrets())
        if not isinstance(error, SluiceError):  # of the work folder or of Spark
            reason = replace(reason, retryable=True)
            _LOG.error("traceback of the unexpected error", exc_info=error)
        _LOG.error("the maintenance ended early: %s", reason)
        files.end(reason)
        return 1
    files.end()
    return 1 if failed else 0


@dataclass(frozen=True, slots=True)
class _Run:
    """One application."""

    context: Any
    files: MaintenanceFiles
    request: MaintenanceRequest
    config: Config
    task_id: Callable[[], int]

    def tables(self) -> int:
        """Maintains the tables; returns how many of them have a problem."""
        check_lake(self.config)
        context, failed, count = self.context, 0, 0
        client_config = replace(self.config.client, bootstrap=self.request.bootstrap)
        hadoop_conf = context._jsc.hadoopConfiguration()
        with (
            connect(client_config) as client,
            open_lake(
                self.config, context._gateway, hadoop_conf, keys_uri_beside(self.files.request)
            ) as lake,
        ):
            chosen, unmatched = _chosen(client, self.request.tables)
            for path in chosen:
                if str(path) in self.request.done:
                    continue
                report = self._table(client, lake, path)
                if report is None:
                    continue
                count += 1
                failed += bool(report.problems)
                self.files.add(report)
                failpoint("maintain.table.reported")
            for pattern in unmatched:
                none = MaintenanceReport(pattern, error=_NO_MATCH)
                self.files.add(table_report(none, applied=True, retryable=False))
                failed += 1
        words = f"{failed} of them with a problem" if failed else "none with a problem"
        _LOG.info("%s, %s", counted(count, "table"), words)
        return failed

    def _table(self, client: Client, lake: IcebergLake, path: TablePath) -> TableReport | None:
        """Maintains one table; None: it matches a pattern, but the lake does not have it.

        :raises DriverLost: the driver's JVM was killed.
        :raises NetworkError, RequestTimeOut: the cluster does not answer, and each other table
            would wait as long.
        """
        self.files.begin(str(path))
        began_s, retryable = time.monotonic(), True
        is_named = str(path) in self.request.tables
        try:
            found = self._maintained(client, lake, path)
            if found is None and not is_named:
                return None
            report = found or MaintenanceReport(str(path), error=_not_in_lake(path))
            retryable = found is not None
        except Exception as error:  # of this table: the others are maintained
            if jvm_is_lost(self.context):
                raise DriverLost(_LOST) from error
            if isinstance(error, FlussError) and is_unanswered(error):
                raise
            if isinstance(error, TableNotExist) and not is_named:
                return None  # dropped since the tables were listed
            retryable = error.retryable if isinstance(error, SluiceError) else True
            if not isinstance(error, SluiceError):
                _LOG.error("%s: traceback of the unexpected error", path, exc_info=error)
            why = reason_of(error, self.config.secrets())
            report = MaintenanceReport(str(path), error=str(why))
        made = table_report(report, applied=self.request.apply, retryable=retryable)
        level, word = (logging.ERROR, "problem") if made.problems else (logging.INFO, "done")
        if not made.problems and not self.request.apply:
            word = "looked at"
        _LOG.log(level, "%s: %s in %.1f s", path, word, time.monotonic() - began_s)
        return made

    def _maintained(
        self, client: Client, lake: IcebergLake, path: TablePath
    ) -> MaintenanceReport | None:
        label = f"convert equality deletes of {path}"
        run = SparkConversions(self.context, label, self.task_id)
        return maintain_table(self.config, client, lake, path, run, apply=self.request.apply)


def _not_in_lake(path: TablePath) -> str:
    return (
        f"lake table {path} does not exist: correct the parameter tables, or look with"
        f" `sluice status {path}` whether the table was ever tiered"
    )


def _chosen(client: Client, wanted: Sequence[str]) -> tuple[list[TablePath], list[str]]:
    """The tables to maintain, and the patterns that match none; ``*`` may match none.

    A named table that does not exist is one of them: its report says so.
    """
    patterns = [name for name in wanted if is_pattern(name)]
    named = {TablePath.parse(name) for name in wanted if not is_pattern(name)}
    tables = client.admin.all_tables() if patterns else []
    chosen = [path for path in tables if path in named or matches(path, patterns)]
    unmatched = [
        one for one in patterns if one != "*" and not any(matches(path, [one]) for path in tables)
    ]
    return chosen + sorted(named.difference(chosen), key=str), unmatched


def fail_maintenance(request_uri: str, error: Exception) -> None:
    """Writes an error that concerns the complete application, such as a wrong setting."""
    reason: Reason = reason_of(error)
    try:
        MaintenanceFiles(request_uri).end(reason)
    except Exception as unwritten:  # of the work folder: spark-submit's output has the error
        _LOG.error("cannot write why the maintenance failed: %s", mask(str(unwritten)))
