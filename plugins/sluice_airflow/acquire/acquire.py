"""Claims tables for a run, leases their snapshots, writes their plans. Does not import Airflow."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from sluice.client.tiering.heartbeats import CLAIM_LOST, Heartbeats
from sluice.errors import (
    ConfigurationError,
    FlussError,
    LeaseNotObtained,
    StoppedByUser,
    TableNotExist,
    UnknownTableOrBucket,
)
from sluice.failpoints import failpoint
from sluice.masking import reason_text
from sluice.model import BucketSnapshot, Claim, Reason, TablePath
from sluice.model.patterns import is_pattern, matches
from sluice.rounds.plan.dropped import table_dropped
from sluice.rounds.records.dropped_leases import forget_drop
from sluice.rounds.records.json_files import read_json, write_json
from sluice.rounds.records.plan_file import PlanFile, claim_of, plan_uri, plan_uris
from sluice.rounds.values.reasons import reason_of
from sluice_airflow.acquire.idle import finish_idle
from sluice_airflow.claims import leasing
from sluice_airflow.claims.claimed_again import waits_for_claim
from sluice_airflow.claims.claims import ClaimedTable, claimed_table, heartbeat_all
from sluice_airflow.claims.run_end import RunEnd
from sluice_airflow.config.connection import FlussConnection, check_names
from sluice_airflow.outcomes import settle
from sluice_airflow.outcomes.left_files import mark_reported

if TYPE_CHECKING:
    from sluice.client import Client
    from sluice.client.tiering.idle import IdleCheck, Waiting

log = logging.getLogger(__name__)

TOGETHER_MAX = 200
"""Most tables that are claimed before they are checked together."""
WRITERS = 8
"""Most plans that are written at the same time: on S3 each takes tens of milliseconds."""
LEASE_REFUSED = (LeaseNotObtained, TableNotExist, UnknownTableOrBucket)
"""Errors that keep one table from being leased and do not affect the other tables."""
Ends = Mapping[str, int] | None
"""The end offsets that the lake must have, by the bucket's name."""


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
    on_idle: Callable[[Claim], None] = lambda _claim: None,
    is_wanted: Callable[[TablePath], bool] = lambda _path: False,
    is_others: Callable[[Claim], bool] = lambda _claim: False,
    end: RunEnd | None = None,
) -> list[ClaimedTable]:
    """Claims up to ``tables_max`` tables with rows that match a pattern; writes a plan for each.

    A retried or cleared task takes over the claims that an earlier attempt of the same run still
    holds. It releases those without a plan, which a killed attempt had just claimed. A table whose
    KV snapshots cannot be leased is reported as failed; the others continue.
    A table that was dropped meanwhile is skipped. A table without new rows is reported as finished
    (sluice/client/tiering/idle.py) and does not count.

    :param on_refused: called with the claim of a table that was reported as failed and the reason.
    :param on_idle: called with the claim of a table that was reported as finished.
    :param is_wanted: whether the run must reach the present end of a table.
    :param is_others: whether another task of the run has a claim, which is then left alone.
    :param end: whether the run has ended since its task began. By default since this call.
    :raises TableNotExist: a pattern without wildcard names no lake table.
    :raises ConfigurationError, StoppedByUser: the work folder cannot be written, or the run has
        ended meanwhile. No table stays claimed.
    """
    work_uri = connection.require_work_uri()
    requested = requested_tables(client, patterns)
    end = end or RunEnd(work_uri, lease_id)
    try:
        plans = take_over(client, work_uri, lease_id, is_others)
    except (OSError, ValueError, ImportError) as error:
        raise ConfigurationError(reason_text(f"work folder {work_uri}: {error}")) from error
    with Heartbeats(client.tiering, interval_s=heartbeat_interval_s) as heartbeats:
        run = _Acquired(
            client,
            connection,
            lease_id,
            heartbeats,
            lambda path, ends: ends if is_wanted(path) else None,
        )
        own = [plan.claim for plan in plans]
        try:
            for plan in plans:
                run.take_over(plan)
            settle.release_unplanned(client, lease_id, own, is_others)
            run.claim(requested, tables_max, end)
        except StoppedByUser:
            settle.drop(client, work_uri, lease_id)
            raise
        except ConfigurationError:
            settle.release_unplanned(client, lease_id, [*own, *run.claims()], is_others)
            raise
        finally:
            # Only now: the coordinator would assign a reported table again at once, to this loop.
            for claim, reason in run.refused.items():
                if any(plan.claim == claim for plan in plans):
                    mark_reported(plan_uri(work_uri, lease_id, claim))
                _report_refused(client, claim, reason)
                on_refused(claim, reason)
            finish_idle(client, lease_id, run.idle, heartbeats, on_idle)
    return run.entries


def acquire_again(
    client: Client,
    connection: FlussConnection,
    lease_id: str,
    earlier: Mapping[TablePath, PlanFile],
    heartbeats: Heartbeats,
) -> tuple[list[ClaimedTable], list[TablePath], dict[TablePath, Reason]]:
    """Claims tables of a run for one more round each, as far as they are due.

    A claim of these tables that a killed try has left counts, too. An idle table is reported as
    finished. One whose KV snapshots cannot be leased is reported as failed.

    :param earlier: the last plans of the tables, whose ends stay those that the run must reach.
    :returns: the claimed tables, the idle ones, and the refused ones with the reasons.
    :raises FlussError, ConfigurationError: as of :func:`acquire`.
    """
    run = _Acquired(
        client, connection, lease_id, heartbeats, lambda path, _ends: earlier[path].until
    )
    left = [
        claim
        for claim in client.tiering.claims_of(lease_id)
        if claim.path in earlier and claim != earlier[claim.path].claim
    ]
    held = [claim for claim, error in heartbeat_all(client, left).items() if error is None]
    # Only for a moment: on Apache Fluss, the session holds all tables that are due.
    with client.tiering.claim_session([*earlier], by=lease_id) as waiting:
        claims = [*held, *waiting.take(len(earlier) - len(held))]
    with client.idle_check() as check:
        run.add(claims, check)
    for claim, reason in run.refused.items():
        _report_refused(client, claim, reason)
    finish_idle(client, lease_id, run.idle, heartbeats, lambda _claim: None)
    refused = {claim.path: reason for claim, reason in run.refused.items()}
    return run.entries, [claim.path for claim, _ in run.idle], refused


class _Acquired:
    """The tables that one call of :func:`acquire` has claimed."""

    def __init__(
        self,
        client: Client,
        connection: FlussConnection,
        lease_id: str,
        heartbeats: Heartbeats,
        until: Callable[[TablePath, Ends], Ends],
    ) -> None:
        """:param until: returns the ends that a table must reach, if there are some. Its second
        argument has the present ends."""
        self.entries: list[ClaimedTable] = []
        self.refused: dict[Claim, Reason] = {}
        self.idle: list[tuple[Claim, Waiting]] = []
        self._client, self._connection = client, connection
        self._lease_id, self._heartbeats = lease_id, heartbeats
        self._until = until

    def claims(self) -> list[Claim]:
        """Those that became something; the others were claimed with one that could not."""
        entries = [claim_of(entry) for entry in self.entries]
        return [*entries, *self.refused, *(claim for claim, _ in self.idle)]

    def claim(self, requested: Sequence[TablePath] | None, tables_max: int, end: RunEnd) -> None:
        """Claims tables, of those that are asked for or of all, and adds them.

        :raises StoppedByUser: the run has ended meanwhile.
        """
        with (
            self._client.tiering.claim_session(requested, by=self._lease_id) as waiting,
            self._client.idle_check() as check,
        ):
            while (left := tables_max - len(self.entries) - len(self.refused)) > 0:
                claims = waiting.take(min(left, TOGETHER_MAX))
                self.add(claims, check)
                end.check()  # after it: drop_lease may have looked before
                if not claims:
                    break

    def take_over(self, plan: PlanFile) -> None:
        """Adds a table that an earlier try has claimed. It has a plan, so it may have begun."""
        self._heartbeats.add(plan.claim)
        log.info("%s: the claim of an earlier try is still valid", plan.claim.path)
        try:
            work_uri = self._connection.require_work_uri()
            self.entries.append(_take_over_lease(self._client, work_uri, plan))
        except LEASE_REFUSED as error:
            self.refused[plan.claim] = reason_of(error, self._connection.secrets())

    def add(self, claims: Sequence[Claim], check: IdleCheck) -> None:
        """Keeps the idle tables, and writes the plans of the others."""
        for claim in claims:
            self._heartbeats.add(claim)
            log.info("%s: claimed, tiering epoch %d", claim.path, claim.tiering_epoch)
            failpoint("airflow.acquire.after_claim")
        plans = []
        for claim, found in check.check(claims).items():
            if found.is_idle:
                self.idle.append((claim, found))
            elif plan := self._plan(claim, found):
                plans.append(plan)
        write = partial(_write_plan, self._client, self._connection.require_work_uri())
        with ThreadPoolExecutor(WRITERS, thread_name_prefix="sluice-plans") as pool:
            self.entries.extend(pool.map(write, plans))

    def _plan(self, claim: Claim, found: Waiting) -> PlanFile | None:
        """The plan of a table, whose KV snapshots are leased; None if that is not possible."""
        snapshots: tuple[BucketSnapshot, ...] = ()
        try:
            if found.needs_kv_snapshots:
                snapshots = leasing.lease_snapshots(self._client, self._lease_id, claim)
        except LEASE_REFUSED as error:
            if why := table_dropped(error, self._client.tiering, claim):
                self._heartbeats.remove(claim)
                log.warning("%s: the claim was lost: %s", claim.path, why)
            else:
                self.refused[claim] = reason_of(error, self._connection.secrets())
            return None
        bootstrap = self._connection.bootstrap
        until = self._until(claim.path, found.ends)
        return PlanFile(claim, self._lease_id, bootstrap, snapshots, found.rows, until)


def take_over(
    client: Client,
    work_uri: str,
    lease_id: str,
    is_others: Callable[[Claim], bool] = lambda _claim: False,
) -> list[PlanFile]:
    """Returns this run's plans whose claims are still valid; at most one for each table.

    The keeper of the run claims no table of the other plans again: this task claims it, or no
    task of the run tiers it.

    :param is_others: as of :func:`acquire`.
    """
    plans = {}
    for uri in plan_uris(work_uri, lease_id):
        plan = replace(PlanFile.from_json(read_json(uri) or {}), lease_id=lease_id)
        if not is_others(plan.claim):
            plans[plan.claim] = plan
    answers = heartbeat_all(client, plans)
    for claim, error in answers.items():
        uri = plan_uri(work_uri, lease_id, claim)
        if isinstance(error, CLAIM_LOST) and waits_for_claim(uri):
            mark_reported(uri)
    valid = [plan for claim, plan in plans.items() if answers[claim] is None]
    if any(plan.snapshots for plan in valid):  # which the caller leases again
        forget_drop(work_uri, lease_id)
    return valid


def requested_tables(client: Client, patterns: Sequence[str]) -> list[TablePath] | None:
    """Returns the lake tables that match a pattern, or None if all do.

    :raises TableNotExist: a pattern without wildcard names no lake table.
    """
    if not patterns or "*" in patterns or "*.*" in patterns:
        return None
    tables = client.statuses.lake_tables()
    names = {str(path) for path in tables}
    for pattern in patterns:
        if not is_pattern(pattern) and pattern not in names:
            raise TableNotExist(
                f"conf of this run: tables: lake table {pattern!r} does not exist; correct the name"
                " (DATABASE.TABLE, wildcards * and ?), or set the table's option"
                " table.datalake.enabled to true"
            )
    return [path for path in tables if matches(path, patterns)]


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
