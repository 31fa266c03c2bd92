"""What a connection of type ``fluss`` says, checked and frozen. Knows nothing of Airflow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from sluice.errors import ConfigurationError

TRANSPORTS = ("grpc", "fluss")
DEFAULT_PORT = 9123


@dataclass(frozen=True, slots=True)
class FlussConnection:
    """One Fluss cluster, the lake that its tables go to, and where jobs keep their files."""

    bootstrap: str
    """Address of a coordinator: grpc://HOST:PORT."""
    deployment_id: str = "default"
    """Tells two Airflows apart that tier one cluster; part of every lease id."""
    work_uri: str = ""
    """A folder that Airflow and Spark both reach."""
    datalake: Mapping[str, str] = field(default_factory=dict)
    """Lake options by Fluss's names without ``datalake.``: format, iceberg.type, ..."""

    @classmethod
    def parse(
        cls, connection_id: str, host: str | None, port: int | None, extra: Mapping[str, Any]
    ) -> FlussConnection:
        """Checks the fields of a connection.

        :raises ConfigurationError: names connection, field, value and what is allowed.
        """
        if not host:
            raise ConfigurationError(
                f"connection {connection_id!r}: no host; give the coordinator's host and port"
            )
        transport = extra.get("transport") or "grpc"
        if transport not in TRANSPORTS:
            raise ConfigurationError(
                f"connection {connection_id!r}: transport {transport!r}; use grpc or fluss"
            )
        return cls(
            bootstrap=f"{transport}://{host}:{port or DEFAULT_PORT}",
            deployment_id=extra.get("deployment_id") or "default",
            work_uri=extra.get("work_uri") or "",
            datalake=MappingProxyType(_datalake(connection_id, extra.get("datalake"))),
        )

    def require_work_uri(self) -> str:
        """:raises ConfigurationError: if the connection names no work folder."""
        if not self.work_uri:
            raise ConfigurationError(
                "the Fluss connection has no work_uri: give a folder that Airflow and Spark both"
                " reach, such as file:///srv/sluice/work or s3://bucket/sluice"
            )
        return self.work_uri

    def spark_conf(self) -> dict[str, str]:
        """Spark properties that tell the driver of the lake."""
        return {f"spark.sluice.datalake.{key}": v for key, v in self.datalake.items()}


def _datalake(connection_id: str, value: Any) -> dict[str, str]:
    """Lake options flat: ``{"iceberg": {"type": "hadoop"}}`` says the same as ``iceberg.type``."""
    if value in (None, ""):
        return {}
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            raise ConfigurationError(
                f"connection {connection_id!r}: datalake is not JSON: {error}"
            ) from error
    if not isinstance(value, Mapping):
        raise ConfigurationError(
            f"connection {connection_id!r}: datalake is a JSON object of lake options, not"
            f" {type(value).__name__}"
        )
    return dict(_flat(f"connection {connection_id!r}: datalake", value, ""))


def _flat(where: str, options: Mapping[str, Any], prefix: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for name, value in options.items():
        key = prefix + name.removeprefix("datalake.")
        if isinstance(value, Mapping):
            found += _flat(where, value, key + ".")
        elif isinstance(value, bool):
            found.append((key, str(value).lower()))
        elif isinstance(value, str | int | float):
            found.append((key, str(value)))
        else:
            raise ConfigurationError(f"{where}: {key} is {value!r}; give a text or a number")
    return found
