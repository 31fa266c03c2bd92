"""What a round builds on: the lake table, its newest tiering snapshot, and what Fluss has of it."""

from __future__ import annotations

from dataclasses import dataclass

from sluice.errors import LakeCommitRefused
from sluice.iceberg_rules.layout import new_layout
from sluice.iceberg_rules.names_and_types import cautions
from sluice.model import LakeSnapshotInfo, TableInfo
from sluice.rounds.commit.recover import move_tag, register_unknown, table_missing
from sluice.rounds.plan.bucket_counts import check_partitions
from sluice.rounds.plan.named_lake import lake_place, other_lake_note
from sluice.rounds.values.attempt import Attempt
from sluice.rounds.values.ports import LakeTable
from sluice.rounds.values.types import LakeSnapshot

_REGISTRATIONS_MAX = 5
"""How many times a round registers the newest tiering snapshot before it fails."""


@dataclass(frozen=True, slots=True)
class Base:
    """What a round builds on."""

    table: LakeTable
    snapshot: LakeSnapshot | None
    """The newest tiering snapshot."""
    registered: LakeSnapshotInfo | None
    """What Fluss has registered of it."""


def base_of(attempt: Attempt, info: TableInfo) -> Base:
    """The base of an ordinary round. A lake table that was never there is created.

    :raises LakeTableMissing: Fluss has registered a snapshot, and the lake has no table.
    :raises LakeError: see :func:`agreed`.
    """
    lake, path = attempt.ports.lake, attempt.claim.path
    registered = attempt.cluster.lake_snapshot(path)
    if registered is None and (note := other_lake_note(info, lake)):
        attempt.notes.append(note)
    table = lake.load(path)
    if table is None:
        if registered is not None:
            raise table_missing(path, registered, lake_place(info, lake))
        table = created(attempt, info)
    attempt.notes += table.add_missing_columns(info, as_read=True)
    return agreed(attempt, table, registered, as_read=True)


def created(attempt: Attempt, info: TableInfo) -> LakeTable:
    """Creates the lake table, with the layout that lake, server or version say."""
    lake, cluster = attempt.ports.lake, attempt.cluster
    check_partitions(info, cluster)
    layout = new_layout(info, lake.options, cluster.lake_layout)
    attempt.notes += cautions(info, layout)
    return lake.create(info, layout)


def agreed(
    attempt: Attempt,
    table: LakeTable,
    registered: LakeSnapshotInfo | None,
    *,
    as_read: bool = False,
) -> Base:
    """The base where lake and Fluss name the same snapshot, or both none.

    After a registration, the registered snapshot is read and compared again. Apache Fluss accepts
    the commit of an older round however late it arrives, and the offsets of that round would make
    this one copy rows twice.

    :param registered: was read before the tiering snapshot, so it cannot be newer.
    :param as_read: the table was loaded after that.
    :raises LakeCommitRefused: Fluss reports another snapshot each time.
    """
    path = attempt.claim.path
    for number in range(_REGISTRATIONS_MAX):
        ours = table.newest_tiering_snapshot(as_read=as_read and number == 0)
        recovered = register_unknown(attempt.claim, attempt.cluster, table, ours, registered)
        if ours is None or recovered is None:
            return Base(table, ours, registered)
        attempt.recovered_snapshot_id = recovered
        attempt.notes += move_tag(table, ours)
        registered = attempt.cluster.lake_snapshot(path)
    raise LakeCommitRefused(
        f"table {path}: lake snapshot {attempt.recovered_snapshot_id} was registered with Fluss"
        f" {_REGISTRATIONS_MAX} times, and each time an older round registered another one."
        " Nothing was committed. End the drivers of older rounds"
    )
