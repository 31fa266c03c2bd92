"""Claims tables for one run and writes a plan for each. Plain functions: no Airflow here."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from sluice.client.heartbeats import Heartbeats
from sluice.errors import ConfigurationError, TableNotExist, UnsupportedVersion
from sluice.failpoints import failpoint
from sluice.model import Claim, TablePath
from sluice.rounds.files import PlanFile, plan_uri, plan_uris, read_json, write_json
from sluice_airflow.claims import Entry, entry_of
from sluice_airflow.connection import FlussConnection

if TYPE_CHECKING:
    from sluice.client import Client

log = logging.getLogger(__name__)


def refuse_unknown(conf: Mapping[str, Any] | None, known: Iterable[str]) -> None:
    """Airflow takes any key in a run's conf; a misspelt one must not tier every table there is.

    :raises ConfigurationError: names the keys, and those that there are.
    """
    unknown = sorted(set(conf or {}) - set(known))
    if unknown:
        raise ConfigurationError(
            f"conf of this run: unknown {', '.join(map(repr, unknown))}; there are"
            f" {', '.join(sorted(known))}"
        )


def acquire(
    client: Client,
    connection: FlussConnection,
    lease_id: str,
    patterns: Sequence[str],
    tables_max: int,
    heartbeat_interval_s: float = 20.0,
) -> list[Entry]:
    """Claims up to ``tables_max`` tables that match a pattern, and writes a plan for each.

    A retried or cleared task takes over what an earlier try of the same run still holds.

    :raises TableNotExist: a pattern without wildcard names no lake table.
    :raises ConfigurationError: the work folder cannot be written; nothing stays claimed.
    """
    work_uri = connection.require_work_uri()
    requested = requested_tables(client, patterns)
    try:
        entries = take_over(client, work_uri, lease_id)
    except (OSError, ValueError, ImportError) as error:
        raise ConfigurationError(f"work folder {work_uri}: {error}") from error
    with Heartbeats(client.tiering, interval_s=heartbeat_interval_s) as heartbeats:
        for plan_claim in entries:
            log.info("%s is still held by this run", plan_claim["table"])
        while len(entries) < tables_max and requested != []:
            claim = client.tiering.claim(requested)
            if claim is None:
                break
            heartbeats.add(claim)
            failpoint("airflow.acquire.after_claim")
            plan = PlanFile(claim, lease_id, connection.bootstrap)
            entries.append(_write_plan(client, work_uri, plan))
            log.info("claimed %s under tiering epoch %d", claim.path, claim.tiering_epoch)
    return entries


def take_over(client: Client, work_uri: str, lease_id: str) -> list[Entry]:
    """Entries of this run's plans whose claims the coordinator still holds valid."""
    newest: dict[int, tuple[PlanFile, str]] = {}
    for uri in plan_uris(work_uri, lease_id):
        plan = PlanFile.from_json(read_json(uri) or {})
        held = newest.get(plan.claim.table_id)
        if held is None or _age(held[0].claim) < _age(plan.claim):
            newest[plan.claim.table_id] = (plan, uri)
    if not newest:
        return []
    answers = client.tiering.heartbeat([plan.claim for plan, _ in newest.values()])
    return [entry_of(plan, uri) for key, (plan, uri) in newest.items() if answers[key] is None]


def requested_tables(client: Client, patterns: Sequence[str]) -> list[TablePath] | None:
    """Lake tables that match; None if every table does.

    :raises TableNotExist: a pattern without wildcard names no lake table.
    """
    if not patterns or "*" in patterns or "*.*" in patterns:
        return None
    tables = _lake_tables(client)
    names = {str(path) for path in tables}
    for pattern in patterns:
        if not any(char in pattern for char in "*?[") and pattern not in names:
            raise TableNotExist(
                f"{pattern!r}: no table of that name is tiered into the lake; create it with"
                " table.datalake.enabled=true, or correct 'tables'"
            )
    return [path for path in tables if any(fnmatchcase(str(path), p) for p in patterns)]


def _lake_tables(client: Client) -> list[TablePath]:
    admin = client.admin
    try:
        return sorted(status.path for status in admin.list_tiering_statuses())
    except UnsupportedVersion:
        log.info("this Fluss does not list what is tiered: every table is looked at")
    found = []
    for database in sorted(admin.list_databases()):
        for table in sorted(admin.list_tables(database)):
            with suppress(TableNotExist):  # dropped since it was listed
                if admin.table_info(TablePath(database, table)).datalake_enabled:
                    found.append(TablePath(database, table))
    return found


def _write_plan(client: Client, work_uri: str, plan: PlanFile) -> Entry:
    uri = plan_uri(work_uri, plan.lease_id, plan.claim)
    try:
        write_json(uri, plan.to_json())
    except Exception as error:
        reason = f"work folder {work_uri}: the plan cannot be written: {error}"
        client.tiering.failed(plan.claim, reason)
        raise ConfigurationError(reason) from error
    failpoint("airflow.acquire.after_plan")
    return entry_of(plan, uri)


def _age(claim: Claim) -> tuple[int, int]:
    return claim.coordinator_epoch, claim.tiering_epoch
