"""What the page reads: the GET part of its JSON API."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from sluice import __version__
from sluice.model import TablePath
from sluice.model.tiering_round import ROUNDS_KEPT
from sluice.page.models import Health, Overview, Reading, Round, Rounds, SortKey, Tables
from sluice.page.ports import AtPlace, By, Place
from sluice.page.recorded_models import recorded_values
from sluice.page.tables import Wanted, judged, matching, table_model

ROWS_MAX = 500
"""Most tables of one answer."""
ATTENTION_MAX = 20

reads = APIRouter()
"""Include it with dependencies that call :func:`sluice.page.ports.serve`."""


@reads.get("/overview")
def overview(place: AtPlace, viewer: By) -> Overview:
    """The cluster in numbers, the tables that need a person, and what this user may do."""
    now_ms = place.clock.now_ms()
    tables = judged(place.reader.seen, now_ms)
    by_health: dict[Health, int] = {}
    for each in tables:
        by_health[each.verdict.health] = by_health.get(each.verdict.health, 0) + 1
    lags = [each.seen.status.lag_rows for each in tables]
    return Overview(
        reading=reading_of(place, now_ms),
        cluster=place.cluster,
        version=__version__,
        is_fluss=False,
        user=viewer.name,
        may_act=viewer.may_act,
        why_not=viewer.why_not,
        tier_now=place.tier_now_by,
        total=len(tables),
        by_health=by_health,
        lag_rows=sum(filter(None, lags)),
        attention=[table_model(each) for each in matching(tables, Wanted())[:ATTENTION_MAX]],
        pages=place.pages(),
        dag=place.dag(),
    )


@reads.get("/tables")
def tables(
    place: AtPlace,
    search: str = "",
    health: Annotated[list[Health] | None, Query()] = None,
    database: str | None = None,
    sort: SortKey = "attention",
    descending: bool = False,
    offset: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=ROWS_MAX)] = 100,
) -> Tables:
    """Lake tables that match, one page of them."""
    now_ms = place.clock.now_ms()
    every = judged(place.reader.seen, now_ms)
    found = matching(every, Wanted(search, health or (), database, sort, descending))
    shown = found[offset : offset + limit]
    return Tables(
        reading=reading_of(place, now_ms),
        total=len(every),
        matched=len(found),
        offset=offset,
        tables=[table_model(each) for each in shown],
    )


@reads.get("/tables/{database}/{table}/rounds")
def rounds(
    place: AtPlace,
    database: str,
    table: str,
    limit: Annotated[int, Query(ge=1, le=ROUNDS_KEPT)] = ROUNDS_KEPT,
) -> Rounds:
    """The newest rounds of a table, the newest first."""
    path = TablePath(database, table)
    found = place.client.statuses.history(path, limit)
    return Rounds(
        now_ms=place.clock.now_ms(),
        kept=ROUNDS_KEPT,
        rounds=[
            Round(
                **recorded_values(each),
                duration_ms=each.duration_ms,
                links=place.round_links(path, each),
            )
            for each in found
        ],
    )


def reading_of(place: Place, now_ms: int) -> Reading:
    """How fresh the background readings are."""
    seen = place.reader.seen
    return Reading(
        now_ms=now_ms,
        read_ms=seen.read_ms,
        tables_read=len(seen.tables),
        is_complete=seen.is_complete,
        error=seen.error,
    )
