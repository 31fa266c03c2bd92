"""What is looked at before a run costs anything: by acquire_lease, and by *Test connection*.

The checks are those of :mod:`sluice.checks`. Here it is decided which of them this machine can
answer: Airflow's tasks, Spark's driver and its executors may each run on another one. Plain
functions: no Airflow here.
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
from sluice_airflow.connection import CONF_PREFIX, FlussConnection

log = logging.getLogger(__name__)

CALL_TIMEOUT_MS = 5_000
CLUSTER_TIMEOUT_S = 2 * CALL_TIMEOUT_MS / 1000


@dataclass(frozen=True, slots=True)
class Submission:
    """How the tier tasks call spark-submit; the names are those of the section [sluice]."""

    application: str = ""
    binary: str = "spark-submit"
    master: str = ""
    deploy_mode: str = "client"
    jars: str = ""
    packages: str = ""
    py_files: str = ""
    spark_conf: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Properties that the run was asked for."""
    elsewhere: str = ""
    """The executor that runs tasks on other machines; empty: they run on this one."""

    @property
    def driver_is_here(self) -> bool:
        return not self.elsewhere and self.deploy_mode != "cluster"

    @property
    def spark_is_here(self) -> bool:
        """Whether no part of the application runs on another machine."""
        return self.driver_is_here and self.master.startswith("local")


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What keeps a run from tiering anything."""

    reason: str
    """One line."""
    may_pass: bool
    """A later try may succeed: nothing is known to be missing or refused."""


def before_run(connection: FlussConnection, submission: Submission) -> Obstacle | None:
    """What keeps a run from tiering anything; None if nothing is found that does.

    What cannot be checked goes to the log. The cluster is left to the calls that follow: they wait
    for a coordinator that is being started.
    """
    findings = look(connection, submission)
    failed = first_failure(findings)
    if failed is not None:
        # An earlier try may have claimed tables; drop_lease lets go of them.
        reason = f"{failed} (on {socket.gethostname()}; this try claims nothing)"
        return Obstacle(reason, failed.may_pass)
    for finding in findings:
        if finding.ok is None:
            log.info("not checked: %s", finding)
    log.info("checked: %s", _names(findings))
    return None


def answer(connection: FlussConnection, submission: Submission) -> tuple[bool, str]:
    """What *Test connection* answers: the one thing that is missing, or what was checked."""
    config = replace(
        connection.client_config(),
        request_timeout_ms=CALL_TIMEOUT_MS,
        retry_timeout_ms=CALL_TIMEOUT_MS,
        connect_timeout_ms=CALL_TIMEOUT_MS,
    )
    [answered] = run_checks([cluster_check(config)], connection.secrets(), CLUSTER_TIMEOUT_S)
    if not answered.ok:
        return False, str(answered)
    findings, here = look(connection, submission), socket.gethostname()
    failed = first_failure(findings)
    if failed is not None:
        return False, f"{failed} (on {here}, where this test runs)"
    said = f"{answered}. Checked on {here}: {_names(findings)}"
    if others := "; ".join(str(finding) for finding in findings if finding.ok is None):
        said += f". Not checked: {others}"
    return True, said


def look(connection: FlussConnection, submission: Submission) -> list[Finding]:
    """Everything but the cluster; causes come before what follows from them."""
    asked = submission.spark_conf.items()
    secrets = connection.secrets() + [str(value) for name, value in asked if is_secret_name(name)]
    try:
        config = _driver_config(connection, submission)
    except ConfigurationError as error:
        on_lake = [_refused(error)]
    else:
        secrets += config.secrets()
        scope = CheckScope(submission.driver_is_here, submission.spark_is_here, hdfs=False)
        on_lake = lake_checks(config, scope)
    on_spark = _elsewhere(submission) if submission.elsewhere else _here(submission)
    work = _work(connection, submission.elsewhere)
    return run_checks([*on_spark, *_iceberg(submission), work, *on_lake], secrets)


def _here(submission: Submission) -> list[Check]:
    found = [
        spark.driver_script(
            submission.application, f"correct {_option('application')}, or leave it empty"
        ),
        spark.program(submission.binary, f"or set {_option('spark_binary')} to another"),
        spark.java_of(submission.binary, submission.driver_is_here),
    ]
    if submission.py_files:
        remedy = f"correct {_option('py_files')}"
        found.append(spark.files("py_files", submission.py_files, remedy))
    return found


def _elsewhere(submission: Submission) -> list[Check]:
    why = f"tasks run on other machines ({submission.elsewhere}); acquire_lease looks there"
    return [_not_checked("the driver's script, spark-submit, Java", why)]


def _iceberg(submission: Submission) -> list[Check]:
    """Iceberg's runtime; packages do not count if there are jars."""
    if submission.jars and submission.elsewhere:
        return [_not_checked("jars", f"tasks run on other machines: {submission.jars}")]
    if submission.jars:
        return [_jars(submission, f"correct {_option('jars')}")]
    if submission.packages == AUTO and submission.elsewhere:
        return [_not_checked("packages", "those for the Spark of the machines that run tasks")]
    if submission.packages == AUTO:
        remedy = f"or name Iceberg's runtime for your Spark in {_option('packages')}"
        return [spark.iceberg_packages(submission.binary, remedy)]
    if submission.packages:
        return [spark.packages(submission.packages, f"correct {_option('packages')}")]
    if submission.elsewhere:
        why = "neither jars nor packages are set: Spark has to bring Iceberg's"
        return [_not_checked("jars", why)]
    return [_jars(submission, f"or set {_option('packages')} to {AUTO}")]


def _jars(submission: Submission, remedy: str) -> Check:
    return iceberg_jars(
        submission.jars,
        submission.binary,
        remedy,
        submission.spark_conf,
        submission.driver_is_here,
    )


def _option(name: str) -> str:
    """Without brackets: `airflow connections test` takes a word in them for a colour."""
    return f"option {name} of section sluice in airflow.cfg"


def _work(connection: FlussConnection, elsewhere: str) -> Check:
    uri = connection.work_uri
    if not uri:
        return Check("work folder", connection.require_work_uri)
    if elsewhere and local_path(uri) is not None:
        return _not_checked(f"work folder {uri}", "it is on the machines that run tasks")
    return work_folder_check(uri, is_certain=not elsewhere)


def _driver_config(connection: FlussConnection, submission: Submission) -> Config:
    """The settings that the driver will find, as far as they are known here.

    :raises ConfigurationError: the driver will refuse one of them.
    """
    asked = {
        name.removeprefix(CONF_PREFIX): str(value)
        for name, value in submission.spark_conf.items()
        if name.startswith(CONF_PREFIX)
    }
    environment = os.environ if submission.driver_is_here else {}
    settings = {**asked, **connection.settings()}
    return load_config(None, environment, settings, overrides_prefix=CONF_PREFIX)


def _refused(error: ConfigurationError) -> Check:
    def refuse() -> str:
        raise error

    return Check("settings", refuse)


def _not_checked(what: str, why: str) -> Check:
    return Check(what, lambda: NotChecked(why))


def _names(findings: list[Finding]) -> str:
    return ", ".join(finding.what for finding in findings if finding.ok)
