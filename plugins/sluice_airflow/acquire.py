"""Claims tables for a run, leases their snapshots, writes their plans. Does not import Airflow."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from sluice.client.heartbeats import CLAIM_LOST, Heartbeats, by_table
from sluice.errors import (
    ConfigurationError,
    FlussError,
    LeaseNotObtained,
    TableNotExist,
    UnknownTableOrBucket,
)
from sluice.failpoints import failpoint
from sluice.masking import reason_text
from sluice.model import Claim, Reason, TablePath
from sluice.rounds.dropped import table_dropped
from sluice.rounds.files import PlanFile, plan_uri, plan_uris, read_json, write_json
from sluice.rounds.reasons import reason_of
from sluice_airflow import leasing, settle
from sluice_airflow.claimed_again import waits_for_claim
from sluice_airflow.claims import ClaimedTable, claimed_table
from sluice_airflow.connection import FlussConnection, check_names

if TYPE_CHECKING:
    from sluice.client import Client

log = logging.getLogger(__name__)

LEASE_REFUSED = (LeaseNotObtained, TableNotExist, UnknownTableOrBucket)
"""Errors that keep one table from being leased and do not affect the other tables."""


def check_conf_keys(conf: Mapping[str, Any] | None, known: Iterable[str]) -> None:
    """Refuses unknown keys of a run's conf. Airflow accepts any, and `table` would tier all tables.

    :raises ConfigurationError: names the first unknown key and a similar one.
    """
    check_names("conf of this run", sorted(conf or {}), sorted(known))


def acquire(
    client: Client,
    connection: FlussConnection,
    lease_id: str,
    patterns: Sequence[str],
    tables_max: int,
    heartbeat_interval_s: float = 20.0,
    on_refused: Callable[[Claim, Reason], None] = lambda _claim, _reason: None,
) -> list[ClaimedTable]:
    """Claims up to ``tables_max`` tables that match a pattern, and writes a plan for each.

    A retried or cleared task takes over the claims that an earlier attempt of the same run still
    holds. It releases those without a plan, which a killed attempt had just claimed. A table whose
    KV snapshots cannot be leased is reported as failed; the others continue.
    A table that was dropped meanwhile is skipped.

    :param on_refused: called with the claim of such a table and the reason.
    :raises TableNotExist: a pattern without wildcard names no lake table.
    :raises ConfigurationError: the work folder cannot be written. No table stays claimed.
    """
    work_uri = connection.require_work_uri()
    requested = requested_tables(client, patterns)
    try:
        plans = take_over(client, work_uri, lease_id)
    except (OSError, ValueError, ImportError) as error:
        raise ConfigurationError(reason_text(f"work folder {work_uri}: {error}")) from error
    entries: list[ClaimedTable] = []
    refused: dict[Claim, Reason] = {}
    with Heartbeats(client.tiering, interval_s=heartbeat_interval_s) as heartbeats:
        try:
            for plan in plans:
                heartbeats.add(plan.claim)
                log.info("%s: the claim of an earlier try is still valid", plan.claim.path)
                try:
                    entries.append(_take_over_lease(client, work_uri, plan))
                except LEASE_REFUSED as error:
                    refused[plan.claim] = reason_of(error, connection.secrets())
            settle.release_unplanned(client, lease_id, [plan.claim for plan in plans])
            with client.tiering.claim_session(requested, by=lease_id) as waiting:
                while len(entries) + len(refused) < tables_max:
                    claim = waiting.next()
                    if claim is None:
                        break
                    heartbeats.add(claim)
                    log.info("%s: claimed, tiering epoch %d", claim.path, claim.tiering_epoch)
                    failpoint("airflow.acquire.after_claim")
                    try:
                        snapshots = leasing.lease_snapshots(client, lease_id, claim)
                    except LEASE_REFUSED as error:
                        if why := table_dropped(error, client.tiering, claim):
                            heartbeats.remove(claim)
                            log.warning("%s: the claim was lost: %s", claim.path, why)
                        else:
                            refused[claim] = reason_of(error, connection.secrets())
                        continue
                    plan = PlanFile(claim, lease_id, connection.bootstrap, snapshots)
                    entries.append(_write_plan(client, work_uri, plan))
        finally:
            # Only now: the coordinator would assign a released table again at once, to this loop.
            for claim, reason in refused.items():
                if any(plan.claim == claim for plan in plans):
                    settle.mark_reported(plan_uri(work_uri, lease_id, claim))
                _report_refused(client, claim, reason)
                on_refused(claim, reason)
    return entries


def take_over(client: Client, work_uri: str, lease_id: str) -> list[PlanFile]:
    """Returns this run's plans whose claims are still valid; at most one for each table.

    The keeper of the run claims no table of the other plans again: this task claims it, or no
    task of the run tiers it.
    """
    plans = {}
    for uri in plan_uris(work_uri, lease_id):
        plan = replace(PlanFile.from_json(read_json(uri) or {}), lease_id=lease_id)
        plans[plan.claim] = plan
    answers = {}
    for claims in by_table([*plans]):
        found = client.tiering.heartbeat(claims)
        answers.update({claim: found[claim.table_id] for claim in claims})
    for claim, error in answers.items():
        uri = plan_uri(work_uri, lease_id, claim)
        if isinstance(error, CLAIM_LOST) and waits_for_claim(uri):
            settle.mark_reported(uri)
    return [plan for claim, plan in plans.items() if answers[claim] is None]


def requested_tables(client: Client, patterns: Sequence[str]) -> list[TablePath] | None:
    """Returns the lake tables that match a pattern, or None if all do.

    :raises TableNotExist: a pattern without wildcard names no lake table.
    """
    if not patterns or "*" in patterns or "*.*" in patterns:
        return None
    tables = client.statuses.lake_tables()
    names = {str(path) for path in tables}
    for pattern in patterns:
        if not any(char in pattern for char in "*?[") and pattern not in names:
            raise TableNotExist(
                f"conf of this run: tables: lake table {pattern!r} does not exist; correct the name"
                " (DATABASE.TABLE, wildcards * and ?), or set the table's option"
                " table.datalake.enabled to true"
            )
    return [path for path in tables if any(fnmatchcase(str(path), p) for p in patterns)]


def _write_plan(client: Client, work_uri: str, plan: PlanFile) -> ClaimedTable:
    uri = plan_uri(work_uri, plan.lease_id, plan.claim)
    try:
        write_json(uri, plan.to_json())
    except Exception as error:
        reason = Reason.from_text(f"work folder {work_uri}: cannot write the plan: {error}")
        client.tiering.failed(plan.claim, reason)
        raise ConfigurationError(reason.text) from error
    failpoint("airflow.acquire.after_plan")
    return claimed_table(plan, uri)


def _take_over_lease(client: Client, work_uri: str, plan: PlanFile) -> ClaimedTable:
    again = leasing.renew_snapshots(client, plan)
    if again is not plan:
        return _write_plan(client, work_uri, again)
    return claimed_table(plan, plan_uri(work_uri, plan.lease_id, plan.claim))


def _report_refused(client: Client, claim: Claim, reason: Reason) -> None:
    log.error("%s: %s", claim.path, reason)
    try:
        client.tiering.failed(claim, reason)
    except FlussError as error:  # the claim ended before, or the call timed out
        log.warning("%s: cannot report the failure: %s", claim.path, error)
