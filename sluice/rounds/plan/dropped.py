"""Tables and partitions that are dropped while a round runs.

Only the coordinator's answer counts. A tablet server that does not know a partition may be one that
has just started.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from sluice.errors import (
    ClaimLost,
    DatabaseNotExist,
    FlussError,
    NetworkError,
    RequestTimeOut,
    SluiceError,
    TableNotExist,
)
from sluice.model import Claim, TableInfo, TablePath
from sluice.rounds.values.note_lists import capped, first_of
from sluice.rounds.values.ports import Cluster
from sluice.rounds.values.types import Split, StartMode

T = TypeVar("T")


def is_unanswered(error: FlussError) -> bool:
    """Whether the cluster did not answer, so that another question would only cost time."""
    return isinstance(error, (NetworkError, RequestTimeOut))


def existing_table(cluster: Cluster, path: TablePath, table_id: int) -> TableInfo:
    """The table as it is now.

    :raises ClaimLost: it was dropped, or dropped and created again.
    """
    try:
        info = cluster.table_info(path)
    except (TableNotExist, DatabaseNotExist):
        raise ClaimLost(f"table {path} with id {table_id} was dropped") from None
    if info.table_id != table_id:
        raise ClaimLost(
            f"table {path} with id {table_id} was dropped and created again with id {info.table_id}"
        )
    return info


def table_dropped(error: BaseException, cluster: Cluster, claim: Claim) -> str:
    """How the claimed table was dropped, if that may have caused an error of Fluss.

    Empty if the table exists, or if the coordinator does not answer.
    """
    if not isinstance(error, FlussError) or is_unanswered(error):
        return ""
    return how_dropped(cluster, claim)


def how_dropped(cluster: Cluster, claim: Claim) -> str:
    """How the claimed table was dropped; empty if it exists or the coordinator does not answer."""
    try:
        existing_table(cluster, claim.path, claim.table_id)
    except ClaimLost as lost:
        return str(lost)
    except SluiceError:
        return ""
    return ""


def dropped_of(partition_ids: Iterable[int | None], info: TableInfo, cluster: Cluster) -> set[int]:
    """Those of the partitions that no longer exist.

    :raises ClaimLost: the table was dropped.
    """
    asked = {number for number in partition_ids if number is not None}
    there = {p.partition_id for p in cluster.partitions(info.path)} if asked else set()
    # After the list: a table that exists now existed then, so the list is of this table.
    existing_table(cluster, info.path, info.table_id)
    return asked - there


def again_if_dropped(info: TableInfo, cluster: Cluster, work: Callable[[], T]) -> T:
    """Repeats work that lists the partitions and failed because one of them was dropped.

    :raises ClaimLost: the table was dropped.
    """
    while True:
        before = {p.partition_id for p in cluster.partitions(info.path)}
        try:
            return work()
        except FlussError as error:
            if is_unanswered(error) or not dropped_of(before, info, cluster):
                raise


def not_tiered(splits: Sequence[Split]) -> list[str]:
    """Notes that name the offsets of splits whose partitions were dropped, by partition."""
    by_partition: dict[int | None, list[Split]] = {}
    for split in splits:
        by_partition.setdefault(split.bucket.partition_id, []).append(split)
    return capped(
        [
            f"partition {'/'.join(found[0].partition_values)} (id {number}) was dropped during the"
            f" round: {first_of([_offsets(split) for split in found])} were not tiered"
            for number, found in by_partition.items()
        ]
    )


def _offsets(split: Split) -> str:
    bucket, start, stop = split.bucket.bucket, split.start_offset, split.stop_offset
    begins = split.keyed is not None and split.keyed.start_mode is not StartMode.INCREMENTAL
    if begins or start < 0:  # the bucket was never tiered
        return f"bucket {bucket} offsets below {stop}"
    return f"bucket {bucket} offsets [{start}, {stop})"
