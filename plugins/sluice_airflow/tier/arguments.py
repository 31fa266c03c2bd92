"""The arguments of a tier task that have a name or a default of Airflow, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sluice.errors import ConfigurationError


def left_out(of_section: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments that neither the task's call nor its ``default_args`` give.

    :param of_section: what the section [sluice] says of arguments that each task of Airflow has.
    :param given: the call's own arguments, with the ``default_args`` that Airflow adds to them.
    """
    usual = given.get("default_args") or {}
    return {
        name: value
        for name, value in of_section.items()
        if given.get(name) is None and usual.get(name) is None
    }


def spark_connection(spark_conn_id: str | None, given: dict[str, Any]) -> str | None:
    """Returns the id of the Spark connection, and removes Airflow's name for it.

    A ``conn_id`` in ``default_args`` may be meant for other tasks, so ``spark_conn_id`` wins there.

    :param given: as for :func:`left_out`.
    :raises ConfigurationError: the call gives two connections.
    """
    conn_id: str | None = given.pop("conn_id", None)
    if spark_conn_id is None or conn_id in (None, spark_conn_id):
        usual = (given.get("default_args") or {}).get("conn_id")
        return spark_conn_id or conn_id or usual
    raise ConfigurationError(
        f"task {given.get('task_id')!r}: spark_conn_id is {spark_conn_id!r}, but conn_id is"
        f" {conn_id!r}: give one of them; both name the Spark connection"
    )
