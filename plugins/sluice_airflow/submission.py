"""Reads from Airflow's configuration and the Spark connection how spark-submit is called."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Mapping
from typing import Any

from sluice.errors import ConfigurationError
from sluice_airflow.airflow_names import AirflowException, AirflowNotFoundException, conf
from sluice_airflow.api_server import connection_of
from sluice_airflow.preflight import Submission
from sluice_airflow.settings import Settings

_YARN_VARIABLES = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_BESIDE_AIRFLOW = re.compile(r"\s*(?:[\w.]+[.:])?(?:Local|Sequential)Executor\s*")


def submission_of(settings: Settings, spark_conf: Mapping[str, Any]) -> Submission:
    """Returns how the tier tasks of a run call spark-submit.

    :param spark_conf: Spark properties of the run's parameters.
    :raises ConfigurationError: the Spark connection does not exist, or the provider refuses it.
    """
    name = settings.spark_connection
    try:
        from sluice_airflow.group_submit import GroupSubmitHook
    except ImportError as error:
        how = "pip install apache-airflow-providers-apache-spark"
        raise ConfigurationError(
            f"Airflow's Spark provider is not installed ({error}): run `{how}`"
        ) from error
    try:
        connection_of(name)
    except AirflowNotFoundException as error:
        # The provider then uses yarn, which Spark cannot reach without one of these variables.
        if not any(os.environ.get(variable) for variable in _YARN_VARIABLES):
            raise ConfigurationError(
                f"connection {name!r} does not exist: run `airflow connections add {name}"
                " --conn-type spark --conn-host 'local[2]'` (or another Spark master), or correct"
                " option spark_connection of section sluice in airflow.cfg or argument"
                " spark_conn_id of the DAG file"
            ) from error
    try:
        hook = GroupSubmitHook(conn_id=name, spark_binary=settings.spark_binary or None)
    except Exception as error:  # also those that the provider does not expect, as a NameError
        raise ConfigurationError(f"connection {name!r}: {_reason(error)}") from error
    return Submission(
        application=settings.application,
        binary=hook.binary,
        master=hook.master,
        deploy_mode=hook.deploy_mode or str(spark_conf.get("spark.submit.deployMode") or "client"),
        jars=settings.jars,
        packages=settings.packages,
        py_files=settings.py_files,
        spark_conf=spark_conf,
    )


def _reason(error: Exception) -> str:
    """The provider's error; with the command that installs what a master k8s:// needs."""
    if "kube" not in str(error).lower() or _has_kubernetes():
        is_expected = isinstance(error, ValueError | RuntimeError | AirflowException)
        return str(error) if is_expected else f"{type(error).__name__}: {error}"
    how = "pip install apache-airflow-providers-cncf-kubernetes"
    return f"a master k8s:// needs Airflow's Kubernetes provider ({error}): run `{how}`"


def _has_kubernetes() -> bool:
    try:
        return importlib.util.find_spec("airflow.providers.cncf.kubernetes") is not None
    except ModuleNotFoundError:
        return False


def remote_submission(settings: Settings) -> Submission:
    """Returns the submission as a machine knows it on which no tier task runs."""
    executor = _executor()
    return Submission(jars=settings.jars, packages=settings.packages, remote_executor=executor)


def tasks_run_locally() -> bool:
    """Returns whether the configured executor runs tasks on this machine."""
    return _BESIDE_AIRFLOW.fullmatch(_executor()) is not None


def _executor() -> str:
    return str(conf.get("core", "executor", fallback="") or "LocalExecutor").strip()
