"""The lease of a run: KV snapshots held from acquire to settle. Plain functions: no Airflow here.

All tables of a run share one lease. A table that was never tiered is read from its newest KV
snapshots, which must not be deleted before the Spark driver has read them; log tables have none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from sluice.client.lease_keeper import LeaseKeeper
from sluice.client.leases import DAY_MS
from sluice.client.snapshot_lease import never_tiered_buckets
from sluice.errors import LeaseLost, LeaseNotExist, SluiceError, TableNotExist, UnsupportedVersion
from sluice.failpoints import failpoint
from sluice.model import BucketSnapshot, Claim
from sluice.rounds.files import PlanFile, read_json
from sluice_airflow.claims import Entry

if TYPE_CHECKING:
    from sluice.client import Client

log = logging.getLogger(__name__)


def hold(client: Client, lease_id: str, claim: Claim) -> tuple[BucketSnapshot, ...]:
    """Leases the newest KV snapshots of the table's buckets that were never tiered.

    :raises LeaseNotObtained: not all could be held. :raises TableNotExist: it was dropped.
    """
    info = client.admin.table_info(claim.path)
    if info.table_id != claim.table_id:
        raise TableNotExist(f"table {claim.path} of id {claim.table_id} was dropped")
    if not info.has_primary_key:
        return ()
    found = client.leases.acquire_latest(lease_id, never_tiered_buckets(client.admin, info))
    failpoint("airflow.acquire.after_lease")
    log.info("%s: %d KV snapshots are leased", claim.path, len(found.snapshots))
    return tuple(found.snapshots.values())


def hold_again(client: Client, plan: PlanFile) -> PlanFile:
    """The plan of an earlier try of this run, with its snapshots held for another day.

    If one is gone (the lease had expired), the newest are leased in their place: another plan.

    :raises LeaseNotObtained, TableNotExist: as :func:`hold`.
    """
    if not plan.snapshots:
        return plan
    try:
        if not client.leases.acquire(plan.lease_id, DAY_MS, plan.snapshots):
            return plan
    except UnsupportedVersion:
        return plan  # a warning was given when the plan was made
    return replace(plan, snapshots=hold(client, plan.lease_id, plan.claim))


@contextmanager
def kept(client: Client, entry: Entry, on_lost: Callable[[LeaseLost], None]) -> Iterator[None]:
    """Renews the run's lease while its table is tiered; a run may take longer than a day.

    :raises LeaseLost: it had ended before the block began.
    """
    lease_id = entry.get("lease_id")
    if not entry.get("snapshots") or not lease_id:
        yield  # a log table, or an entry of before there were leases
        return
    try:
        client.leases.renew(lease_id, DAY_MS)
    except LeaseNotExist as error:
        raise LeaseLost(
            f"{error}. Clear the task acquire_lease of this run, or start another run"
        ) from error
    except UnsupportedVersion:
        yield
        return

    def renew() -> None:
        client.leases.renew(lease_id, DAY_MS, retry=False)

    with LeaseKeeper(lease_id, DAY_MS, renew, on_lost=on_lost):
        yield


def release(client: Client, entry: Entry) -> None:
    """Lets go of a settled table's snapshots. An error is logged: the run's end drops them all."""
    if not entry.get("snapshots"):
        return
    try:
        plan = PlanFile.from_json(read_json(entry["plan_uri"]) or {})
        client.leases.release(plan.lease_id, [s.bucket for s in plan.snapshots])
    except (OSError, SluiceError, ValueError, KeyError, ImportError) as error:
        log.warning("%s: its snapshots stay leased until the run ends: %s", entry["table"], error)


def drop(client: Client, lease_id: str) -> None:
    """Ends the run's lease. An error is logged: the lease expires by itself."""
    try:
        client.leases.drop(lease_id)
    except UnsupportedVersion:
        return
    except SluiceError as error:
        log.warning("lease %s stays until it expires: %s", lease_id, error)
