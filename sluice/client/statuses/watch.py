"""Reads the statuses of very many tables again and again, in small steps that can be stopped.

:class:`StatusClient` answers one question at once. A page or an exporter that watches a cluster
needs other things: no step that takes long, no wait for a table without a leader, and an end within
a second.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from sluice.client.admin.admin import Admin
from sluice.client.admin.missing_leaders import never_tiered, tables_without_leaders
from sluice.client.connection.connection import Connection
from sluice.client.connection.retry import interruptible_sleep
from sluice.client.statuses.coordinator import rounds_of_coordinator, statuses_of_coordinator
from sluice.client.statuses.lag import Lag, aged, rows_behind
from sluice.client.statuses.listing import described_freshness_ms, shown_status
from sluice.client.statuses.status_table import PATH, StatusTable
from sluice.clock import Clock, SystemClock
from sluice.config import ClientConfig
from sluice.errors import (
    FlussError,
    LeaderNotAvailable,
    NetworkError,
    RequestTimeOut,
    SluiceError,
    TableNotExist,
)
from sluice.masking import mask
from sluice.model import TableBucket, TableInfo, TablePath, TieringRound, TieringStatus
from sluice.statuses import RecordedStatus
from sluice.wire import apis

CALL_MS = 5_000
"""Longest wait for one answer."""
RETRY_MS = 1_000
"""Longest time for the retries of one call. A later pass tries again anyway."""
DESCRIBED_MAX = 200
"""Tables of one step: Apache Fluss describes them in about 50 ms."""


@dataclass(frozen=True, slots=True)
class WatchedTable:
    """What later steps need of a table's description, which may be large."""

    path: TablePath
    table_id: int
    is_tiered: bool
    freshness_ms: int
    bucket_count: int
    is_partitioned: bool
    created_ms: int


class StatusWatch:
    """Steps of a watch over one cluster, on connections of its own. Safe for use by many threads.

    Each step is a few calls, and each call has a deadline. Nothing is sent before the first one.
    """

    def __init__(self, config: ClientConfig, clock: Clock | None = None) -> None:
        """:param config: its time-outs are shortened."""
        self._stopped = threading.Event()
        self._clock = clock or SystemClock()
        short = replace(
            config,
            request_timeout_ms=min(config.request_timeout_ms, CALL_MS),
            retry_timeout_ms=min(config.retry_timeout_ms, RETRY_MS),
            connect_timeout_ms=min(config.connect_timeout_ms, RETRY_MS),
        )
        sleep = interruptible_sleep(self._stopped, "the watch over the cluster")
        self._connection = Connection(short, sleep=sleep)
        self._admin = Admin(self._connection)
        self._table = StatusTable(short, sleep)

    def close(self) -> None:
        """Ends steps that are under way with NetworkError."""
        self._stopped.set()
        self._connection.close()
        self._table.close()

    # ---- the embedded server ----

    def keeps_statuses(self) -> bool:
        """Whether the coordinator reports statuses; an Apache Fluss coordinator does not."""
        return self._connection.coordinator_offers(apis.LIST_TIERING_STATUSES)

    def reported(self, path: TablePath | None = None) -> list[TieringStatus]:
        """The statuses that the coordinator reports, with lags, of one table or of all.

        :raises UnsupportedVersion: it reports none.
        """
        return statuses_of_coordinator(self._connection, path)

    def reported_rounds(self, path: TablePath, limit: int) -> list[TieringRound]:
        """The newest rounds of a table that the coordinator reports, the newest first."""
        return rounds_of_coordinator(self._connection, path, limit)

    # ---- Apache Fluss ----

    def paths(self) -> list[TablePath]:
        """The paths of all tables, tiered or not."""
        return self._admin.all_tables()

    def described(self, paths: Sequence[TablePath]) -> dict[TablePath, WatchedTable]:
        """Those tables that can be described; learns the leaders of their buckets, too.

        :param paths: at most ``DESCRIBED_MAX``.
        :raises NetworkError, RequestTimeOut: the cluster does not answer.
        """
        try:
            infos = self._admin.table_infos(paths)
        except (NetworkError, RequestTimeOut):
            raise
        except FlussError:  # one of them was dropped, or has a descriptor of a newer version
            infos = self._admin.known_infos(paths)
        return {path: _watched(info) for path, info in infos.items()}

    def recorded(
        self, tables: Sequence[WatchedTable], unread: str | None = None
    ) -> list[TieringStatus]:
        """The statuses that rounds recorded of these tables, without lags.

        If the status table cannot be read, they are unread: see ``TieringStatus.is_unread``.

        :param unread: why the status table cannot be read now; then it is not asked.
        """
        rows: Mapping[int, RecordedStatus] = {}
        if unread is None:
            try:
                rows = self._table.read([table.table_id for table in tables])
            except SluiceError as error:
                unread = mask(f"table {PATH} cannot be read: {type(error).__name__}: {error}")
        now_ms = self._clock.now_ms()
        leaderless: Mapping[int, str] = {}
        if unread is None:
            with suppress(SluiceError):  # a later pass sees it
                leaderless = tables_without_leaders(
                    self._connection, never_tiered(tables, rows, now_ms), may_be_missed=True
                )
        return [
            shown_status(
                table.path,
                table.table_id,
                table.freshness_ms,
                rows.get(table.table_id),
                now_ms,
                unread,
                no_leader=leaderless.get(table.table_id),
            )
            for table in tables
        ]

    def lag(self, table: WatchedTable) -> Lag:
        """How far the lake is behind the logs of a table: two calls, more with rows or partitions.

        Without the age if only that cannot be read, as in :func:`read_lags`.

        :raises FlussError: it cannot be read now, for example because a bucket has no leader.
        """
        found: dict[int, Lag] = {}
        self._learn_leaders(table)
        begins = rows_behind(self._admin, table, found)
        lag = found[table.table_id]
        if not begins:
            return lag
        info = self._admin.table_info(table.path)
        if info.table_id != table.table_id:
            raise TableNotExist(f"table {table.path} (id {table.table_id}) was dropped")
        return aged(lag, self._table, info, begins, self._clock)

    def _learn_leaders(self, table: WatchedTable) -> None:
        """Fails at once where a bucket has no leader: a call to it would be retried."""
        if table.is_partitioned:
            return  # partitions are many, and their leaders are looked up as they are read
        for number in range(table.bucket_count):
            bucket = TableBucket(table.table_id, None, number)
            if self._connection.known_leader(bucket) is None:
                try:
                    self._connection.leader(table.path, bucket)
                except LeaderNotAvailable as error:
                    error.details["final"] = True
                    raise

    def recorded_rounds(
        self, rounds: Mapping[int, int], limit: int
    ) -> dict[int, list[TieringRound]]:
        """The newest rounds of several tables by one read, the newest first.

        :param rounds: the number of the newest round of each table, by table id.
        """
        return self._table.rounds.newest_of(rounds, limit)

    def recorded_history(self, table_id: int, limit: int) -> list[TieringRound]:
        """The newest rounds of one table that rounds recorded, the newest first."""
        return self._table.rounds.newest(table_id, limit)


def _watched(info: TableInfo) -> WatchedTable:
    return WatchedTable(
        info.path,
        info.table_id,
        info.datalake_enabled,
        described_freshness_ms(info),
        info.bucket_count,
        info.is_partitioned,
        info.created_ms,
    )
