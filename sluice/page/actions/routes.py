"""What a user may do on the page: the POST part of its JSON API.

Each action may be repeated. Its answer says what was done, in the words of the command line.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from fastapi import APIRouter

from sluice.client import user_requests
from sluice.client.user_requests import Request
from sluice.errors import LeaseNotExist, UnsupportedVersion
from sluice.model import TablePath
from sluice.page.actions.acts import OnLease, OnTable
from sluice.page.cluster.models import Answer
from sluice.page.leases.reads import READ_AS, drop_unlisted, uses_of
from sluice.page.requests.calls import CALLS_CLUSTER, ByCalls
from sluice.page.requests.ports import AtPlace, By, Place
from sluice.page.tables.list_reads import paused_dag

NAMED_MAX = 5
"""Most leases that an error names."""

actions = APIRouter(dependencies=[CALLS_CLUSTER])
"""Include it with dependencies that call :func:`sluice.page.requests.ports.serve`, and that refuse
requests of foreign origins. What a route acts on is checked where it is read:
`sluice/page/actions/acts.py`."""


@actions.post("/tables/{database}/{table}/tier")
def tier_now(place: AtPlace, viewer: By, path: OnTable) -> Answer:
    """Tiers a table now: starts a run of the DAG, or requests a round."""
    # A run says it itself. It is read first: an action that is made must be answered.
    unless_paused = _unless_paused(place) if place.tier_now_by == "request" else ""
    answer = place.tier_now(path, viewer)
    answer.changed_ms = place.clock.now_ms()
    place.reader.read_soon(path)
    answer.message += unless_paused
    return answer


@actions.post("/tables/{database}/{table}/retry")
def retry(place: AtPlace, path: OnTable) -> Answer:
    """Clears the failures of a table, so that its next round may start now."""
    return _send(place, user_requests.retry, path)


@actions.post("/tables/{database}/{table}/pause")
def pause(place: AtPlace, path: OnTable) -> Answer:
    """Pauses tiering of a table until it is resumed."""
    return _send(place, user_requests.pause, path, starts=False)


@actions.post("/tables/{database}/{table}/resume")
def resume(place: AtPlace, path: OnTable) -> Answer:
    """Resumes tiering of a paused table."""
    return _send(place, user_requests.resume, path)


@actions.post("/tables/{database}/{table}/compact")
def compact(place: AtPlace, path: OnTable) -> Answer:
    """Requests a compaction from a table's next round, unless one is requested already."""
    return _send(place, partial(user_requests.compact, clock=place.clock), path)


@actions.post("/leases/drop")
def drop_lease(place: AtPlace, calls: ByCalls, lease_id: OnLease) -> Answer:
    """Drops a lease, so that the server may delete its snapshots."""
    leases = place.client.leases
    try:
        known = [one.lease_id for one in leases.all()]
    except UnsupportedVersion:
        try:
            told = drop_unlisted(place, lease_id)
        finally:
            calls.forget(READ_AS)
        return Answer(message=f"{told}. {uses_of(place, lease_id, is_told=False)}")
    if lease_id not in known:
        raise LeaseNotExist(f"lease {lease_id!r} does not exist: {_named(known)}")
    try:
        leases.drop(lease_id)
    finally:  # a drop whose answer is lost may have happened
        calls.forget(READ_AS)
    return Answer(message=f"lease {lease_id} is dropped. {uses_of(place, lease_id, is_told=True)}")


def _send(place: Place, request: Request, path: TablePath, *, starts: bool = True) -> Answer:
    """:param starts: whether a round may follow."""
    unless_paused = _unless_paused(place) if starts else ""  # first: see tier_now
    try:
        done = request(place.client, path)
        changed_ms = place.clock.now_ms()
    finally:
        place.reader.read_soon(path)
    return Answer(message=f"table {path}: {done}{unless_paused}", changed_ms=changed_ms)


def _unless_paused(place: Place) -> str:
    """That the DAG starts no run, to append to an answer; empty if it is not paused."""
    dag = paused_dag(place.dag())
    return "" if dag is None else f"; DAG {dag} is paused, so it starts no run"


def _named(lease_ids: Sequence[str]) -> str:
    if not lease_ids:
        return "there are no leases"
    more = len(lease_ids) - NAMED_MAX
    also = f" and {more} more" if more > 0 else ""
    return f"the leases are {', '.join(lease_ids[:NAMED_MAX])}{also}"
