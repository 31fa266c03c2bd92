"""Checks what a run needs, for acquire_lease and for *Test connection*. Does not import Airflow.

:mod:`sluice.checks` has the checks. This module selects those that this machine can answer, because
Airflow's tasks, Spark's driver and Spark's executors may run on different machines.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sluice.artifacts.iceberg import AUTO
from sluice.checks import spark
from sluice.checks.cluster import cluster_check
from sluice.checks.findings import Check, Finding, NotChecked, first_failure, run_checks
from sluice.checks.folders import local_path, work_folder_check
from sluice.checks.iceberg_jars import iceberg_jars
from sluice.checks.lake import CheckScope, lake_checks
from sluice.config import Config, load_config
from sluice.errors import ConfigurationError
from sluice.masking import is_secret_name
from sluice_airflow.config.connection import CONF_PREFIX, FlussConnection

log = logging.getLogger(__name__)

CALL_TIMEOUT_MS = 5_000
OF_SECTION = "with the settings of section sluice, not with arguments of a DAG file"
"""What *Test connection* says of its result: no DAG file is known to it."""
CLUSTER_TIMEOUT_S = 2 * CALL_TIMEOUT_MS / 1000


@dataclass(frozen=True, slots=True)
class Submission:
    """How the tier tasks call spark-submit. Fields are named as in the section [sluice]."""

    application: str = ""
    binary: str = "spark-submit"
    master: str = ""
    deploy_mode: str = "client"
    jars: str = ""
    packages: str = ""
    py_files: str = ""
    spark_conf: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Spark properties of the run's parameter ``spark_conf``."""
    remote_executor: str = ""
    """Airflow executor that runs tasks on other machines. Empty: tasks run on this machine."""

    @property
    def driver_is_local(self) -> bool:
        return not self.remote_executor and self.deploy_mode != "cluster"

    @property
    def spark_is_local(self) -> bool:
        """Whether driver and executors all run on this machine."""
        return self.driver_is_local and self.master.startswith("local")


@dataclass(frozen=True, slots=True)
class Obstacle:
    """The problem that keeps a run from working on any table."""

    reason: str
    """One line."""
    may_pass: bool
    """A later attempt may succeed, because no check found something missing or refused."""


def find_obstacle(
    connection: FlussConnection,
    submission: Submission,
    # "this try": drop_lease releases what an earlier try claimed.
    left: str = "this try claimed no table",
) -> Obstacle | None:
    """Returns the problem that keeps a run from working on any table, or None.

    Logs what this machine cannot check. Does not check the cluster: the claims that follow wait for
    a coordinator that restarts.

    :param left: what the error says of the tables.
    """
    findings = check_all(connection, submission)
    failed = first_failure(findings)
    if failed is not None:
        reason = f"{failed} (on {socket.gethostname()}; {left})"
        return Obstacle(reason, failed.may_pass)
    for finding in findings:
        if finding.ok is None:
            log.info("not checked: %s", finding)
    log.info("checked: %s", _checked_names(findings))
    return None


def check_connection(connection: FlussConnection, submission: Submission) -> tuple[bool, str]:
    """Returns the result of *Test connection*: the first problem, or the list of checks.

    :param submission: as the section [sluice] has it.
    """
    config = connection.client_config(CALL_TIMEOUT_MS)
    [answered] = run_checks([cluster_check(config)], connection.secrets(), CLUSTER_TIMEOUT_S)
    if not answered.ok:
        return False, str(answered)
    findings, here = check_all(connection, submission), socket.gethostname()
    failed = first_failure(findings)
    if failed is not None:
        return False, f"{failed} (on {here}, where this test runs, {OF_SECTION})"
    said = f"{answered}. Checked on {here}, {OF_SECTION}: {_checked_names(findings)}"
    if others := "; ".join(str(finding) for finding in findings if finding.ok is None):
        said += f". Not checked: {others}"
    return True, said


def check_all(connection: FlussConnection, submission: Submission) -> list[Finding]:
    """Runs all checks but that of the cluster. Causes come before their consequences."""
    asked = submission.spark_conf.items()
    secrets = connection.secrets() + [str(value) for name, value in asked if is_secret_name(name)]
    try:
        config = _driver_config(connection, submission)
    except ConfigurationError as error:
        on_lake = [_failing_check(error)]
    else:
        secrets += config.secrets()
        scope = CheckScope(submission.driver_is_local, submission.spark_is_local, hdfs=False)
        on_lake = lake_checks(config, scope)
    on_spark = (
        _remote_spark_checks(submission)
        if submission.remote_executor
        else _local_spark_checks(submission)
    )
    work = _work_folder(connection, submission.remote_executor)
    if submission.deploy_mode == "cluster" and local_path(connection.work_uri) is not None:
        work = _decided_elsewhere(work)
    return run_checks([*on_spark, *_iceberg(submission), work, *on_lake], secrets)


def _local_spark_checks(submission: Submission) -> list[Check]:
    script = spark.driver_script(
        submission.application, f"correct {_option('application')}, or leave it empty"
    )
    found = [
        _decided_elsewhere(script) if submission.deploy_mode == "cluster" else script,
        spark.program(submission.binary, f"or correct {_option('spark_binary')}"),
        spark.java_of(submission.binary, submission.driver_is_local),
    ]
    if submission.py_files:
        remedy = f"correct {_option('py_files')}"
        found.append(spark.files("py_files", submission.py_files, remedy))
    return found


def _remote_spark_checks(submission: Submission) -> list[Check]:
    why = f"tasks run on other machines ({submission.remote_executor}); acquire_lease checks there"
    return [_unchecked("the driver's script, spark-submit, Java", why)]


def _iceberg(submission: Submission) -> list[Check]:
    """Returns the checks of Iceberg's runtime. Jars override packages."""
    if submission.jars and submission.remote_executor:
        return [_unchecked("jars", f"tasks run on other machines: {submission.jars}")]
    if submission.jars:
        return [_jars_check(submission, f"correct {_option('jars')}")]
    if submission.packages == AUTO and submission.remote_executor:
        return [_unchecked("packages", "chosen for the Spark on the machines that run tasks")]
    if submission.packages == AUTO:
        remedy = f"or name Iceberg's runtime for your Spark in {_option('packages')}"
        return [spark.iceberg_packages(submission.binary, remedy)]
    if submission.packages:
        return [spark.packages(submission.packages, f"correct {_option('packages')}")]
    if submission.remote_executor:
        why = "neither jars nor packages is set: Spark itself must have Iceberg's runtime"
        return [_unchecked("jars", why)]
    return [_jars_check(submission, f"or set {_option('packages')} to {AUTO}")]


def _jars_check(submission: Submission, remedy: str) -> Check:
    return iceberg_jars(
        submission.jars,
        submission.binary,
        remedy,
        submission.spark_conf,
        submission.driver_is_local,
    )


def _option(name: str) -> str:
    """Returns the places of a setting: a DAG file overrides the section.

    No brackets: `airflow connections test` reads a word in brackets as a colour.
    """
    return f"option {name} of section sluice in airflow.cfg or argument {name} of the DAG file"


def _work_folder(connection: FlussConnection, remote_executor: str) -> Check:
    uri = connection.work_uri
    if not uri:
        return Check("work folder", connection.require_work_uri)
    if remote_executor and local_path(uri) is not None:
        return _unchecked(f"work folder {uri}", "a local folder of the machines that run tasks")
    return work_folder_check(uri, is_certain=not remote_executor)


def _driver_config(connection: FlussConnection, submission: Submission) -> Config:
    """Returns the driver's settings, as far as this machine knows them.

    :raises ConfigurationError: the driver would refuse one of them.
    """
    asked = {
        name.removeprefix(CONF_PREFIX): str(value)
        for name, value in submission.spark_conf.items()
        if name.startswith(CONF_PREFIX)
    }
    environment = os.environ if submission.driver_is_local else {}
    settings = {**asked, **connection.settings()}
    return load_config(None, environment, settings, overrides_prefix=CONF_PREFIX)


def _decided_elsewhere(check: Check) -> Check:
    """The check of a local path in deploy mode cluster: a success here is not one there."""

    def run() -> str | NotChecked:
        seen = check.run()
        if isinstance(seen, NotChecked):
            return seen
        return NotChecked(
            f"{seen}; it is a local path in deploy mode cluster: only the driver's machine decides"
        )

    return replace(check, run=run)


def _failing_check(error: ConfigurationError) -> Check:
    def refuse() -> str:
        raise error

    return Check("settings", refuse)


def _unchecked(what: str, why: str) -> Check:
    return Check(what, lambda: NotChecked(why))


def _checked_names(findings: list[Finding]) -> str:
    return ", ".join(finding.what for finding in findings if finding.ok)
