"""What the page reads of leases on KV snapshots: models and routes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from sluice.client import Client
from sluice.client.leases.ids import LeaseHolder, holder_of
from sluice.client.leases.round_leases import KnownLeases, RoundLease, RoundLeases, what_is_unknown
from sluice.errors import UnsupportedVersion
from sluice.model import LeasedTable as HeldTable
from sluice.model import LeaseInfo, TablePath
from sluice.page.cluster.masked import masked, masked_or_none
from sluice.page.cluster.models import OLD, Link, Old
from sluice.page.cluster.per_owner import PerOwner
from sluice.page.requests.calls import ByCalls, Known, What
from sluice.page.requests.holders import holder_in_words, runs_of
from sluice.page.requests.ports import AtPlace, Place
from sluice.rounds.records.run_names import RunName
from sluice.statuses import State


class LeasedTable(BaseModel):
    """What a lease holds of one table."""

    path: str | None = Field(default=None, description="Null: the table was dropped")
    table_id: int | None = None
    buckets: int | None = None
    held_bytes: int | None = Field(default=None, description="Bytes of its leased KV snapshots")
    freed_bytes: int | None = Field(
        default=None, description="Those that only this lease keeps: a drop frees them"
    )
    oldest_snapshot_id: str | None = None


class Lease(BaseModel):
    """A lease on KV snapshots. Null: the cluster does not say."""

    lease_id: str
    owner: str | None = Field(default=None, description="The user who made it")
    holder: str = Field(description="What holds it, in words")
    holder_kind: Literal["run", "tier", "reader"] = Field(
        description="run: a run of the DAG. tier: a round of `sluice tier` or `sluice repair`."
        " reader: any other client"
    )
    deployment_id: str | None = Field(default=None, description="Of a run: the id of its Airflow")
    dag_id: str | None = Field(default=None, description="Of a run, if its work folder is known")
    run_id: str | None = None
    installation_id: str | None = Field(
        default=None, description="Of `sluice tier`: who runs it, and on which machine"
    )
    buckets: int | None = None
    held_bytes: int | None = Field(default=None, description="Bytes of its KV snapshots")
    freed_bytes: int | None = Field(
        default=None, description="Those that only this lease keeps: a drop frees them"
    )
    created_ms: int | None = None
    renewed_ms: int | None = None
    expires_ms: int | None = Field(
        default=None, description="When it expires, unless it is renewed until then"
    )
    table_count: int | None = Field(
        default=None, description="Tables that it holds; `tables` may have fewer of them"
    )
    tables: list[LeasedTable] = Field(description="The largest first")
    links: list[Link] = Field(default_factory=list)


class Leases(BaseModel):
    """All leases, or those that are known where the cluster lists none."""

    now_ms: int
    old: Old | None = OLD
    is_complete: bool
    note: str | None = Field(
        default=None, description="Where the list comes from, if it is not complete"
    )
    total: int = Field(default=0, description="Leases that are known; `leases` may have fewer")
    leases: list[Lease]


class LeaseToDrop(BaseModel):
    """Which lease to drop. Its id may be any text, so it is no part of an address."""

    lease_id: str = Field(min_length=1)


NAMED_TABLES_MAX = 5
TABLES_MAX = 100
"""Most tables of one lease in an answer."""
LEASES_MAX = 500
"""Most leases of one answer."""
READ_AS = "leases"
"""Name of these reads: see :meth:`sluice.page.requests.calls.Calls.forget`."""

lease_reads = APIRouter()

_Found = Sequence[LeaseInfo] | KnownLeases
"""All leases; or those of rounds in progress, where the cluster lists none."""


@lease_reads.get("/leases")
def leases(place: AtPlace, calls: ByCalls) -> Leases:
    """All leases, or those that are known where the cluster lists none."""

    def read(client: Client) -> _Found:
        try:
            return client.leases.all()
        except UnsupportedVersion:
            return _of_rounds(place, client)

    return _answer(place, calls.read(What(READ_AS), read))


@lease_reads.get("/tables/{database}/{table}/leases")
def leases_of_table(place: AtPlace, calls: ByCalls, database: str, table: str) -> Leases:
    """The leases that hold KV snapshots of a table: `tables` has what they hold of it."""
    path = TablePath(database, table)

    def read(client: Client) -> _Found:
        info = client.admin.table_info(path)
        try:
            return client.leases.of_table(info.table_id)
        except UnsupportedVersion:
            return _of_rounds(place, client).of_table(path)

    return _answer(place, calls.read(What(READ_AS, path), read), only=path)


def drop_unlisted(place: Place, lease_id: str) -> str:
    """Drops a lease where the cluster lists none, and says what was done."""
    return _leases_of_rounds(place).drop(place.client, lease_id)


def uses_of(place: Place, lease_id: str, *, is_told: bool) -> str:
    """What dropping a lease means for those who use it, in sentences.

    :param is_told: whether the cluster refuses the next renewal of a dropped lease.
    """
    holder = holder_of(lease_id)
    if holder.kind == "reader":
        if is_told:
            return "A reader that still uses it fails at its next renewal."
        return "A reader that still uses it fails if its snapshots are deleted before it ends."
    tables = sorted(map(str, _tiered_under(place, lease_id, holder)))
    if not tables:
        return "No round in progress is known to use it."
    more = len(tables) - NAMED_TABLES_MAX
    named = ", ".join(tables[:NAMED_TABLES_MAX]) + (f" and {more} more" if more > 0 else "")
    how = (
        "It may fail with LeaseLost at the next renewal."
        if is_told
        else "It may fail if its KV snapshots are deleted before it has read them."
    )
    return f"A round of {named} is in progress. {how} The next round reads newer snapshots."


def _tiered_under(place: Place, lease_id: str, holder: LeaseHolder) -> Iterable[TablePath]:
    for path, each in place.reader.seen.tables.items():
        status = each.status
        if status.status != State.TIERING.value:
            continue
        if lease_id == status.claimed_by or holder.table_id == status.table_id:
            yield path


def _of_rounds(place: Place, client: Client) -> KnownLeases:
    """The leases of rounds in progress, from recorded statuses and plan files."""
    statuses = [each.status for each in place.reader.seen.tables.values()]
    return _leases_of_rounds(place).known(client, statuses)


def _answer(place: Place, found: Known[_Found], only: TablePath | None = None) -> Leases:
    """:param only: those that hold this table, and of their tables this one."""
    if isinstance(found.value, KnownLeases):
        answer = _known(place, found.value, only)
    else:
        answer = _listed(place, found.value)
    if found.old is not None:  # the ages of the leases go on
        answer.old, answer.now_ms = found.old, place.clock.now_ms()
    return answer


def _listed(place: Place, found: Sequence[LeaseInfo]) -> Leases:
    now_ms = found[0].now_ms if found else place.clock.now_ms()
    shown = found
    if len(found) > LEASES_MAX:  # those that cost the most
        by_bytes = sorted(found, key=lambda one: (-(one.freed_bytes or 0), -(one.held_bytes or 0)))
        shown = by_bytes[:LEASES_MAX]
    names = runs_of(place, [lease.lease_id for lease in shown])
    return Leases(
        now_ms=now_ms,
        is_complete=len(shown) == len(found),
        note=None if shown is found else f"Only the {LEASES_MAX} largest leases are shown.",
        total=len(found),
        leases=[_with_links(place, _lease(one, names.get(one.lease_id))) for one in shown],
    )


def _known(place: Place, known: KnownLeases, only: TablePath | None) -> Leases:
    found = [
        one
        for one in known.leases
        if only is None or any(table.path == only for table in one.tables)
    ]
    shown = sorted(found, key=lambda one: -(one.held_bytes or 0))[:LEASES_MAX]
    names = runs_of(place, [lease.lease_id for lease in shown])
    note = what_is_unknown(known, place.work_uri)
    if not place.reader.seen.is_complete:
        note = f"Not all statuses of tables are read yet, so leases may be missing. {note}"
    return Leases(
        now_ms=place.clock.now_ms(),
        is_complete=False,
        note=note,
        total=len(found),
        leases=[
            _with_links(place, _round_lease(one, names.get(one.lease_id), only)) for one in shown
        ],
    )


def _with_links(place: Place, lease: Lease) -> Lease:
    if lease.dag_id and lease.run_id:
        lease.links = place.run_links(lease.dag_id, lease.run_id, lease.deployment_id)
    return lease


_round_leases: PerOwner[Client, RoundLeases] = PerOwner()


def _leases_of_rounds(place: Place) -> RoundLeases:
    """What was read of a cluster before: sizes of snapshots never change."""
    return _round_leases.of(place.client, lambda: RoundLeases(place.work_uri, place.clock))


def _round_lease(lease: RoundLease, run: RunName | None, only: TablePath | None) -> Lease:
    shown = [one for one in lease.tables if only in (None, one.path)]
    return Lease(
        **_held_by(lease.lease_id, run),
        buckets=lease.buckets,
        held_bytes=lease.held_bytes,
        created_ms=lease.created_ms,
        table_count=lease.table_count,
        tables=[_table(one) for one in shown[:TABLES_MAX]],
    )


def _lease(lease: LeaseInfo, run: RunName | None) -> Lease:
    return Lease(
        **_held_by(lease.lease_id, run),
        owner=masked(lease.owner) or None,
        buckets=lease.buckets,
        held_bytes=lease.held_bytes,
        freed_bytes=lease.freed_bytes,
        created_ms=lease.created_ms,
        renewed_ms=lease.renewed_ms,
        expires_ms=lease.expires_ms,
        table_count=lease.table_count,
        tables=[_table(one) for one in lease.tables] or [_oldest(lease)],
    )


def _table(table: HeldTable) -> LeasedTable:
    return LeasedTable(
        path=str(table.path) if table.path else None,
        table_id=table.table_id,
        buckets=table.buckets,
        held_bytes=table.held_bytes,
        freed_bytes=table.freed_bytes,
        oldest_snapshot_id=(
            None if table.oldest_snapshot_id is None else str(table.oldest_snapshot_id)
        ),
    )


def _oldest(lease: LeaseInfo) -> LeasedTable:
    """The one table of a lease that an earlier server tells."""
    return LeasedTable(
        path=str(lease.oldest_path) if lease.oldest_path else None,
        table_id=lease.oldest.table_id,
        oldest_snapshot_id=str(lease.oldest_snapshot_id),
    )


def _held_by(lease_id: str, run: RunName | None) -> dict[str, Any]:
    """Who holds a lease, as its id and the name of its run tell it."""
    holder = holder_of(lease_id)
    return {
        "lease_id": lease_id,
        "holder": holder_in_words(lease_id, run),
        "holder_kind": holder.kind,
        "deployment_id": holder.deployment_id,
        "dag_id": masked_or_none(run.dag_id) if run else None,
        "run_id": masked_or_none(run.run_id) if run else None,
        "installation_id": holder.installation_id,
    }
