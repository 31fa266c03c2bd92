"""What the page reads of leases on KV snapshots."""

from __future__ import annotations

from fastapi import APIRouter

from sluice.errors import UnsupportedVersion
from sluice.model import LeaseInfo
from sluice.page.models import Lease, LeasedTable, Leases
from sluice.page.ports import AtPlace

lease_reads = APIRouter()


@lease_reads.get("/leases")
def leases(place: AtPlace) -> Leases:
    """All leases, or those that are known where the cluster lists none."""
    try:
        found = place.client.leases.all()
    except UnsupportedVersion:
        return place.unlisted_leases()
    return Leases(
        now_ms=place.clock.now_ms(), is_complete=True, leases=[_lease(one) for one in found]
    )


def _lease(lease: LeaseInfo) -> Lease:
    oldest = LeasedTable(
        path=str(lease.oldest_path) if lease.oldest_path else None,
        table_id=lease.oldest.table_id,
        oldest_snapshot_id=str(lease.oldest_snapshot_id),
    )
    return Lease(
        lease_id=lease.lease_id,
        owner=lease.owner or None,
        holder=lease.lease_id,
        buckets=lease.buckets,
        created_ms=lease.created_ms,
        renewed_ms=lease.renewed_ms,
        expires_ms=lease.expires_ms,
        tables=[oldest],
    )
