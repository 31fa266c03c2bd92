"""Leases the KV snapshots of a run from acquire_lease to settle. Does not import Airflow.

All tables of a run share one lease. The first round of a primary-key table reads its newest KV
snapshots, which must not be deleted before the Spark driver has read them. Log tables have none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from sluice.client.leases.calls import DAY_MS
from sluice.client.leases.keeper import LeaseKeeper
from sluice.client.leases.snapshot_lease import never_tiered_buckets
from sluice.errors import LeaseLost, LeaseNotExist, SluiceError, TableNotExist, UnsupportedVersion
from sluice.failpoints import failpoint
from sluice.model import BucketSnapshot, Claim
from sluice.rounds.records.json_files import read_json
from sluice.rounds.records.plan_file import PlanFile
from sluice_airflow.claims.claims import ClaimedTable

if TYPE_CHECKING:
    from sluice.client import Client

log = logging.getLogger(__name__)


def lease_snapshots(client: Client, lease_id: str, claim: Claim) -> tuple[BucketSnapshot, ...]:
    """Leases the newest KV snapshots of the table's buckets that were never tiered.

    :raises LeaseNotObtained: not all snapshots could be leased.
    :raises TableNotExist: the table was dropped.
    """
    info = client.admin.table_info(claim.path)
    if info.table_id != claim.table_id:
        raise TableNotExist(f"table {claim.path} (id {claim.table_id}) was dropped")
    if not info.has_primary_key:
        return ()
    found = client.leases.acquire_latest(lease_id, never_tiered_buckets(client.admin, info))
    failpoint("airflow.acquire.after_lease")
    if found.snapshots:
        log.info("%s: leased %d KV snapshots", claim.path, len(found.snapshots))
    return tuple(found.snapshots.values())


def renew_snapshots(client: Client, plan: PlanFile) -> PlanFile:
    """Leases the snapshots of an earlier try's plan for another day, and returns the plan.

    If the lease expired and a snapshot no longer exists, the newest snapshots are leased instead,
    and the returned plan is a new one.

    :raises LeaseNotObtained, TableNotExist: as :func:`lease_snapshots`.
    """
    if not plan.snapshots:
        return plan
    try:
        if not client.leases.acquire(plan.lease_id, DAY_MS, plan.snapshots):
            return plan
    except UnsupportedVersion:
        return plan  # lease_snapshots logged a warning when the plan was made
    return replace(plan, snapshots=lease_snapshots(client, plan.lease_id, plan.claim))


@contextmanager
def keep_lease(
    client: Client, entries: Sequence[ClaimedTable], on_lost: Callable[[LeaseLost], None]
) -> Iterator[None]:
    """Renews the run's lease while tables are tiered, because a run may exceed a day.

    :param on_lost: called once, on any thread, if the lease is lost, or was before the block began.
    """
    leased = [entry["lease_id"] for entry in entries if entry.get("snapshots")]
    if not leased:
        yield  # log tables
        return
    lease_id = leased[0]
    try:
        client.leases.renew(lease_id, DAY_MS)
    except LeaseNotExist as error:
        on_lost(
            LeaseLost(f"{error}. Clear the task acquire_lease of this run, or trigger a new run")
        )
        yield
        return
    except UnsupportedVersion:
        yield
        return

    def renew() -> None:
        client.leases.renew(lease_id, DAY_MS, retry=False)

    with LeaseKeeper(lease_id, DAY_MS, renew, on_lost=on_lost):
        yield


def release_snapshots(client: Client, entry: ClaimedTable) -> None:
    """Releases a settled table's snapshots. Errors are logged: drop_lease releases the rest."""
    if not entry.get("snapshots"):
        return
    try:
        plan = PlanFile.from_json(read_json(entry["plan_uri"]) or {})
        client.leases.release(plan.lease_id, [s.bucket for s in plan.snapshots])
    except (OSError, SluiceError, ValueError, KeyError, ImportError) as error:
        log.warning("%s: its snapshots stay leased until the run ends: %s", entry["table"], error)


def drop_lease(client: Client, lease_id: str) -> None:
    """Drops the run's lease. Errors are logged: an undropped lease expires."""
    try:
        client.leases.drop(lease_id)
    except UnsupportedVersion:
        return
    except SluiceError as error:
        log.warning("lease %s is not dropped and stays until it expires: %s", lease_id, error)
