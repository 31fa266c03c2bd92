"""Reads the section [sluice] of Airflow's configuration when a DAG file is loaded."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields

from sluice.artifacts.spark_files import driver_script
from sluice.did_you_mean import did_you_mean
from sluice.errors import ConfigurationError
from sluice_airflow.airflow_names import conf
from sluice_airflow.provider_info import OPTIONS

AT_LEAST_ONE = frozenset({"tables_per_application"})
PREFIX = "AIRFLOW__SLUICE__"
"""Of the environment variables that Airflow reads the section's options from."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the DAG. ``provider_info.OPTIONS`` describes each."""

    connection: str
    schedule: str
    spark_connection: str
    spark_binary: str
    application: str
    py_files: str
    packages: str
    jars: str
    pool: str
    pool_slots: int
    tables_per_application: int
    rows_per_application: int
    tier_retries: int
    tier_retry_delay_seconds: int
    tier_timeout_seconds: int
    heartbeat_interval_seconds: int

    @property
    def cron(self) -> str | None:
        """Schedule in Airflow's form. None: manual runs only."""
        return None if self.schedule.lower() in ("", "none") else self.schedule

    @property
    def script(self) -> str:
        """Path of the Spark driver's script.

        :raises ConfigurationError: no script is set, and the package has none.
        """
        return self.application or str(driver_script())


def load_settings() -> Settings:
    """Reads the section: the environment overrides airflow.cfg, which overrides the defaults.

    :raises ConfigurationError: names the option and its value.
    """
    _check_names()
    values = {field.name: _value(field.name) for field in fields(Settings)}
    return Settings(**values)  # type: ignore[arg-type]


def slots_at_once(settings: Settings) -> int:
    """Returns how many tier tasks run at once. A task cannot read the size of its pool."""
    if settings.pool_slots:
        return settings.pool_slots
    names = ("parallelism", "max_active_tasks_per_dag", "default_pool_task_slot_count")
    return min(max(1, int(conf.get("core", name, fallback="16"))) for name in names)


def _check_names() -> None:
    """:raises ConfigurationError: the section has an option that does not exist."""
    # Airflow 3.1 has no section for variables alone.
    variables = [name.removeprefix(PREFIX) for name in os.environ if name.startswith(PREFIX)]
    for given in [*(conf.getsection("sluice") or {}), *map(str.lower, variables)]:
        name = given.removesuffix("_cmd").removesuffix("_secret")  # where Airflow finds a value
        if name not in OPTIONS:
            hint = did_you_mean(name, OPTIONS) or f"; the options are {', '.join(OPTIONS)}"
            where = f"section [sluice] of airflow.cfg, or {PREFIX}{name.upper()}"
            raise ConfigurationError(f"{where}: no option {name!r}{hint}")


def _value(name: str) -> str | int:
    kind, default, _ = OPTIONS[name]
    text = (conf.get("sluice", name, fallback=default) or "").strip()
    if kind != "integer":
        return text
    text = text or default
    try:
        number = int(text)
    except ValueError:
        number = -1
    least = 1 if name in AT_LEAST_ONE else 0
    if number < least:
        where = f"section [sluice] of airflow.cfg, or {PREFIX}{name.upper()}"
        raise ConfigurationError(
            f"{where}: {name}: expected a whole number, {least} or more, found {text!r}"
        )
    return number
