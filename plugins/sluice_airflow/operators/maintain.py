"""Maintains lake tables with spark-submit, and says what they needed, what was done and gained."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sluice.clock import SystemClock
from sluice.errors import SluiceError, SparkSettingsWrong
from sluice.failpoints import failpoint
from sluice_airflow.airflow_api.airflow_names import (
    AirflowException,
    AirflowFailException,
    AirflowTaskTimeout,
)
from sluice_airflow.config.params import ALL_TABLES
from sluice_airflow.config.rendered import flag, properties_given, tables_given
from sluice_airflow.config.settings import load_settings
from sluice_airflow.hooks.fluss import FlussHook
from sluice_airflow.tier.arguments import left_out, spark_connection
from sluice_airflow.tier.spark_driver import SparkDriverOperator, submit_arguments

if TYPE_CHECKING:
    from airflow.sdk import Context

    from sluice.rounds.records.maintenance import MaintenanceOutcome, TableReport
    from sluice.rounds.records.run_names import RunName
    from sluice_airflow.config.connection import FlussConnection

REPORT = "report"
"""XCom key: numbers of all tables, and lines of those with problems or needs."""
NAME = "sluice maintenance"
"""What Spark calls the application."""


class MaintenanceFailed(AirflowException):
    """Some tables could not be maintained completely. A retry may succeed."""


class MaintenanceNotRetried(AirflowFailException):
    """Some tables could not be maintained completely, and a retry cannot succeed."""


class SluiceMaintainOperator(SparkDriverOperator):
    """Runs one Spark application that maintains lake tables, each by its need.

    It converts equality deletes to positions, expires snapshots, merges manifests, deletes files
    that nothing references, and requests compactions. It holds no claim: rounds run beside it. The
    log has a line for each table, and the XCom ``report`` summarizes them. The task fails if a
    table could not be read or a step did not work; the other tables are maintained all the same,
    unless the cluster does not answer. A retry maintains only what had a problem or was not
    reached.

    Everything from ``spark_conn_id`` on has the name and meaning of an option of the section
    [sluice] of Airflow's configuration. None: that option counts. The section also says ``pool``,
    ``retries`` (``maintenance_retries``) and ``execution_timeout``
    (``maintenance_timeout_seconds``), unless the call or ``default_args`` gives them. It does not
    if the operator is mapped: Airflow sets them in ``partial``.

    The arguments of Airflow's SparkSubmitOperator are accepted, too.

    :param tables: names or patterns of tables. (templated)
    :param dry_run: change nothing, and only say what tables need. (templated)
    :param spark_conf: Spark properties of the driver, over those of ``conf``. (templated)
    :param fluss_conn_id: connection of type fluss; None: as the section [sluice] says.
    :param datalake: options of the lake that override those of the connection.
    :param conf_keys: the keys that the conf of a run may have. None: any.
    :param spark_conn_id: connection of type spark. None: option ``spark_connection``.
    :param application: script of the rounds; that of the maintenance is beside it.
    """

    template_fields: Sequence[str] = (
        "tables",
        "dry_run",
        "spark_conf",
        *SparkDriverOperator.template_fields,
    )

    def __init__(
        self,
        *,
        tables: Any = ALL_TABLES,
        dry_run: Any = False,
        spark_conf: Any = None,
        fluss_conn_id: str | None = None,
        datalake: Mapping[str, Any] | None = None,
        conf_keys: Collection[str] | None = None,
        spark_conn_id: str | None = None,
        application: str | None = None,
        py_files: str | None = None,
        spark_binary: str | None = None,
        packages: str | None = None,
        jars: str | None = None,
        **kwargs: Any,
    ) -> None:
        settings = load_settings(
            connection=fluss_conn_id,
            spark_connection=spark_connection(spark_conn_id, kwargs),
            application=application,
            py_files=py_files,
            spark_binary=spark_binary,
            packages=packages,
            jars=jars,
        )
        kwargs.update(left_out(settings.of_maintenance(), kwargs))
        kwargs.setdefault("name", NAME)
        super().__init__(**submit_arguments(settings, settings.maintenance_script), **kwargs)
        self._prepare(settings, datalake, spark_conf)
        self.settings = settings
        self.tables = tables
        self.dry_run = dry_run
        self.conf_keys = conf_keys

    def execute(self, context: Context) -> None:
        """Maintains the tables.

        :raises MaintenanceFailed, MaintenanceNotRetried: the message has all tables and reasons.
        :raises AirflowFailException: what the run needs is missing or refused.
        """
        try:
            self._maintain(context)
        except SluiceError as error:
            if error.retryable:
                raise
            raise AirflowFailException(f"{type(error).__name__}: {error}") from error

    def _maintain(self, context: Context) -> None:
        # Imported here because it loads pyarrow, which the DAG file itself does not need.
        from sluice.rounds.records.json_files import write_json
        from sluice.rounds.records.maintenance import (
            MaintenanceRequest,
            read_outcome,
            reports_to_continue,
            request_uri,
        )
        from sluice.rounds.records.run_names import RunName, write_run_name
        from sluice.rounds.values.reasons import reason_of
        from sluice_airflow.config.deployment import lease_of_run

        ti, applied = context["ti"], not flag("dry_run", self.dry_run)
        connection = self._checked(context)
        work_uri = connection.require_work_uri()
        run = RunName(ti.dag_id, str(context["run_id"]))
        folder = lease_of_run(connection, run.dag_id, run.run_id, self._instance(ti))
        earlier: Sequence[TableReport] = ()
        if ti.try_number > 1:
            earlier = reports_to_continue(work_uri, folder)
        newest = {report.table: report for report in earlier}.values()
        done = [report.table for report in newest if not report.problems]
        request = MaintenanceRequest(
            connection.bootstrap, tuple(tables_given(self.tables)), applied, tuple(done)
        )
        uri = request_uri(work_uri, folder, str(ti.id))
        write_run_name(work_uri, folder, run)
        write_json(uri, request.to_json())
        self.application_args = ["--request", uri]
        failpoint("airflow.maintain.before_submit")
        with self._named(ti, run, folder, connection, applied):
            try:
                why = self._run_driver(context)
            except AirflowTaskTimeout:  # Airflow calls on_kill next
                try:
                    self._report(ti, [*earlier, *read_outcome(uri).reports], uri, applied)
                except Exception as error:  # or Airflow takes it for the failure: no on_kill
                    reason = reason_of(error, self._secrets)
                    self.log.error("no report of what was done before the time limit: %s", reason)
                raise
        outcome = read_outcome(uri)
        reports = self._report(ti, [*earlier, *outcome.reports], uri, applied)
        self._check(reports, outcome, why)

    @contextmanager
    def _named(
        self, ti: Any, run: RunName, folder: str, connection: FlussConnection, applied: bool
    ) -> Iterator[None]:
        """Names the run among the newest ones of this task, and says when the block has ended."""
        from sluice.rounds.records.maintenance import MaintenanceRun, note_run
        from sluice_airflow.config.deployment import lease_of_run

        noted = MaintenanceRun(
            folder=folder,
            attempt=str(ti.id),
            began_ms=SystemClock().now_ms(),
            applied=applied,
            by=str(run),
            dag_id=run.dag_id,
            run_id=run.run_id,
            task_id=self.task_id,
            map_index=ti.map_index,
            url=str(getattr(ti, "log_url", "")),
        )
        name = lease_of_run(connection, run.dag_id, "", self.task_id)
        note_run(connection.work_uri, name, noted)
        try:
            yield
        finally:
            noted = replace(noted, ended_ms=SystemClock().now_ms())
            note_run(connection.work_uri, name, noted)

    def _instance(self, ti: Any) -> str:
        """Names the task; instances of a mapped one have folders of their own."""
        return self.task_id if ti.map_index < 0 else f"{self.task_id}/{ti.map_index}"

    def _checked(self, context: Context) -> FlussConnection:
        """Checks what the run needs on this machine, before Spark starts."""
        from sluice_airflow.acquire.acquire import check_conf_keys
        from sluice_airflow.config import preflight
        from sluice_airflow.submit.submission import submission_of

        if self.conf_keys is not None:
            check_conf_keys(context["dag_run"].conf, self.conf_keys)
        connection = FlussHook(self.fluss_conn_id, self.datalake).config()
        self._set_conf(connection)
        properties = properties_given(self.spark_conf)
        submission = submission_of(self.settings, properties, self._spark_connection())
        submission = replace(submission, application=str(self.application))
        left = "this try maintained no table"
        if obstacle := preflight.find_obstacle(connection, submission, left):
            kind = AirflowException if obstacle.may_pass else AirflowFailException
            raise kind(obstacle.reason)
        return connection

    def _report(
        self, ti: Any, reports: Sequence[TableReport], request: str, applied: bool
    ) -> list[TableReport]:
        """Logs a line for each table, and pushes the XCom. Returns the newest report of each."""
        from sluice_airflow.outcomes.maintenance_report import (
            sorted_reports,
            summary_line,
            summary_of,
        )

        found = sorted_reports(reports, self._secrets)
        for report in found:
            log = self.log.error if report.problems else self.log.info
            log("%s", report.line)
        summary = summary_of(found, request.rpartition("/")[0], applied=applied)
        self.log.info("%s", summary_line(summary))
        ti.xcom_push(key=REPORT, value=summary)
        return found

    def _check(
        self, reports: Sequence[TableReport], outcome: MaintenanceOutcome, why: SluiceError
    ) -> None:
        """:raises MaintenanceFailed, MaintenanceNotRetried: something did not work."""
        from sluice_airflow.outcomes.maintenance_report import problems_text

        missing, retryable = "", any(one.problems and one.retryable for one in reports)
        if outcome.error is not None:
            error = outcome.error.checked(self._secrets)
            missing, retryable = f"the maintenance ended early: {error}", error.retryable
        elif not outcome.has_ended:
            at = f" at table {outcome.running}" if outcome.running else ""
            missing, retryable = (
                f"the maintenance ended early{at}: {why}",
                not isinstance(why, SparkSettingsWrong),
            )
        if text := problems_text(reports, missing):
            raise (MaintenanceFailed if retryable else MaintenanceNotRetried)(text)
