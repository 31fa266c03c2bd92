"""What the page reads of the maintenance of lake tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Query, Response

from sluice.client.leases.ids import holder_of
from sluice.masking import reason_text
from sluice.page.cluster.masked import masked_or_none
from sluice.page.maintenance.models import (
    MaintainedTable,
    Maintenance,
    MaintenanceRunModel,
    MaintenanceSortKey,
    MaintenanceState,
)
from sluice.page.maintenance.reader import SeenMaintenance, maintenance_of
from sluice.page.maintenance.runs import SeenRun
from sluice.page.maintenance.tables import Row, Wanted, matching, table_model
from sluice.page.requests.changed import AS_NEW
from sluice.page.requests.ports import AtPlace, By, Place, Viewer, why_not_act
from sluice.page.tables.list_reads import ROWS_MAX, SEARCH_MAX, reading

maintenance_reads = APIRouter()

_NO_FOLDER = (
    "The work folder of the runs is not known here, so no run of the maintenance is shown: {how}."
    " What rounds compacted and expired is shown."
)
_NO_RUN = (
    "The work folder names no run of the maintenance. The DAG sluice_lake_maintenance and"
    " `sluice maintain --work-uri` note their runs there; `sluice maintain` alone leaves no report."
)
_DEFAULT_HOST = ("http", "localhost:8080")
"""Airflow's own address in its links if nobody has set one (`[api] base_url`)."""


@maintenance_reads.get("/maintenance", response_model=Maintenance, dependencies=[AS_NEW])
def maintenance(
    place: AtPlace,
    viewer: By,
    search: Annotated[str, Query(max_length=SEARCH_MAX)] = "",
    state: Annotated[list[MaintenanceState] | None, Query()] = None,
    database: Annotated[str | None, Query(max_length=SEARCH_MAX)] = None,
    sort: MaintenanceSortKey = "attention",
    descending: bool = False,
    offset: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=ROWS_MAX)] = 100,
) -> Response:
    """What the maintenance of tables did and what they need: those that match, one page of them."""
    seen = place.reader.seen
    found, listing = maintenance_of(place).listing(seen)
    rows = matching(listing.rows, Wanted(search, state or (), database, sort, descending))
    hidden = _hidden_names(place, found.runs)
    runs = [_shown_run(place, each, hidden) for each in found.runs]
    last = next((each for each in runs if each.state != "running"), runs[0] if runs else None)
    answer = Maintenance(
        reading=reading(seen, place.clock.now_ms()),
        runs_read_ms=found.runs_read_ms,
        rounds_read_ms=found.rounds_read_ms,
        are_rounds_read=found.are_rounds_read,
        error=found.error,
        runs=runs,
        last_run_ms=None if last is None else last.began_ms,
        last_run_url=None if last is None else last.url,
        note=_note(place, found),
        total=len(listing.rows),
        matched=len(rows),
        by_state=listing.by_state,
        databases=listing.databases,
        offset=offset,
        tables=[_shown(place, viewer, row, hidden) for row in rows[offset : offset + limit]],
    )
    # FastAPI would check the models again, and turn them into dictionaries first.
    return Response(answer.model_dump_json(), media_type="application/json")


def _shown(place: Place, viewer: Viewer, row: Row, hidden: Mapping[str, str]) -> MaintainedTable:
    """A row without a status is of no lake table, so there is nothing to act on."""
    path = None if row.status is None else row.status.path
    table = table_model(row, None if path is None else why_not_act(place, viewer, path))
    table.reported_by = hidden.get(table.reported_by or "", table.reported_by)
    table.maintained_by = hidden.get(table.maintained_by or "", table.maintained_by)
    return table


def _note(place: Place, found: SeenMaintenance) -> str | None:
    if place.work_uri is None:
        by_airflow = "give Airflow's connection to the cluster a `work_uri`"
        by_ui = "`sluice ui --work-uri` names it"
        return _NO_FOLDER.format(how=by_airflow if place.is_in_airflow else by_ui)
    if found.unread_runs:
        return f"Runs of the maintenance cannot be read: {'; '.join(found.unread_runs[:3])}"
    return _NO_RUN if found.runs_read_ms is not None and not found.runs else None


def _run_model(each: SeenRun, *, is_in_airflow: bool) -> MaintenanceRunModel:
    run, totals = each.run, each.totals
    return MaintenanceRunModel(
        folder=reason_text(run.folder),
        deployment_id=masked_or_none(holder_of(run.folder).deployment_id),
        by=reason_text(run.by),
        dag_id=reason_text(run.dag_id) or None,
        run_id=reason_text(run.run_id) or None,
        task_id=reason_text(run.task_id) or None,
        map_index=run.map_index if run.map_index >= 0 else None,
        url=_link(run.url, is_in_airflow=is_in_airflow),
        began_ms=run.began_ms,
        ended_ms=run.ended_ms,
        state=each.state,
        applied=run.applied,
        tables=each.reported,
        needed=totals.needed,
        problems=totals.problems,
        numbers=dict(totals.numbers),
        error=each.error or None,
        at=each.at or None,
        last_sign_ms=each.last_sign_ms,
        problem=each.problem or None,
    )


def _hidden_names(place: Place, runs: Iterable[SeenRun]) -> dict[str, str]:
    """By its folder, which names its Airflow, a name for each run of a DAG that the viewer may not
    read."""
    dag_ids = {each.run.dag_id for each in runs if each.run.dag_id}
    shown = {dag_id for dag_id in dag_ids if place.shows_dag(dag_id)}
    hidden = [each.run.folder for each in runs if each.run.dag_id in dag_ids - shown]
    return {folder: f"hidden-{number}" for number, folder in enumerate(hidden, 1)}


def _shown_run(place: Place, each: SeenRun, hidden: Mapping[str, str]) -> MaintenanceRunModel:
    run, folder = _run_model(each, is_in_airflow=place.is_in_airflow), each.run.folder
    if folder not in hidden:
        return run
    changes = dict.fromkeys(("deployment_id", "dag_id", "run_id", "task_id", "map_index", "url"))
    texts = {
        name: text and text.replace(folder, hidden[folder])
        for name, text in (("error", run.error), ("problem", run.problem))
    }
    changes = {**changes, **texts, "folder": hidden[folder], "by": "a run of another DAG"}
    return run.model_copy(update=changes)


def _link(url: str, *, is_in_airflow: bool) -> str | None:
    """The task's page, if its address is one for browsers and has no secret."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or reason_text(url) != url:
        return None
    if is_in_airflow and (parts.scheme, parts.netloc) == _DEFAULT_HOST:
        return parts._replace(scheme="", netloc="").geturl()
    return url
