"""Reads from Airflow's configuration and the Spark connection how spark-submit is called."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sluice.errors import ConfigurationError
from sluice_airflow.airflow_api.airflow_names import AirflowException, conf
from sluice_airflow.config.preflight import Submission
from sluice_airflow.config.settings import Settings

if TYPE_CHECKING:
    from airflow.sdk import Connection

_BESIDE_AIRFLOW = re.compile(r"\s*(?:[\w.]+[.:])?(?:Local|Sequential)Executor\s*")


def submission_of(
    settings: Settings, spark_conf: Mapping[str, Any], connection: Connection | None = None
) -> Submission:
    """Returns how the tier tasks of a run call spark-submit.

    :param spark_conf: Spark properties of the run's parameters.
    :param connection: the Spark connection. None: it is read.
    :raises ConfigurationError: the Spark connection does not exist, or the provider refuses it.
    """
    name = settings.spark_connection
    try:
        from sluice_airflow.submit.process_group import GroupSubmitHook, spark_connection_of
    except ImportError as error:
        how = "pip install apache-airflow-providers-apache-spark"
        raise ConfigurationError(
            f"Airflow's Spark provider is not installed ({error}): run `{how}`"
        ) from error
    if connection is None:
        connection = spark_connection_of(name)
    try:
        binary = settings.spark_binary or None
        hook = GroupSubmitHook(conn_id=name, connection=connection, spark_binary=binary)
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
