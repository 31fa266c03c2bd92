"""How spark-submit will be called, from Airflow's configuration and the Spark connection."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from airflow.sdk import BaseHook

from sluice.errors import ConfigurationError
from sluice_airflow.airflow_names import AirflowException, AirflowNotFoundException, conf
from sluice_airflow.preflight import Submission
from sluice_airflow.settings import Settings

_YARN_VARIABLES = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_BESIDE_AIRFLOW = re.compile(r"\s*(?:[\w.]+[.:])?(?:Local|Sequential)Executor\s*")


def submission_of(settings: Settings, spark_conf: Mapping[str, Any]) -> Submission:
    """What the tier tasks of a run will call.

    :param spark_conf: Spark properties that the run was asked for.
    :raises ConfigurationError: there is no Spark connection, or the provider refuses what it says.
    """
    name = settings.spark_connection
    try:
        from sluice_airflow.operators.submit import GroupSubmitHook
    except ImportError as error:
        how = "pip install apache-airflow-providers-apache-spark"
        raise ConfigurationError(f"Airflow's Spark provider is missing ({error}): {how}") from error
    try:
        BaseHook.get_connection(name)
    except AirflowNotFoundException as error:
        # The provider takes yarn then, which Spark cannot reach without one of these either.
        if not any(os.environ.get(variable) for variable in _YARN_VARIABLES):
            raise ConfigurationError(
                f"there is no connection {name!r}: airflow connections add {name}"
                " --conn-type spark --conn-host 'local[2]' (or another master)"
            ) from error
    try:
        hook = GroupSubmitHook(conn_id=name, spark_binary=settings.spark_binary or None)
    except (ValueError, RuntimeError, AirflowException) as error:
        raise ConfigurationError(f"connection {name!r}: {error}") from error
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


def submission_elsewhere(settings: Settings) -> Submission:
    """What is known of it on a machine where no tier task runs."""
    executor = _executor()
    return Submission(jars=settings.jars, packages=settings.packages, elsewhere=executor)


def tasks_run_here() -> bool:
    """Whether tasks run beside Airflow's own processes, as far as its configuration tells."""
    return _BESIDE_AIRFLOW.fullmatch(_executor()) is not None


def _executor() -> str:
    return str(conf.get("core", "executor", fallback="") or "LocalExecutor").strip()
