"""Which tables have buckets without a leader, and what to do about it, for all commands.

Fluss 0.9.1 may miss a new table (docs/fluss/known-problems.md#tables-missed). Such a table looks
like one that nobody has tiered yet: it has a description, and no error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from sluice.client.connection.connection import Connection
from sluice.client.connection.heartbeat_entries import entry_of, error_of
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
    def bucket_count(self) -> int: ...
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
_IF_IT_STAYS = "If it stays so for a minute, restart the coordinator"


@dataclass(frozen=True, slots=True)
class Lack:
    """The buckets of a table that have no leader, as one look shows them.

    Such a look cannot tell a missed table from an election, which ends by itself.
    """

    path: TablePath
    buckets: Sequence[int]
    """Their numbers, sorted. Empty: the coordinator does not know the partitioned table."""
    dead: Sequence[int] = ()
    """Ids of the tablet servers of these buckets that do not run."""
    has_leaders: bool = False
    """Whether other buckets have a leader, so that the coordinator knows the table."""

    @property
    def may_be_missed(self) -> bool:
        return not self.dead and not self.has_leaders

    def words(self, is_missed: bool) -> str:
        """What is missing, and the next step.

        :param is_missed: the coordinator has missed the table for certain.
        """
        if not self.buckets:
            return unknown(self.path, is_missed)
        shown = ", ".join(map(str, self.buckets[:_SHOWN_MAX]))
        left = len(self.buckets) - _SHOWN_MAX
        more = f" and {left} more" if left > 0 else ""
        noun = "bucket" if len(self.buckets) == 1 else "buckets"
        which = f"{NO_LEADER}{noun} {shown}{more} of table {self.path}"
        if self.dead:
            count = counted(len(self.dead), "tablet server")
            ids = ", ".join(map(str, self.dead))
            return f"{which}: {count} of it does not run (id {ids}). Start it"
        if is_missed:
            return (
                f"{which}, although the tablet servers run: Fluss's coordinator has missed the"
                " table. Restart the coordinator"
            )
        return f"{which} now, as while a tablet server restarts. {_IF_IT_STAYS}"


def tables_without_leaders(
    connection: Connection,
    infos: Sequence[Described],
    *,
    may_be_missed: bool,
    is_late: Callable[[], bool] = lambda: False,
) -> dict[int, str]:
    """What is missing, and the next step, by the id of each table that has no leader.

    One call for 200 tables, and two more if they may be missed. A missed table is one without any
    leader that the coordinator does not know: it knows each tiered table that was not missed, also
    during an election. The buckets of partitions are not looked at.

    The embedded server misses no table and is not asked.

    :param infos: tiered tables.
    :param may_be_missed: they are what :func:`never_tiered` returns; False: none of them is.
    :param is_late: whether to stop.
    :raises NetworkError, RequestTimeOut: the cluster does not answer.
    """
    if not infos or not _misses_tables(connection):
        return {}
    plain = [info for info in infos if not info.is_partitioned]
    found: dict[int, Lack] = {}
    for at in range(0, len(plain), TABLES_MAX):
        if not is_late():
            found |= _lacks(connection, plain[at : at + TABLES_MAX])
    doubtful = [
        info
        for info in (infos if may_be_missed else ())
        if info.is_partitioned
        or ((lack := found.get(info.table_id)) is not None and lack.may_be_missed)
    ]
    missed: set[int] = set()
    for at in range(0, len(doubtful), TABLES_MAX):
        if not is_late():
            missed |= _unknown(connection, doubtful[at : at + TABLES_MAX])
    found |= {
        info.table_id: Lack(info.path, ())
        for info in doubtful
        if info.is_partitioned and info.table_id in missed
    }
    return {table_id: lack.words(table_id in missed) for table_id, lack in found.items()}


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
        and is_elected(info.created_ms, now_ms)
    ]


def is_elected(created_ms: int, now_ms: int) -> bool:
    """Whether a table made then must have leaders by now. Times are epoch milliseconds."""
    return abs(now_ms - created_ms) >= ELECTED_WITHIN_S * 1000


def await_leaders(
    connection: Connection,
    info: TableInfo,
    *,
    is_new: bool = True,
    wait_s: float = ELECTED_WITHIN_S,
    sleep: Callable[[float], object] = time.sleep,
) -> str | None:
    """Waits until a table has its leaders.

    A partitioned table that is not tiered is not looked at: nothing tells whether it was missed.

    :param is_new: it was created just now, so that no tablet server of it restarts.
    :return: what is missing after this time, and the next step; None: nothing.
    :raises LeaderNotAvailable: the table is new, or was missed.
    """
    if (info.is_partitioned and not info.datalake_enabled) or not _misses_tables(connection):
        return None
    until_s = time.monotonic() + wait_s
    while (lack := _lack_of(connection, info)) is not None:
        if time.monotonic() >= until_s:
            break
        sleep(_POLL_S)
    if lack is None:
        return None
    is_missed = lack.may_be_missed and (
        bool(_unknown(connection, [info])) if info.datalake_enabled else is_new
    )
    words = lack.words(is_missed)
    if is_new or is_missed:
        raise LeaderNotAvailable(
            f"table {info.path} exists, but cannot be written or tiered: {words}. The same command"
            " with --if-not-exists looks again"
        )
    return words


def unknown(path: TablePath, is_missed: bool) -> str:
    """Of a table that the coordinator does not know.

    :param is_missed: the table is not new, so that the coordinator will not learn of it.
    """
    if is_missed:
        return (
            f"{NO_LEADER}Fluss's coordinator has missed the creation of table {path}. Restart the"
            " coordinator, and create no partition of the table before"
        )
    return f"{NO_LEADER}Fluss's coordinator does not know table {path} yet. {_IF_IT_STAYS}"


def _misses_tables(connection: Connection) -> bool:
    return not connection.coordinator_offers(apis.LIST_TIERING_STATUSES)


def _lack_of(connection: Connection, info: TableInfo) -> Lack | None:
    """What is missing of one table; all of it, if its metadata has not reached the server yet."""
    if info.is_partitioned:
        return Lack(info.path, ()) if _unknown(connection, [info]) else None
    try:
        return _lacks_in(connection, [info]).get(info.table_id)
    except TableNotExist:
        return Lack(info.path, range(info.bucket_count))


def _lacks(connection: Connection, infos: Sequence[Described]) -> dict[int, Lack]:
    try:
        return _lacks_in(connection, infos)
    except (NetworkError, RequestTimeOut):
        raise
    except FlussError:  # one of them was dropped, which fails the call for all
        if len(infos) < 2:
            return {}
        half = len(infos) // 2
        return _lacks(connection, infos[:half]) | _lacks(connection, infos[half:])


def _lacks_in(connection: Connection, infos: Sequence[Described]) -> dict[int, Lack]:
    """:raises FlussError: for all of them, if one of them does not exist."""
    reply = connection.describe_tables([info.path for info in infos])
    alive = {node.node_id for node in reply.tablet_servers}
    wanted = {info.table_id: info.path for info in infos}
    found = {}
    for table in reply.table_metadata:
        led = [b for b in table.bucket_metadata if b.HasField("leader_id") and b.leader_id in alive]
        lost = [bucket for bucket in table.bucket_metadata if bucket not in led]
        if lost and table.table_id in wanted:
            found[table.table_id] = Lack(
                wanted[table.table_id],
                sorted(bucket.bucket_id for bucket in lost),
                sorted({number for bucket in lost for number in bucket.replica_id} - alive),
                has_leaders=bool(led),
            )
    return found


def _unknown(connection: Connection, infos: Sequence[Described]) -> set[int]:
    """The ids of the tiered tables that the coordinator does not know.

    They are asked for under epoch 0, which no claim has, so that no claim is prolonged.
    """
    ask = partial(connection.ask_coordinator, apis.LAKE_TIERING_HEARTBEAT, idempotent=True)
    epoch = ask(pb.LakeTieringHeartbeatRequest()).coordinator_epoch
    claims = [Claim(info.table_id, info.path, 0, epoch) for info in infos]
    reply = ask(pb.LakeTieringHeartbeatRequest(tiering_tables=[entry_of(c) for c in claims]))
    ids = {info.table_id for info in infos}
    return {
        entry.table_id
        for entry in reply.tiering_table_resp
        if entry.table_id in ids and isinstance(error_of(entry), TableNotExist)
    }
