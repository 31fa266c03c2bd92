"""What the page reads of one table: definition, buckets and lake snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query

from sluice.client import Client
from sluice.client.admin.enabling import how_to_enable
from sluice.errors import (
    AuthorizationError,
    DatabaseNotExist,
    InvalidDatabase,
    InvalidTable,
    TableNotExist,
)
from sluice.masking import is_secret_name, line
from sluice.model import TableInfo, TablePath, TieringRound, TieringStatus
from sluice.model.round_record import ROUNDS_KEPT
from sluice.page.cluster.masked import masked, masked_or_none
from sluice.page.cluster.models import Table, recorded_values
from sluice.page.cluster.seen import SeenTable
from sluice.page.requests.calls import AWAY, ByCalls, Known, What, old
from sluice.page.requests.changed import AS_NEW
from sluice.page.requests.ports import AtPlace, By, Place, Viewer
from sluice.page.tables.list_reads import paused_dag, shown_tables
from sluice.page.tables.models import Column, LakeSnapshot, LakeSnapshots, Splits, TableDetails
from sluice.page.tables.selection import Judged, judge
from sluice.page.tables.splits import FoundSplits, read_splits
from sluice.statuses import UNKNOWN, freshness_ms

table_reads = APIRouter(prefix="/tables/{database}/{table}")
SPLITS_MAX = 1_000
DAMAGE_MAX = 100
"""Damaged ranges that are named; their number is told if there are more."""
SPLITS_SHARED_MS = 5_000
"""All who look at a table within this time share one read of its splits."""
_WITHOUT_SNAPSHOT = "nothing_new"
"""The outcome of a round that names the snapshot of an earlier one."""
_SNAPSHOTS_NOTE = (
    "Snapshots that rounds of Sluice committed, as far back as the history of rounds goes. Those of"
    " other writers are only in the catalog of the lake, and some of these may have expired."
)


@dataclass(frozen=True, slots=True)
class _Read:
    """What is read of one table, besides its status."""

    info: TableInfo
    damage: Sequence[str]
    seen: SeenTable
    """Its status then, for a table that the reader in the background does not know."""


@table_reads.get("", dependencies=[AS_NEW])
def details(place: AtPlace, calls: ByCalls, viewer: By, database: str, table: str) -> TableDetails:
    """One table: its status, facts of its definition, and links.

    A table that is not tiered has them, too, and says how to enable its tiering.
    """
    path = TablePath(database, table)
    place.reader.look_at([path])

    def read(client: Client) -> _Read:
        info = client.admin.table_info(path)
        return _Read(info, _damage(client, path), _seen(place, client, info))

    dag = paused_dag(place.dag())
    with _named(path):
        try:
            found = calls.read(What("details", path), read)
        except AWAY as error:
            seen = place.reader.seen.tables.get(path)
            if seen is None:
                raise
            judged = judge(seen, place.clock.now_ms(), dag)
            return TableDetails(
                table=_shown_table(place, viewer, judged),
                old=old(seen.status_read_ms, error),
                **_UNREAD,
                links=place.table_links(path),
            )
    return _details(place, viewer, found, dag)


def _details(place: Place, viewer: Viewer, found: Known[_Read], dag: str | None) -> TableDetails:
    info, read = found.value.info, found.value
    descriptor, path = info.descriptor, info.path
    newest = place.reader.seen.tables.get(path)
    is_newer = (
        newest is not None
        and info.datalake_enabled
        and newest.status.table_id == info.table_id
        and newest.status_read_ms >= read.seen.status_read_ms
    )
    seen = newest if newest is not None and is_newer else read.seen
    judged = judge(seen, place.clock.now_ms(), dag)
    return TableDetails(
        table=_shown_table(place, viewer, judged),
        old=found.old,
        is_tiered=info.datalake_enabled,
        how_to_enable=None if info.datalake_enabled else how_to_enable(path),
        has_primary_key=info.has_primary_key,
        primary_key=list(info.schema.primary_key),
        partition_keys=list(descriptor.partition_keys),
        bucket_count=info.bucket_count,
        bucket_keys=list(descriptor.bucket_keys),
        freshness_ms=freshness_ms(descriptor.properties),
        created_ms=info.created_ms,
        columns=[
            Column(name=one.name, type=str(one.data_type), comment=masked_or_none(one.comment))
            for one in info.schema.columns
        ],
        properties={
            line(name): "***" if is_secret_name(name) else masked(value)
            for name, value in sorted(
                {**descriptor.properties, **descriptor.custom_properties}.items()
            )
        },
        damage=list(read.damage),
        links=place.table_links(path),
    )


def _shown_table(place: Place, viewer: Viewer, judged: Judged) -> Table:
    [table] = shown_tables(place, viewer, [judged], [()])
    return table


@table_reads.get("/splits")
def splits(
    place: AtPlace,
    calls: ByCalls,
    database: str,
    table: str,
    offset: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=SPLITS_MAX)] = 100,
) -> Splits:
    """The buckets of a table, the largest lag first; of many partitions, the newest first."""
    path = TablePath(database, table)

    def read(client: Client) -> tuple[FoundSplits, int]:
        read_ms = place.clock.now_ms()
        return read_splits(client, path, offset, limit), read_ms

    with _named(path):
        known = calls.read(
            What("splits", path, limit),
            read,
            is_kept=offset == 0,
            shared_ms=SPLITS_SHARED_MS,
            splits=lambda found: len(found[0].splits),
        )
    found, read_ms = known.value
    snapshot_id = found.lake_snapshot_id
    return Splits(
        now_ms=place.clock.now_ms(),
        read_ms=read_ms,
        old=None if known.old is None else known.old.model_copy(update={"read_ms": read_ms}),
        lake_snapshot_id=None if snapshot_id is None else str(snapshot_id),
        total=found.total,
        offset=offset,
        is_by_lag=found.is_by_lag,
        splits=list(found.splits),
    )


@table_reads.get("/snapshots")
def snapshots(place: AtPlace, calls: ByCalls, database: str, table: str) -> LakeSnapshots:
    """The lake snapshots that rounds committed, the newest first."""
    path = TablePath(database, table)

    def read(client: Client) -> tuple[int | None, Sequence[TieringRound]]:
        registered = client.admin.lake_snapshot(path)
        registered_id = None if registered is None else registered.snapshot_id
        return registered_id, client.statuses.history(path, ROUNDS_KEPT)

    with _named(path):
        found = calls.read(What("snapshots", path), read)
    registered_id, rounds = found.value
    return LakeSnapshots(
        now_ms=place.clock.now_ms(),
        old=found.old,
        registered_snapshot_id=None if registered_id is None else str(registered_id),
        snapshots=[
            _snapshot(place, path, each, each.lake_snapshot_id == registered_id)
            for each in _committed(rounds)
        ],
        note=_SNAPSHOTS_NOTE,
    )


_UNREAD: dict[str, Any] = {
    **dict.fromkeys(("primary_key", "partition_keys", "bucket_keys", "columns"), ()),
    "properties": {},
}
"""What is empty in the details of a table whose definition was not read."""


@contextmanager
def _named(path: TablePath) -> Iterator[None]:
    """:raises TableNotExist: no table can have this name, or its database does not exist."""
    try:
        yield
    except (DatabaseNotExist, InvalidDatabase, InvalidTable) as error:
        raise TableNotExist(f"table {path} does not exist: {error.message}") from error


def _seen(place: Place, client: Client, info: TableInfo) -> SeenTable:
    """The table as it was read last; it is read now if that was another table of its name."""
    path = info.path
    seen = place.reader.seen.tables.get(path)
    if seen is not None and seen.status.table_id == info.table_id and info.datalake_enabled:
        return seen
    now_ms = place.clock.now_ms()
    if info.datalake_enabled:
        for status in client.statuses.list(path):
            return SeenTable.reported(status, now_ms)
    # Tiering was just switched on, or is off: nobody has a status of it.
    note = (
        "its tiering was just enabled"
        if info.datalake_enabled
        else f"table {path} is not tiered: {how_to_enable(path)}"
    )
    return SeenTable(TieringStatus(path, info.table_id, UNKNOWN, 0, note=note), now_ms)


def _damage(client: Client, path: TablePath) -> list[str]:
    """What the server's disk has damaged, as `sluice status` says it."""
    try:
        found = client.damage.list(path)
    except AuthorizationError:  # the rest is shown to those who may see only that
        return []
    shown = [masked(f"bucket {one.bucket.name}: {one.refused}") for one in found[:DAMAGE_MAX]]
    more = len(found) - DAMAGE_MAX
    return [*shown, f"and {more} more: `sluice status {path}`"] if more > 0 else shown


def _committed(rounds: Iterable[TieringRound]) -> list[TieringRound]:
    """The rounds that committed a snapshot, the newest first, each snapshot once.

    A round that had landed is told again by a later attempt; the first one wrote the files.

    :param rounds: the newest first.
    """
    found: dict[int, TieringRound] = {}
    for each in rounds:
        if each.lake_snapshot_id is None or each.outcome == _WITHOUT_SNAPSHOT:
            continue
        found.pop(each.lake_snapshot_id, None)
        found[each.lake_snapshot_id] = each
    return list(found.values())


def _snapshot(
    place: Place, path: TablePath, ended: TieringRound, is_registered: bool
) -> LakeSnapshot:
    links = place.round_links(path, ended)
    return LakeSnapshot(
        **recorded_values(ended),
        committed_ms=ended.ended_ms,
        is_registered=is_registered,
        url=next((link.url for link in links if link.name == "Lake table"), None),
    )
