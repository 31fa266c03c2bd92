"""Checks that a lake is configured, and that this machine can access its catalog and storage."""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import fsspec
from fsspec.implementations.arrow import ArrowFSWrapper

from sluice.catalog_options import of_catalog, shown_kind
from sluice.checks import iceberg_options
from sluice.checks.findings import CertainFailure, Check, NotChecked
from sluice.checks.folders import SHORT_TIMEOUTS, local_path, scheme_of, write_and_remove
from sluice.clock import Clock, SystemClock
from sluice.config import Config, DatalakeConfig
from sluice.errors import ConfigurationError
from sluice.quantities import time_left
from sluice.storage import HDFS_SCHEMES, OBJECT_STORE_SCHEMES, credentials_end_ms, file_system

_LOG = logging.getLogger(__name__)
_CONNECT_TIMEOUT_S = 3.0
_KEY = "s3.access-key-id"
_NO_KEY = ("INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH", "INVALID_SIGNATURE")
_NO_BUCKET = ("NO_SUCH_BUCKET",)
"""What pyarrow says of keys and buckets that the store does not know."""
_PORTS = {"http": 80, "https": 443, "thrift": 9083, "postgresql": 5432, "mysql": 3306}
KEYS = "keys of the lake's store"
_PROXY = "rest.client.proxy.hostname"


def check_lake(config: Config) -> None:
    """Checks the lake's settings without a connection; warns of options that look wrong.

    :raises ConfigurationError: the lake is not Iceberg, or catalog options are wrong or missing.
    """
    if why := _wrong(config.datalake) or _missing(config.datalake):
        raise ConfigurationError(why)
    for caution in iceberg_options.cautions(config.datalake.iceberg):
        _LOG.warning("%s", caution)


def _wrong(datalake: DatalakeConfig) -> str:
    """An error that further settings cannot fix; empty if there is none."""
    if datalake.format != "iceberg":
        return f"datalake.format={datalake.format} is not supported: use iceberg"
    return iceberg_options.wrong(datalake.iceberg)


def _missing(datalake: DatalakeConfig) -> str:
    """The missing setting; empty if none is missing."""
    if not of_catalog(datalake.iceberg):
        return (
            "no lake is configured: set datalake.iceberg.type and datalake.iceberg.warehouse (or"
            " datalake.iceberg.uri) to Iceberg's catalog properties of that name"
        )
    return iceberg_options.missing(datalake.iceberg)


@dataclass(frozen=True, slots=True)
class CheckScope:
    """Which parts of a round run on this machine, and so which checks apply here."""

    driver_is_here: bool = True
    """Whether the driver runs on this machine and uses its local paths."""
    executors_are_here: bool = True
    """Whether the executors run here, too: then a failure here is a failure of the round."""
    hdfs: bool = True
    """Whether to check HDFS, which starts a JVM in this process."""


def lake_checks(config: Config, scope: CheckScope, clock: Clock | None = None) -> list[Check]:
    """The checks of the lake's settings, its catalog, its keys and its warehouse.

    If only Spark can access the lake, catalog and warehouse count as not checked.
    """
    iceberg = config.datalake.iceberg
    settings = [Check("lake configured", lambda: _configured(config, scope))]
    if not iceberg or iceberg_options.wrong(iceberg) or iceberg_options.missing(iceberg):
        return settings
    if cautions := iceberg_options.cautions(iceberg):
        settings.append(Check("options of the lake", lambda: NotChecked("; ".join(cautions))))
    keys = _own_keys(iceberg, scope, clock or SystemClock())
    return [*settings, *_catalog(iceberg, scope), *keys, _warehouse(iceberg, scope)]


def _configured(config: Config, scope: CheckScope) -> str | NotChecked:
    if why := _wrong(config.datalake):
        raise ConfigurationError(why)
    if why := _missing(config.datalake):
        if scope.driver_is_here:
            raise ConfigurationError(why)
        return NotChecked(f"the driver may have its own settings; on this machine: {why}")
    iceberg = config.datalake.iceberg
    where = iceberg.get("uri") or iceberg.get("warehouse", "")
    seen = f"iceberg, catalog {shown_kind(iceberg)} at {where}"
    if "type" in iceberg or "catalog-impl" in iceberg:
        return seen
    return NotChecked(f"{seen}; set datalake.iceberg.type to be sure")


def _catalog(iceberg: Mapping[str, str], scope: CheckScope) -> list[Check]:
    """Checks that the catalog's port accepts connections; logins are not checked."""
    if iceberg_options.type_of(iceberg) == "hadoop":
        return []  # its catalog is the warehouse
    address = None if iceberg.get(_PROXY) else _address(iceberg.get("uri", ""))
    if address is None:
        return [Check("lake catalog", lambda: NotChecked("only Spark can check it"))]
    shown = f"{address[0]}:{address[1]}"

    def run() -> str:
        socket.create_connection(address, _CONNECT_TIMEOUT_S).close()
        return f"{shown} accepts connections"

    remedy = f"start it, or correct datalake.iceberg.uri ({shown})"
    return [Check("lake catalog", run, remedy, scope.executors_are_here)]


def _address(uri: str) -> tuple[str, int] | None:
    """Host and port of a catalog; None if they cannot be derived from its URI."""
    try:
        parts = urlsplit(uri.removeprefix("jdbc:"))
        host, port = parts.hostname, parts.port or _PORTS.get(parts.scheme)
    except ValueError:  # several hosts, or a port that is not a number
        return None
    # A comma separates several hosts. If an @ follows, "host" is part of a password.
    is_plain = "," not in parts.netloc and "@" not in parts.path + parts.query + parts.fragment
    is_known = parts.scheme in _PORTS and is_plain
    return (host, port) if is_known and host and port else None


def _own_keys(iceberg: Mapping[str, str], scope: CheckScope, clock: Clock) -> list[Check]:
    """Checks when a token among the user's options ends, if it has an end."""

    def run() -> str | NotChecked:
        if (end_ms := _own_end_ms(iceberg)) is None:
            return NotChecked("they have no end")
        left_ms, own = end_ms - clock.now_ms(), "the token of the store in datalake.iceberg"
        if left_ms <= 0:
            ago = time_left(-left_ms)
            raise ConfigurationError(f"{own} ended {ago} ago, and nobody renews it: set a new one")
        return f"{own} ends in {time_left(left_ms)}; nobody renews it: set a new one before then"

    try:
        has_end = _own_end_ms(iceberg) is not None
    except ConfigurationError:
        has_end = True  # the check says what is wrong with it
    return [Check(KEYS, run, is_certain=scope.driver_is_here)] if has_end else []


def _own_end_ms(iceberg: Mapping[str, str]) -> int | None:
    """When the first token of the warehouse's store ends, or of any store if that is not known.

    :raises ConfigurationError: the end is not a number.
    """
    warehouse = iceberg.get("warehouse", "")
    is_store = scheme_of(warehouse) in OBJECT_STORE_SCHEMES
    places = (warehouse,) if is_store else ("s3://", "gs://", "abfss://")
    ends = (credentials_end_ms(place, iceberg) for place in places)
    return min((end for end in ends if end is not None), default=None)


def _warehouse(iceberg: Mapping[str, str], scope: CheckScope) -> Check:
    uri, kind = iceberg.get("warehouse", ""), iceberg_options.type_of(iceberg)
    if "/" not in uri and kind != "hadoop":
        why = NotChecked("the catalog determines the location")
        return Check("write to the lake", lambda: why)
    what, scheme = f"write to the lake, {uri}", scheme_of(uri)
    if local_path(uri) is not None and not scope.driver_is_here:
        return Check(
            what, lambda: NotChecked("it is a local path of the machines that Spark runs on")
        )
    if scheme in HDFS_SCHEMES and not scope.hdfs:
        return Check(what, lambda: NotChecked("only Spark can check HDFS"))
    # In other catalogs each table has its own location, which may be elsewhere.
    is_certain = kind == "hadoop" and (scope.executors_are_here or local_path(uri) is not None)
    remedy = "let this user write there, or correct datalake.iceberg.warehouse"
    return Check(what, lambda: _write(uri.rstrip("/"), iceberg, scope), remedy, is_certain)


def _write(uri: str, iceberg: Mapping[str, str], scope: CheckScope) -> str | NotChecked:
    """Writes a file with the options of the lake.

    :raises CertainFailure: no machine could: an option is wrong, or the store does not know the
        bucket, or the keys among the options. Only where the driver has the same options.
    """
    try:
        opened = _opened(uri, iceberg)
    except ConfigurationError as error:
        if scope.driver_is_here:
            raise CertainFailure(str(error)) from error
        raise
    try:
        return write_and_remove(*opened)
    except OSError as error:
        signs = (*_NO_BUCKET, *(_NO_KEY if _KEY in iceberg else ()))
        if scope.driver_is_here and any(one in str(error) for one in signs):
            raise CertainFailure(str(error)) from error
        raise


def _opened(uri: str, options: Mapping[str, str]) -> tuple[Any, str]:
    """The fsspec file system of the lake, configured as for its writers."""
    path = local_path(uri)
    if path is not None:
        return fsspec.filesystem("file"), path
    arrow, path = file_system(uri, options, SHORT_TIMEOUTS)
    return ArrowFSWrapper(arrow, skip_instance_cache=True), path
