"""Which tables have buckets without a leader, and what to do about it, for all commands.

Fluss 0.9.1 may miss a new table (docs/fluss/known-problems.md#tables-missed). Such a table looks
like one that nobody has tiered yet: it has a description, and no error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from sluice.client.connection import Connection
from sluice.client.heartbeat_entries import entry_of, error_of
from sluice.errors import (
    FlussError,
    LeaderNotAvailable,
    NetworkError,
    RequestTimeOut,
    TableNotExist,
)
from sluice.model import Claim, TableInfo, TablePath
from sluice.model.tiering import NO_LEADER
from sluice.quantities import counted
from sluice.statuses import RecordedStatus
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb


class Described(Protocol):
    """What is needed of a table's description."""

    @property
    def path(self) -> TablePath: ...
    @property
    def table_id(self) -> int: ...
    @property
    def is_partitioned(self) -> bool: ...
    @property
    def created_ms(self) -> int: ...


TABLES_MAX = 200
"""Most tables of one metadata request."""
ELECTED_WITHIN_S = 10.0
"""A coordinator elects the leaders of a new table within this time; most often in milliseconds."""
_POLL_S = 0.2
_SHOWN_MAX = 3


def tables_without_leaders(
    connection: Connection, infos: Sequence[Described], is_late: Callable[[], bool] = lambda: False
) -> dict[int, str]:
    """What is missing, and the next step, by the id of each table that has no leader.

    One call for 200 tables. The buckets of partitions are not looked at: of a partitioned table,
    the coordinator is asked whether it knows it at all.

    The embedded server misses no table and is not asked.

    :param infos: tables, of which the partitioned ones are tiered.
    :param is_late: whether to stop.
    :raises NetworkError, RequestTimeOut: the cluster does not answer.
    """
    found: dict[int, str] = {}
    if not infos or connection.coordinator_offers(apis.LIST_TIERING_STATUSES):
        return found
    plain = [info for info in infos if not info.is_partitioned]
    for at in range(0, len(plain), TABLES_MAX):
        if not is_late():
            found |= _without_leaders(connection, plain[at : at + TABLES_MAX])
    tiered = [info for info in infos if info.is_partitioned]
    for at in range(0, len(tiered), TABLES_MAX):
        if not is_late():
            found |= _unknown(connection, tiered[at : at + TABLES_MAX])
    return found


def never_tiered(
    infos: Iterable[Described], rows: Mapping[int, RecordedStatus], now_ms: int
) -> list[Described]:
    """The tables that may have been missed: no round has tiered them, and they are not just made.

    :param rows: what is recorded of them, by table id. :param now_ms: epoch milliseconds.
    """
    return [
        info
        for info in infos
        if ((row := rows.get(info.table_id)) is None or row.last_tiered_ms is None)
        and abs(now_ms - info.created_ms) >= ELECTED_WITHIN_S * 1000
    ]


def await_leaders(
    connection: Connection,
    info: TableInfo,
    wait_s: float = ELECTED_WITHIN_S,
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """Waits until a new table has its leaders.

    A partitioned table that is not tiered is not looked at: nothing tells whether it was missed.

    :raises LeaderNotAvailable: it has none after this time; says what to do.
    """
    if info.is_partitioned and not info.datalake_enabled:
        return
    until_s = time.monotonic() + wait_s
    while missing := tables_without_leaders(connection, [info]):
        if time.monotonic() >= until_s:
            raise LeaderNotAvailable(
                f"table {info.path} exists, but cannot be written or tiered:"
                f" {missing[info.table_id]}. Create no partition of it before. Then"
                f" `sluice status {info.path}` shows no such line any more"
            )
        sleep(_POLL_S)


def missed(path: TablePath) -> str:
    """Of a table that the coordinator does not know."""
    return (
        f"{NO_LEADER}Fluss's coordinator has missed the creation of table {path}. Restart the"
        " coordinator"
    )


def _without_leaders(connection: Connection, infos: Sequence[Described]) -> dict[int, str]:
    try:
        reply = connection.describe_tables([info.path for info in infos])
    except (NetworkError, RequestTimeOut):
        raise
    except FlussError:  # one of them was dropped, which fails the call for all
        if len(infos) < 2:
            return {}
        half = len(infos) // 2
        return _without_leaders(connection, infos[:half]) | _without_leaders(
            connection, infos[half:]
        )
    alive = {node.node_id for node in reply.tablet_servers}
    wanted = {info.table_id: info.path for info in infos}
    found = {}
    for table in reply.table_metadata:
        led = [b for b in table.bucket_metadata if b.HasField("leader_id") and b.leader_id in alive]
        lost = [bucket for bucket in table.bucket_metadata if bucket not in led]
        if lost and table.table_id in wanted:
            found[table.table_id] = _words(wanted[table.table_id], lost, alive)
    return found


def _words(path: TablePath, buckets: Sequence[Any], alive: Iterable[int]) -> str:
    """:param buckets: entries of the metadata without a leader. :param alive: tablet servers."""
    numbers = sorted(bucket.bucket_id for bucket in buckets)
    shown = ", ".join(map(str, numbers[:_SHOWN_MAX]))
    more = f" and {len(numbers) - _SHOWN_MAX} more" if len(numbers) > _SHOWN_MAX else ""
    which = f"{'bucket' if len(numbers) == 1 else 'buckets'} {shown}{more} of table {path}"
    dead = sorted({number for bucket in buckets for number in bucket.replica_id} - {*alive})
    if dead:
        count = counted(len(dead), "tablet server")
        ids = ", ".join(map(str, dead))
        return f"{NO_LEADER}{which}: {count} of it does not run (id {ids}). Start it"
    return (
        f"{NO_LEADER}{which}, although the tablet servers run: Fluss's coordinator has missed the"
        " table. Restart the coordinator"
    )


def _unknown(connection: Connection, infos: Sequence[Described]) -> dict[int, str]:
    """Tiered tables that the coordinator does not know.

    They are asked for under epoch 0, which no claim has, so that no claim is prolonged.
    """
    nothing = pb.LakeTieringHeartbeatRequest()
    epoch = _heartbeat(connection, nothing).coordinator_epoch
    claims = [Claim(info.table_id, info.path, 0, epoch) for info in infos]
    reply = _heartbeat(
        connection, pb.LakeTieringHeartbeatRequest(tiering_tables=[entry_of(c) for c in claims])
    )
    paths = {info.table_id: info.path for info in infos}
    return {
        entry.table_id: missed(paths[entry.table_id])
        for entry in reply.tiering_table_resp
        if entry.table_id in paths and isinstance(error_of(entry), TableNotExist)
    }


def _heartbeat(
    connection: Connection, request: pb.LakeTieringHeartbeatRequest
) -> pb.LakeTieringHeartbeatResponse:
    reply: pb.LakeTieringHeartbeatResponse = connection.call_coordinator(
        apis.LAKE_TIERING_HEARTBEAT, request, lambda reply: reply, idempotent=True
    )
    return reply
