"""What `sluice doctor` checks: cluster, server versions, Java, jars, lake, work folder, tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from sluice import __version__
from sluice.catalog_options import of_catalog
from sluice.checks.cluster import cluster_check
from sluice.checks.findings import Check, Finding, line_of, run_check, run_checks
from sluice.checks.folders import local_path, work_folder_check
from sluice.checks.lake import CheckScope, lake_checks
from sluice.checks.spark import java_here
from sluice.client import connect
from sluice.client.connection.reachability import require_listener
from sluice.config import ClientConfig, Config, DatalakeConfig
from sluice.driver.lakes.jvm import Jvm, iceberg_jar
from sluice.driver.lakes.opened_lake import opened_lake_findings
from sluice.driver.table_health import failed_rounds, table_findings, with_failures
from sluice.errors import SluiceError
from sluice.iceberg_rules.names_and_types import problems
from sluice.masking import mask, reason_text, secrets_of
from sluice.model import ServerInfo, TableInfo, TablePath
from sluice.rounds.plan.named_lake import LAKE_OPTIONS

NOTE = "note"
"""The result of what is no failure, and what readers should know."""
_TIMEOUT_S = 60.0
"""Longer than in an Airflow task, because a user can wait for slow storage."""


def findings(
    config: Config,
    work_uri: str = "",
    require_cluster: Callable[[ClientConfig], None] = require_listener,
) -> Iterator[Finding]:
    """Runs the checks and yields their findings.

    They are of cluster, versions, Java, jars, lake and work folder. If none failed, the health of
    the tables follows; tables whose rounds fail are always named. Without a lake here, it is the
    lake that the cluster names for its tables.

    :param work_uri: the folder that Airflow and Spark share, as in the Airflow connection.
    :param require_cluster: raises NetworkError if nothing listens at the cluster's address.
    """
    hidden = (*config.secrets(), *secrets_of(work_uri))
    answer = run_check(cluster_check(config.client, require_cluster), hidden)
    yield answer
    if answer.ok:
        yield from _servers(config)
        yield from _damage(config)
        yield from _names_and_types(config)
    yield run_check(java_here(), hidden)
    # No deadline: a missing jar is fetched.
    jar = run_check(
        Check("Iceberg's runtime", lambda: iceberg_jar(config.tiering.jars).name), hidden
    )
    yield jar
    if (
        answer.ok
        and not of_catalog(config.datalake.iceberg)
        and (info := _named_lake(config)) is not None
    ):
        config = replace(config, datalake=DatalakeConfig("iceberg", iceberg=_lake_options(info)))
        yield _found_lake(info)
    has_lake = config.datalake.format != "none"
    if not has_lake:
        yield Finding("lake configured", None, "datalake.format=none: this server has no lake")
    others = lake_checks(config, CheckScope()) if has_lake else []
    others += [work_folder_check(work_uri)] if work_uri else []
    found = run_checks(others, hidden, _TIMEOUT_S)
    yield from found
    if not work_uri:
        yield Finding("work folder", None, "give --work-uri URI to check it")
    is_well = has_lake and all(one.ok is not False for one in (answer, jar, *found))
    failed = failed_rounds(config) if answer.ok else []
    yield from with_failures(_in_the_lake(config) if is_well else (), failed)


def _in_the_lake(config: Config) -> Iterator[Finding]:
    """What a round's own client sees of the lake and its tables; starts a JVM.

    A catalog of local folders without a tiered table has nothing to open.
    """
    lake = config.datalake.iceberg
    is_folder = lake.get("type") == "hadoop" and local_path(lake["warehouse"]) is not None
    tiered = _tiered(config)
    if is_folder and tiered == {}:
        return
    try:
        with Jvm(config.tiering.jars) as jvm:
            opened = list(opened_lake_findings(config, jvm, tiered))
            yield from opened
            if all(one.ok is not False for one in opened):
                yield from table_findings(config, jvm)
    except SluiceError as error:
        yield Finding("tables", False, line_of(error, config.secrets()))


def _named_lake(config: Config) -> TableInfo | None:
    """A tiered table for which the cluster names its lake."""
    tiered = _tiered(config) or {}
    return next((info for info in tiered.values() if _lake_options(info)), None)


def _tiered(config: Config) -> dict[TablePath, TableInfo] | None:
    """The tables with tiering enabled; None: the cluster does not tell, as another finding says."""
    try:
        with connect(config.client) as client:
            return dict(client.admin.known_infos(client.statuses.lake_tables()))
    except SluiceError:
        return None


def _names_and_types(config: Config) -> Iterator[Finding]:
    """One finding for each tiered table that breaks a rule for names or types."""
    for path, info in sorted((_tiered(config) or {}).items()):
        if found := problems(info):
            ok, said = not any(one.is_refused for one in found), "; ".join(map(str, found))
            yield Finding(f"columns of {path}", ok, said, result=NOTE if ok else "")


def _lake_options(info: TableInfo) -> dict[str, str]:
    properties = info.descriptor.properties
    named = {k: v for k, v in properties.items() if k.startswith(LAKE_OPTIONS)}
    return of_catalog({k.removeprefix(LAKE_OPTIONS): v for k, v in named.items()})


def _found_lake(info: TableInfo) -> Finding:
    options = _lake_options(info)
    where = options.get("warehouse") or options.get("uri", "")
    advice = "[datalake] in --config FILE"
    if options == {"type": "hadoop", "warehouse": where}:
        advice = f"--warehouse {where}"
    seen = (
        f"catalog {options.get('type', 'hive')} at {where}, as table {info.path} names it. None is"
        f" configured on this machine: give commands {advice}"
    )
    return Finding("lake of the cluster", True, mask(seen))


def _servers(config: Config) -> Iterator[Finding]:
    """One finding for each server."""
    try:
        with connect(config.client) as client:
            for server in client.admin.servers():
                yield Finding(f"{server.role} {server.address}", True, _versions(server))
    except SluiceError as error:
        said = reason_text(f"{type(error).__name__}: {error}", config.secrets())
        yield Finding("servers", False, said)


def _damage(config: Config) -> Iterator[Finding]:
    """One finding for each reason of damage for which a bucket refuses calls."""
    try:
        with connect(config.client) as client:
            for one in client.damage.list():
                what = f"bucket {one.path} {one.bucket.name}"
                yield Finding(what, False, one.refused, result="damaged")
    except SluiceError as error:
        said = reason_text(f"{type(error).__name__}: {error}", config.secrets())
        yield Finding("damage", None, said)


def _versions(server: ServerInfo) -> str:
    theirs = f"sluice {server.version}" if server.version else "Apache Fluss (reports no version)"
    both = f"this machine: sluice {__version__}; server: {theirs}"
    if not server.lacks:
        return f"{both}; it offers every call"
    return f"{both}; it does not offer {', '.join(server.lacks)}"
