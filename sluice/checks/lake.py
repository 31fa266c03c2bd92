"""Whether a lake is configured, and whether its catalog and storage can be reached from here."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import fsspec
from fsspec.implementations.arrow import ArrowFSWrapper

from sluice.checks import iceberg_options
from sluice.checks.findings import Check, NotChecked
from sluice.checks.folders import SHORT_TIMEOUTS, local_path, scheme_of, write_and_remove
from sluice.config import Config, DatalakeConfig
from sluice.errors import ConfigurationError
from sluice.storage import HDFS_SCHEMES, file_system

_CONNECT_TIMEOUT_S = 3.0
_PORTS = {"http": 80, "https": 443, "thrift": 9083, "postgresql": 5432, "mysql": 3306}
_PROXY = "rest.client.proxy.hostname"


def check_lake(config: Config) -> None:
    """:raises ConfigurationError: unless the lake is Iceberg and its catalog can be opened."""
    if why := _wrong(config.datalake) or _missing(config.datalake):
        raise ConfigurationError(why)


def _wrong(datalake: DatalakeConfig) -> str:
    """What no further setting makes right; empty if nothing."""
    if datalake.format != "iceberg":
        return f"datalake.format={datalake.format}: only iceberg is there so far"
    return iceberg_options.wrong(datalake.iceberg)


def _missing(datalake: DatalakeConfig) -> str:
    """What the settings lack; empty if nothing."""
    if not datalake.iceberg:
        return (
            "no lake is configured: give datalake.iceberg.type and datalake.iceberg.warehouse"
            " (or uri), as in Iceberg's own catalog properties"
        )
    return iceberg_options.missing(datalake.iceberg)


@dataclass(frozen=True, slots=True)
class CheckScope:
    """What this machine has to do with the rounds."""

    driver_is_here: bool = True
    """A round's driver runs on it, and meets its local paths."""
    executors_are_here: bool = True
    """Executors do, too: what this machine cannot reach, no part of the round reaches."""
    hdfs: bool = True
    """HDFS is worth the JVM that Hadoop's library starts in this process."""


def lake_checks(config: Config, scope: CheckScope) -> list[Check]:
    """The lake's settings, then its catalog, then its warehouse.

    Nothing but the settings can be looked at where only Spark reaches the lake: not checked.
    """
    iceberg = config.datalake.iceberg
    settings = Check("lake configured", lambda: _configured(config, scope))
    if not iceberg or iceberg_options.wrong(iceberg) or iceberg_options.missing(iceberg):
        return [settings]
    return [settings, *_catalog(iceberg, scope), _warehouse(iceberg, scope)]


def _configured(config: Config, scope: CheckScope) -> str | NotChecked:
    if why := _wrong(config.datalake):
        raise ConfigurationError(why)
    if why := _missing(config.datalake):
        if scope.driver_is_here:
            raise ConfigurationError(why)
        return NotChecked(f"the driver may have settings of its own; here {why}")
    iceberg = config.datalake.iceberg
    where = iceberg.get("uri") or iceberg.get("warehouse", "")
    if "type" in iceberg or "catalog-impl" in iceberg:
        return f"iceberg, catalog {iceberg.get('type', 'of its own class')} at {where}"
    return NotChecked(
        f"iceberg, catalog hive (Iceberg's default) at {where};"
        " give datalake.iceberg.type to be sure"
    )


def _catalog(iceberg: Mapping[str, str], scope: CheckScope) -> list[Check]:
    """Whether somebody listens there. What the catalog says to whom, only its client knows."""
    if iceberg_options.type_of(iceberg) == "hadoop":
        return []  # its catalog is the warehouse
    address = None if iceberg.get(_PROXY) else _address(iceberg.get("uri", ""))
    if address is None:
        return [Check("lake catalog", lambda: NotChecked("only Spark reaches it"))]
    shown = f"{address[0]}:{address[1]}"

    def look() -> str:
        socket.create_connection(address, _CONNECT_TIMEOUT_S).close()
        return f"{shown} takes connections"

    remedy = f"start it, or correct datalake.iceberg.uri ({shown})"
    return [Check("lake catalog", look, remedy, scope.executors_are_here)]


def _address(uri: str) -> tuple[str, int] | None:
    """Host and port of a catalog; None where that cannot be told from its address."""
    try:
        parts = urlsplit(uri.removeprefix("jdbc:"))
        host, port = parts.hostname, parts.port or _PORTS.get(parts.scheme)
    except ValueError:  # several hosts, or no port of numbers
        return None
    # A comma parts several hosts. With an @ behind them, "host" is a part of some password.
    is_plain = "," not in parts.netloc and "@" not in parts.path + parts.query + parts.fragment
    is_known = parts.scheme in _PORTS and is_plain
    return (host, port) if is_known and host and port else None


def _warehouse(iceberg: Mapping[str, str], scope: CheckScope) -> Check:
    uri, kind = iceberg.get("warehouse", ""), iceberg_options.type_of(iceberg)
    if "/" not in uri and kind != "hadoop":
        why = NotChecked("the catalog decides where")
        return Check("write to the lake", lambda: why)
    what, scheme = f"write to the lake, {uri}", scheme_of(uri)
    if local_path(uri) is not None and not scope.driver_is_here:
        return Check(what, lambda: NotChecked("a path of the machines that Spark runs on"))
    if scheme in HDFS_SCHEMES and not scope.hdfs:
        return Check(what, lambda: NotChecked("only Spark reaches HDFS"))
    # In every other catalog a table has a location of its own, which may lie elsewhere.
    is_certain = kind == "hadoop" and (scope.executors_are_here or local_path(uri) is not None)
    remedy = "let this user write there, or correct datalake.iceberg.warehouse"
    return Check(
        what, lambda: write_and_remove(*_opened(uri.rstrip("/"), iceberg)), remedy, is_certain
    )


def _opened(uri: str, options: Mapping[str, str]) -> tuple[Any, str]:
    """The file system as those who write the lake's files have it, in fsspec's form."""
    path = local_path(uri)
    if path is not None:
        return fsspec.filesystem("file"), path
    arrow, path = file_system(uri, options, SHORT_TIMEOUTS)
    return ArrowFSWrapper(arrow, skip_instance_cache=True), path
