"""What the page reads: the GET part of its JSON API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import APIRouter, Query, Response

from sluice import __version__
from sluice.client import Client
from sluice.errors import SluiceError
from sluice.model import TablePath, TieringRound
from sluice.model.round_record import ROUNDS_KEPT
from sluice.page.cluster.models import (
    DagState,
    Health,
    Overview,
    Reading,
    SortKey,
    Table,
    Tables,
    recorded_values,
)
from sluice.page.cluster.round_cache import RoundPoint
from sluice.page.cluster.seen import Seen
from sluice.page.cluster.wanted import Wanted
from sluice.page.requests.calls import AWAY, ByCalls, Known, What, old
from sluice.page.requests.changed import AS_NEW
from sluice.page.requests.holders import tiered_by
from sluice.page.requests.ports import AtPlace, By, Place, Viewer, why_not_act
from sluice.page.tables.models import Round, Rounds
from sluice.page.tables.selection import Judged, listing, matching, table_model

ROWS_MAX = 500
"""Most tables of one answer."""
ATTENTION_MAX = 20
SEARCH_MAX = 200

reads = APIRouter()
"""Include it with dependencies that call :func:`sluice.page.requests.ports.serve`."""


@reads.get("/overview", dependencies=[AS_NEW])
def overview(place: AtPlace, viewer: By) -> Overview:
    """The cluster in numbers, the tables that need a person, and what this user may do."""
    now_ms, dag, seen = place.clock.now_ms(), place.dag(), place.reader.seen
    found = listing(seen, now_ms, paused_dag(dag))
    worst = found.attention[:ATTENTION_MAX]
    place.reader.look_at([each.seen.status.path for each in worst])
    rounds, are_read = place.reader.rounds_of([each.seen for each in worst])
    return Overview(
        reading=reading(seen, now_ms),
        cluster=place.cluster,
        version=__version__,
        is_fluss=seen.is_fluss,
        user=viewer.name,
        may_act=viewer.may_act,
        why_not=viewer.why_not,
        may_tier_now=viewer.why_not_tier_now is None,
        why_not_tier_now=viewer.why_not_tier_now,
        tier_now=place.tier_now_by,
        total=len(found.tables),
        by_health=found.by_health,
        databases=found.databases,
        lag_rows=found.total("lag_rows"),
        lake_bytes=found.total("lake_bytes"),
        lake_rows=found.total("lake_rows"),
        attention_total=len(found.attention),
        attention=shown_tables(place, viewer, worst, rounds),
        are_rounds_read=are_read,
        pages=place.pages(),
        dag=dag,
    )


@reads.get("/tables", response_model=Tables, dependencies=[AS_NEW])
def tables(
    place: AtPlace,
    viewer: By,
    search: Annotated[str, Query(max_length=SEARCH_MAX)] = "",
    health: Annotated[list[Health] | None, Query()] = None,
    database: Annotated[str | None, Query(max_length=SEARCH_MAX)] = None,
    sort: SortKey = "attention",
    descending: bool = False,
    offset: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=ROWS_MAX)] = 100,
) -> Response:
    """Lake tables that match, one page of them. Their order is that of one reading."""
    now_ms, seen = place.clock.now_ms(), place.reader.seen
    every = listing(seen, now_ms, paused_dag(place.dag()))
    found = matching(every.tables, Wanted(search, health or (), database, sort, descending))
    shown = found[offset : offset + limit]
    place.reader.look_at([each.seen.status.path for each in shown])
    rounds, are_read = place.reader.rounds_of([each.seen for each in shown])
    answer = Tables(
        reading=reading(seen, now_ms),
        total=len(every.tables),
        matched=len(found),
        offset=offset,
        databases=every.databases,
        tables=shown_tables(place, viewer, shown, rounds),
        are_rounds_read=are_read,
    )
    # FastAPI would check the models again, and turn them into dictionaries first.
    return Response(answer.model_dump_json(), media_type="application/json")


def shown_tables(
    place: Place, viewer: Viewer, found: Sequence[Judged], rounds: Sequence[Sequence[RoundPoint]]
) -> list[Table]:
    """Tables as the API shows them to a viewer.

    :param rounds: of each table.
    """
    by = tiered_by(place, [each.seen.status for each in found])
    return [
        table_model(
            each,
            points,
            why_not_act(place, viewer, each.seen.status.path),
            by.get(each.seen.status.claimed_by or ""),
        )
        for each, points in zip(found, rounds, strict=True)
    ]


@reads.get("/tables/{database}/{table}/rounds")
def rounds(
    place: AtPlace,
    calls: ByCalls,
    database: str,
    table: str,
    limit: Annotated[int, Query(ge=1, le=ROUNDS_KEPT)] = ROUNDS_KEPT,
) -> Rounds:
    """The newest rounds of a table, the newest first.

    If the cluster is away, those that were read before; at least those of the list of tables.
    """
    path = TablePath(database, table)
    place.reader.look_at([path])

    def read(client: Client) -> Sequence[TieringRound]:
        return client.statuses.history(path, ROUNDS_KEPT)

    try:
        found = calls.read(What("rounds", path), read)
    except AWAY as error:
        found = _in_short(place, path, error)
    return Rounds(
        now_ms=place.clock.now_ms(),
        old=found.old,
        kept=ROUNDS_KEPT,
        rounds=[
            Round(
                **_shown(place, recorded_values(each)),
                duration_ms=each.duration_ms,
                links=place.round_links(path, each),
            )
            for each in found.value[:limit]
        ],
    )


def _in_short(place: Place, path: TablePath, error: SluiceError) -> Known[Sequence[TieringRound]]:
    """The rounds of a table as the list of tables has them.

    :raises SluiceError: it has none.
    """
    seen = place.reader.seen.tables.get(path)
    if seen is None:
        raise error
    (points,), are_newest = place.reader.rounds_of([seen])
    if not points:
        raise error
    last = seen.status.rounds if are_newest else None
    found = [
        replace(
            point.as_round(),
            table_id=seen.status.table_id,
            round_number=None if last is None else last - at,
        )
        for at, point in enumerate(reversed(points))
    ]
    return Known(found, old(seen.status_read_ms, error))


def _shown(place: Place, values: dict[str, Any]) -> dict[str, Any]:
    """The values of a round without the name of a DAG that the viewer may not read."""
    task = values["airflow_task"]
    if task and not place.shows_dag(unquote(task.partition("/")[0])):
        values["airflow_task"] = None
    return values


def reading(seen: Seen, now_ms: int) -> Reading:
    """How fresh an answer from these readings is."""
    lags = seen.lags
    return Reading(
        now_ms=now_ms,
        read_ms=seen.read_ms,
        lags_read_ms=lags.oldest_ms,
        lags_unread=lags.unread,
        tables_read=len(seen.tables),
        is_complete=seen.is_complete,
        error=seen.error,
    )


def paused_dag(dag: DagState | None) -> str | None:
    """The name of the DAG that should tier, if it is paused."""
    return dag.dag_id if dag is not None and dag.is_paused else None
