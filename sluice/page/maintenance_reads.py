"""What the page reads of the maintenance of lake tables."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from sluice.page.models import MaintainedTable, Maintenance
from sluice.page.ports import AtPlace
from sluice.page.reads import reading_of

maintenance_reads = APIRouter()


@maintenance_reads.get("/maintenance")
def maintenance(
    place: AtPlace,
    offset: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Maintenance:
    """What the maintenance of tables did and what they need."""
    seen = sorted(place.reader.seen.tables.values(), key=lambda each: each.status.path)
    found = [
        MaintainedTable(
            path=str(each.status.path),
            compaction_requested_ms=each.status.compaction_requested_ms,
            deletes_as=each.status.deletes_as,
        )
        for each in seen
    ]
    now_ms = place.clock.now_ms()
    return Maintenance(
        reading=reading_of(place, now_ms),
        total=len(found),
        offset=offset,
        tables=found[offset : offset + limit],
    )
