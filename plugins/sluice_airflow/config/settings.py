"""Settings of a DAG: arguments of its file over the section [sluice] of Airflow's configuration."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any

from sluice.artifacts.spark_files import driver_script, maintenance_script
from sluice.did_you_mean import did_you_mean
from sluice.errors import ConfigurationError
from sluice_airflow.airflow_api.airflow_names import conf
from sluice_airflow.provider_info import OPTIONS

LEAST = {"tables_per_application": 1, "heartbeat_interval_seconds": 1}
MOST = {"heartbeat_interval_seconds": 60}
"""The coordinator ends a claim after two minutes without a heartbeat."""
CONNECTIONS = {"connection": "fluss_conn_id", "spark_connection": "spark_conn_id"}
"""Options whose arguments have Airflow's usual names."""
FLAGS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
"""As Airflow reads them."""
PREFIX = "AIRFLOW__SLUICE__"
"""Of the environment variables that Airflow reads the section's options from."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the DAGs. ``provider_info.OPTIONS`` describes each."""

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
    spark_history_url: str
    lake_table_url: str
    health_url: str
    maintenance_schedule: str
    maintenance_retries: int
    maintenance_timeout_seconds: int
    page: bool

    @property
    def cron(self) -> str | None:
        """Schedule in Airflow's form. None: manual runs only."""
        return _cron(self.schedule)

    @property
    def maintenance_cron(self) -> str | None:
        """Schedule of the maintenance in Airflow's form. None: manual runs only."""
        return _cron(self.maintenance_schedule)

    @property
    def script(self) -> str:
        """Path of the Spark driver's script.

        :raises ConfigurationError: no script is set, and the package has none.
        """
        return self.application or str(driver_script())

    @property
    def maintenance_script(self) -> str:
        """Path of the script of the maintenance: beside that of the rounds.

        :raises ConfigurationError: no script is set, and the package has none.
        """
        script = maintenance_script()
        if not self.application:
            return str(script)
        folder, slash, _ = self.application.rpartition("/")
        return f"{folder}{slash}{script.name}"

    def arguments(self, *names: str) -> dict[str, Any]:
        """The arguments of an operator that runs spark-submit or checks it, and those named."""
        own = ("spark_binary", "application", "py_files", "packages", "jars", *names)
        connections = {argument: getattr(self, option) for option, argument in CONNECTIONS.items()}
        return connections | {name: getattr(self, name) for name in own}

    def of_tier_task(self) -> dict[str, Any]:
        """Arguments of each task of Airflow that the section has for the tier task."""
        delay = timedelta(seconds=self.tier_retry_delay_seconds)
        return {"pool": self.pool, "retries": self.tier_retries, "retry_delay": delay}

    def of_maintenance(self) -> dict[str, Any]:
        """As :meth:`of_tier_task`, for the task of the maintenance."""
        timeout_s = self.maintenance_timeout_seconds
        return {
            "pool": self.pool,
            "retries": self.maintenance_retries,
            "execution_timeout": timedelta(seconds=timeout_s) if timeout_s else None,
        }


def _cron(schedule: str) -> str | None:
    return None if schedule.lower() in ("", "none") else schedule


def load_settings(**given: Any) -> Settings:
    """Reads the section: the environment overrides airflow.cfg, which overrides the defaults.

    :param given: arguments of a DAG file, named as the options. They override the section; None
        does not.
    :raises ConfigurationError: names the option and its value.
    """
    _check_names()
    values = {}
    for field in fields(Settings):
        own = given.get(field.name)
        values[field.name] = _value(field.name) if own is None else _argument(field.name, own)
    return Settings(**values)  # type: ignore[arg-type]


def page_is_on() -> bool:
    """Whether the API server serves the page.

    :raises ConfigurationError: the option is neither true nor false.
    """
    return bool(_value("page"))


def connection_id(given: str | None) -> str:
    """Returns the id of the connection to the cluster: the given one, or that of the section."""
    return load_settings().connection if given is None else given


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


def _value(name: str) -> str | int | bool:
    kind, default, _ = OPTIONS[name]
    text = (conf.get("sluice", name, fallback=default) or "").strip()
    if kind == "string":
        return text
    text = text or default
    where = f"section [sluice] of airflow.cfg, or {PREFIX}{name.upper()}"
    if kind == "boolean":
        if text.lower() not in FLAGS:
            raise ConfigurationError(f"{where}: {name}: expected true or false, found {text!r}")
        return FLAGS[text.lower()]
    try:
        return _number(name, int(text), where)
    except ValueError:
        raise _not_a_number(name, text, where) from None


def _argument(name: str, given: Any) -> str | int:
    where = "argument of the DAG file"
    if OPTIONS[name][0] != "integer":
        if not isinstance(given, str):
            wanted = "the id of a connection" if name in CONNECTIONS else "a text"
            argument = CONNECTIONS.get(name, name)
            raise ConfigurationError(f"{where}: {argument}: expected {wanted}, found {given!r}")
        return given.strip()
    if not isinstance(given, int) or isinstance(given, bool):
        raise _not_a_number(name, given, where)
    return _number(name, given, where)


def _number(name: str, number: int, where: str) -> int:
    if number < LEAST.get(name, 0) or number > MOST.get(name, number):
        raise _not_a_number(name, number, where)
    return number


def _not_a_number(name: str, found: object, where: str) -> ConfigurationError:
    least = LEAST.get(name, 0)
    expected = f"from {least} to {MOST[name]}" if name in MOST else f"{least} or more"
    return ConfigurationError(
        f"{where}: {name}: expected a whole number, {expected}, found {str(found)!r}"
    )
