"""What a user may do on the page: the POST part of its JSON API."""

from __future__ import annotations

from fastapi import APIRouter

from sluice.model import TablePath
from sluice.page.models import Answer
from sluice.page.ports import AtPlace, By

actions = APIRouter()
"""Include it with dependencies that call :func:`sluice.page.ports.serve`, and that refuse users who
may not act and requests of foreign origins."""


@actions.post("/tables/{database}/{table}/tier")
def tier_now(place: AtPlace, viewer: By, database: str, table: str) -> Answer:
    """Tiers a table now: starts a run of the DAG, or requests a round."""
    path = TablePath(database, table)
    answer = place.tier_now(path, viewer)
    place.reader.read_soon(path)
    return answer


@actions.post("/tables/{database}/{table}/retry")
def retry(place: AtPlace, database: str, table: str) -> Answer:
    """Clears the failures of a table, so that its next round may start now."""
    path = TablePath(database, table)
    place.client.statuses.retry(path)
    place.reader.read_soon(path)
    return Answer(message=f"table {path}: failures cleared, the next round may start now")


@actions.post("/tables/{database}/{table}/pause")
def pause(place: AtPlace, database: str, table: str) -> Answer:
    """Pauses tiering of a table until it is resumed."""
    path = TablePath(database, table)
    place.client.statuses.pause(path)
    place.reader.read_soon(path)
    return Answer(message=f"table {path}: paused")


@actions.post("/tables/{database}/{table}/resume")
def resume(place: AtPlace, database: str, table: str) -> Answer:
    """Resumes tiering of a paused table."""
    path = TablePath(database, table)
    place.client.statuses.resume(path)
    place.reader.read_soon(path)
    return Answer(message=f"table {path}: resumed, the next round starts when the table is due")


@actions.post("/leases/{lease_id}/drop")
def drop_lease(place: AtPlace, lease_id: str) -> Answer:
    """Drops a lease, so that the server may delete its snapshots."""
    place.client.leases.drop(lease_id)
    return Answer(message=f"lease {lease_id} is dropped")
