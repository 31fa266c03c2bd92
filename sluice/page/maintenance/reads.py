"""What the page reads of the maintenance of lake tables, in the background while somebody looks."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Annotated
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from fastapi import APIRouter, Query, Response

from sluice.client import Client
from sluice.client.leases.ids import holder_of
from sluice.clock import Clock
from sluice.masking import reason_text, secrets_of
from sluice.model import TablePath
from sluice.page.cluster.cluster_reader import ClusterReader
from sluice.page.cluster.masked import masked_or_none
from sluice.page.cluster.per_owner import PerOwner
from sluice.page.cluster.seen import Seen
from sluice.page.cluster.wanted import Wanted
from sluice.page.maintenance.history import RoundFacts, RoundsReader, RunReader, SeenRun
from sluice.page.maintenance.tables import (
    MaintainedTable,
    Maintenance,
    MaintenanceListing,
    MaintenanceRunModel,
    MaintenanceSortKey,
    MaintenanceState,
    Row,
    matching,
    table_model,
)
from sluice.page.requests.changed import AS_NEW
from sluice.page.requests.ports import AtPlace, By, Place, Viewer, why_not_act
from sluice.page.tables.list_reads import ROWS_MAX, SEARCH_MAX, reading

READ_EVERY_S = 15.0
"""What is older is read again, once somebody asks."""
READ_S = 20.0
"""Longest read of each kind. The next one begins with what this one did not reach."""


@dataclass(frozen=True, slots=True)
class SeenMaintenance:
    """What was last read. Times are epoch milliseconds. Immutable."""

    runs: tuple[SeenRun, ...] = ()
    """The newest first."""
    runs_read_ms: int | None = None
    unread_runs: tuple[str, ...] = ()
    """Why files of the work folder, or all of them, cannot be read."""
    facts: Mapping[TablePath, RoundFacts] = field(default_factory=dict, repr=False)
    rounds_read_ms: int | None = None
    are_rounds_read: bool = False
    """Whether the history of each table is known as far as it went then."""
    error: str | None = None
    """Why the histories cannot be read."""


class MaintenanceReader:
    """Reads for one page. Nothing is read while nobody asks. Safe for use by many threads."""

    def __init__(self, client: Client, work_uri: str | None, clock: Clock) -> None:
        """:param work_uri: the work folder of the runs; None: not known."""
        self._client, self._clock = client, clock
        self._secrets = secrets_of(work_uri or "")
        self._runs = RunReader(work_uri, clock) if work_uri else None
        self._rounds = RoundsReader(clock)
        self._lock = threading.Lock()  # guards the thread and its time
        self._thread: threading.Thread | None = None
        self._began_s: float | None = None
        self._seen = SeenMaintenance()  # replaced as a whole
        self._listed: WeakKeyDictionary[Seen, tuple[SeenMaintenance, MaintenanceListing]] = (
            WeakKeyDictionary()  # a reading that is replaced takes its list with it
        )

    def listing(self, seen: Seen) -> tuple[SeenMaintenance, MaintenanceListing]:
        """What is known now. If that is old, it is read again in the background.

        :param seen: the tables of the cluster.
        """
        self._read_soon(seen)
        found, listed = self._seen, self._listed.get(seen)
        if listed is None or listed[0] is not found:
            listed = found, MaintenanceListing(seen, found.runs, found.facts)
            self._listed[seen] = listed
        return listed

    def wait(self, timeout_s: float) -> bool:
        """Waits for the read that is under way; returns whether none is left."""
        with self._lock:
            thread = self._thread
        if thread is None:
            return True
        thread.join(timeout_s)
        return not thread.is_alive()

    def _read_soon(self, seen: Seen) -> None:
        if seen.read_ms is None:
            return  # the tables are not known yet
        now_s = self._clock.monotonic_s()
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                return
            is_done = self._seen.are_rounds_read or self._seen.error is not None
            if is_done and self._began_s is not None and now_s - self._began_s < READ_EVERY_S:
                return
            self._began_s = now_s
            self._thread = threading.Thread(
                target=self._read, args=(seen,), name="sluice-page-maintenance", daemon=True
            )
            self._thread.start()

    def _read(self, seen: Seen) -> None:
        self._read_runs()
        self._read_rounds(seen)

    def _read_runs(self) -> None:
        if self._runs is None:
            return
        try:
            runs, unread = self._runs.read(self._clock.monotonic_s() + READ_S)
        except Exception as error:  # of any file system; the next read tries again
            why = reason_text(f"{type(error).__name__}: {error}", self._secrets)
            self._seen = replace(self._seen, unread_runs=(why,))
            return
        now_ms = self._clock.now_ms()
        self._seen = replace(
            self._seen, runs=tuple(runs), runs_read_ms=now_ms, unread_runs=tuple(unread)
        )

    def _read_rounds(self, seen: Seen) -> None:
        try:
            with closing(self._client.status_watch()) as watch:
                is_complete = self._rounds.read(watch, seen, self._clock.monotonic_s() + READ_S)
        except Exception as error:  # shown by the page; the next read tries again
            why = reason_text(f"{type(error).__name__}: {error}")
            self._seen = replace(self._seen, facts=self._rounds.known, error=why)
            return
        self._seen = replace(
            self._seen,
            facts=self._rounds.known,
            rounds_read_ms=self._clock.now_ms(),
            are_rounds_read=is_complete,
            error=None,
        )


_READERS: PerOwner[ClusterReader, MaintenanceReader] = PerOwner()


def maintenance_of(place: Place) -> MaintenanceReader:
    """The reader of a place: it lasts as long as the place's reader of statuses."""
    return _READERS.of(
        place.reader, lambda: MaintenanceReader(place.client, place.work_uri, place.clock)
    )


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
    run = each.run
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
        needed=each.needed,
        problems=each.problems,
        numbers=dict(each.numbers),
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
