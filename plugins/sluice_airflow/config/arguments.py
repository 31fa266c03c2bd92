"""The arguments of tasks and DAGs, which a DAG file may give in place of the settings."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypedDict

from airflow.sdk import DAG, XComArg

from sluice.did_you_mean import did_you_mean
from sluice.errors import ConfigurationError
from sluice_airflow.config.params import ALL_TABLES, TABLES_MAX
from sluice_airflow.config.rendered import count_given, tables_given
from sluice_airflow.config.settings import CONNECTIONS, Settings, load_settings

Callbacks = Callable[[Any], Any] | Sequence[Callable[[Any], Any]]


class LakeArguments(TypedDict, total=False):
    """Each is optional. Those without a description here are described as options of the section
    [sluice] of Airflow's configuration, which also has their defaults.
    """

    fluss_conn_id: str
    """Id of the Airflow connection (type fluss) to the cluster: option ``connection``."""
    spark_conn_id: str
    """Id of the Airflow connection (type spark): option ``spark_connection``."""
    tables: Sequence[str]
    """Names or patterns of tables. Default: all tables of the cluster's lake."""
    spark_conf: Mapping[str, Any]
    """Spark properties of every driver."""
    datalake: Mapping[str, Any]
    """Options of the lake, named as in Fluss, that override those of the connection."""
    spark_binary: str
    application: str
    py_files: str
    packages: str
    jars: str
    pool: str


class TieringArguments(LakeArguments, total=False):
    """The arguments of tasks that tier tables."""

    max_tables: int
    """A run claims no more tables than this."""
    on_tables_failed: Callbacks
    """Called with the context of ``drop_lease`` if tables were not tiered. Its ``exception`` names
    them with the reasons. A notifier of Airflow is such a callback."""
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


class MaintenanceArguments(LakeArguments, total=False):
    """The arguments of tasks that maintain tables."""

    maintenance_retries: int
    maintenance_timeout_seconds: int


class OfAirflow(TypedDict, total=False):
    """Arguments of Airflow's DAG."""

    on_failure_callback: Callbacks
    on_success_callback: Callbacks
    params: dict[str, Any]
    """Beside those of a run of Sluice."""
    tags: Any
    description: str
    doc_md: str
    default_args: dict[str, Any]
    start_date: Any
    end_date: Any
    max_active_runs: int
    catchup: bool
    owner_links: dict[str, str]
    access_control: Any
    is_paused_upon_creation: bool
    dag_display_name: str
    max_active_tasks: int
    max_consecutive_failed_dag_runs: int
    template_searchpath: Any
    user_defined_macros: dict[str, Any]
    user_defined_filters: dict[str, Any]
    render_template_as_native_obj: bool
    jinja_environment_kwargs: dict[str, Any]
    fail_fast: bool
    disable_bundle_versioning: bool


OF_DAG = frozenset(inspect.signature(DAG).parameters) - {"dag_id", "schedule"}
OF_SETTINGS: Any = object()
"""Stands for a schedule that the DAG file does not give. None is one: manual runs only."""


@dataclass(frozen=True, slots=True)
class Tiering:
    """What the tiering tasks of a DAG need to know."""

    settings: Settings
    tables: Any = ALL_TABLES
    max_tables: Any = TABLES_MAX
    spark_conf: Any = None
    datalake: Mapping[str, Any] | None = None
    on_tables_failed: Any = None
    force: Any = False
    wait: Any = False
    dry_run: Any = False
    conf_keys: Sequence[str] | None = None
    """The keys that the conf of a run may have. None: any."""

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Tiering:
        """Reads the arguments of a DAG file.

        :raises ConfigurationError: names the argument and its value.
        """
        check_values(arguments)
        own = {field.name for field in fields(cls)} - {"settings", "conf_keys"}
        settings = settings_given({k: v for k, v in arguments.items() if k not in own})
        return cls(settings, **{k: v for k, v in arguments.items() if k in own})


def settings_given(arguments: Mapping[str, Any]) -> Settings:
    """The section [sluice], with these arguments of a DAG file over it.

    :raises ConfigurationError: names the option and its value.
    """
    options = {argument: option for option, argument in CONNECTIONS.items()}
    return load_settings(**{options.get(k, k): v for k, v in arguments.items()})


def check_values(given: Mapping[str, Any]) -> None:
    """Checks the arguments that are no options of the section; templates are read by the tasks.

    :raises ConfigurationError: names the argument, and its value unless that may be a secret.
    """
    for name, value in given.items():
        is_template = isinstance(value, XComArg) or (isinstance(value, str) and "{{" in value)
        if value is None or name not in CHECKS or (is_template and name in TEMPLATED):
            continue
        try:
            CHECKS[name](name, value)
        except ConfigurationError as error:
            raise ConfigurationError(f"argument of the DAG file: {error}") from None


def _is_list_of_tables(name: str, value: Any) -> None:
    if isinstance(value, str):
        raise ConfigurationError(
            f"{name}: expected a list, found {value!r}; write {name}=[{value!r}]"
        )
    tables_given(value)


def _is_number_of_tables(name: str, value: Any) -> None:
    if count_given(name, value) > TABLES_MAX:
        raise ConfigurationError(f"{name}: expected at most {TABLES_MAX:,}, found {value!r}")


def _is_mapping(name: str, value: Any) -> None:
    if not isinstance(value, Mapping):  # the value may have secrets
        example = EXAMPLES[name]
        raise ConfigurationError(
            f"{name}: expected a dict, found a {type(value).__name__}; write {name}={example}"
        )


def _is_callback(name: str, value: Any) -> None:
    found = value if isinstance(value, list | tuple) else [value]
    for one in found:
        if not callable(one):
            raise ConfigurationError(f"{name}: expected a function or a notifier, found {one!r}")


CHECKS: dict[str, Callable[[str, Any], None]] = {
    "tables": _is_list_of_tables,
    "max_tables": _is_number_of_tables,
    "spark_conf": _is_mapping,
    "datalake": _is_mapping,
    "on_tables_failed": _is_callback,
}
TEMPLATED = frozenset({"tables", "max_tables", "spark_conf"})
EXAMPLES = {
    "spark_conf": '{"spark.executor.memory": "4g"}',
    "datalake": '{"iceberg.warehouse": "s3://bucket/lake"}',
}


def split(
    arguments: Mapping[str, Any], known: Collection[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the known arguments, and the others."""
    own = {name: value for name, value in arguments.items() if name in known}
    return own, {name: value for name, value in arguments.items() if name not in known}


def joined_params(
    where: str, own: Mapping[str, Any], more: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Returns the parameters of a run, and those that a DAG file adds.

    :raises ConfigurationError: a name is there twice.
    """
    if both := sorted({*own} & {*(more or {})}):
        raise ConfigurationError(
            f"{where}: params: {both[0]!r} is a parameter of its own; give its default by"
            " the argument of that name, or use another name"
        )
    return {**own, **(more or {})}


def check_known(where: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
    """:raises ConfigurationError: names the first unknown argument, and a similar one."""
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known) or f"; the arguments are {', '.join(known)}"
            raise ConfigurationError(f"{where}: no argument {name!r}{hint}")
