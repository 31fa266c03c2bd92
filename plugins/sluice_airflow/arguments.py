"""The arguments of the tiering tasks, which a DAG file may give in place of the settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypedDict

from sluice.did_you_mean import did_you_mean
from sluice.errors import ConfigurationError
from sluice_airflow.params import ALL_TABLES, TABLES_MAX
from sluice_airflow.settings import Settings, load_settings

Callbacks = Callable[[Any], Any] | Sequence[Callable[[Any], Any]]
CONNECTIONS = {"fluss_conn_id": "connection", "spark_conn_id": "spark_connection"}
"""Arguments that have Airflow's usual names, and the options of the section that they override."""


class TieringArguments(TypedDict, total=False):
    """Each is optional. Those without a description here are described as options of the section
    [sluice] of Airflow's configuration, which also has their defaults.
    """

    fluss_conn_id: str
    """Id of the Airflow connection (type fluss) to the cluster: option ``connection``."""
    spark_conn_id: str
    """Id of the Airflow connection (type spark): option ``spark_connection``."""
    tables: Sequence[str]
    """Tables to tier: names or patterns. Default: all tables of the cluster's lake."""
    max_tables: int
    """A run claims no more tables than this."""
    spark_conf: Mapping[str, Any]
    """Spark properties of every driver."""
    datalake: Mapping[str, Any]
    """Options of the lake, named as in Fluss, that override those of the connection."""
    on_tables_failed: Callbacks
    """Called with the context of ``drop_lease`` if tables were not tiered. Its ``exception`` names
    them with the reasons. A notifier of Airflow is such a callback."""
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
        own = {field.name for field in fields(cls)} - {"settings", "conf_keys"}
        given = {CONNECTIONS.get(k, k): v for k, v in arguments.items() if k not in own}
        tiering = cls(load_settings(**given), **{k: v for k, v in arguments.items() if k in own})
        if isinstance(tiering.tables, str) and "{{" not in tiering.tables:
            raise ConfigurationError(
                f"argument of the DAG file: tables: expected a list, found {tiering.tables!r};"
                f" write tables=[{tiering.tables!r}]"
            )
        return tiering


def split(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the arguments of the tiering tasks, and the others."""
    known = TieringArguments.__annotations__
    own = {name: value for name, value in arguments.items() if name in known}
    return own, {name: value for name, value in arguments.items() if name not in known}


def check_known(where: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
    """:raises ConfigurationError: names the first unknown argument, and a similar one."""
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known) or f"; the arguments are {', '.join(known)}"
            raise ConfigurationError(f"{where}: no argument {name!r}{hint}")
