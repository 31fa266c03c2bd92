"""The statuses that rounds recorded, as users see them: with lags, and with what has no leader."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from sluice.client.admin.missing_leaders import TABLES_MAX as LEADERS_OF_MAX
from sluice.client.admin.missing_leaders import Described, never_tiered
from sluice.client.statuses.accesses import StatusEvents
from sluice.client.statuses.lag import LAG_ERRORS, NO_LAG, Lag, read_lags
from sluice.client.statuses.round_table import PATH as ROUNDS_PATH
from sluice.client.statuses.status_table import PATH, StatusTable
from sluice.clock import Clock
from sluice.errors import InvalidConfig, SluiceError
from sluice.masking import mask
from sluice.model import TableInfo, TablePath, TieringRound, TieringStatus
from sluice.statuses import RecordedStatus, freshness_ms, recorded
from sluice.statuses.freshness import DEFAULT_FRESHNESS_MS


class StatusListing:
    """Reads the statuses of one cluster for people. Safe for use by many threads."""

    def __init__(self, table: StatusTable, events: StatusEvents, clock: Clock) -> None:
        self._table, self._events, self._clock = table, events, clock
        self._lags_from = 0

    def list(self, infos: Iterable[TableInfo], *, lags: bool = True) -> list[TieringStatus]:
        """Returns the status of each tiered table of ``infos``, ordered by path.

        :param lags: False leaves lags and lake snapshots out, which are read table by table.

        If the status table cannot be read, states are Unknown, with the reason as their note.
        """
        tiered = sorted((i for i in infos if i.datalake_enabled), key=lambda info: info.path)
        rows: Mapping[int, RecordedStatus] = {}
        unread: str | None = None
        try:
            ids = [info.table_id for info in tiered]
            rows = self._events.bounded(lambda: self._table.read(ids), PATH)
        except SluiceError as error:
            unread = mask(f"table {PATH} cannot be read: {type(error).__name__}: {error}")
        now_ms = self._clock.now_ms()
        suspects = never_tiered(tiered, rows, now_ms) if unread is None else []
        leaderless = self._leaderless(suspects, may_be_missed=True)
        led = [info for info in tiered if info.table_id not in leaderless]
        found_lags = self._lags(led) if lags else {}
        if lags:  # of tables that were tiered before, only a lag that cannot be read tells it
            unknown = [i for i in led if found_lags.get(i.table_id, NO_LAG).rows is None]
            leaderless |= self._leaderless(unknown[:LEADERS_OF_MAX], may_be_missed=False)
        found = []
        for info in tiered:
            row, freshness_ms = rows.get(info.table_id), described_freshness_ms(info)
            lag = found_lags.get(info.table_id, Lag())
            missing = leaderless.get(info.table_id)
            status = shown_status(
                info.path, info.table_id, freshness_ms, row, now_ms, unread, lag, missing
            )
            found.append(status)
        return found

    def _leaderless(self, infos: Sequence[Described], *, may_be_missed: bool) -> dict[int, str]:
        """What is missing, by the id of each table without a leader, as far as it can be read."""
        found: dict[int, str] = {}
        if infos:
            with suppress(SluiceError):
                read = partial(self._table.without_leaders, infos, may_be_missed)
                found = self._events.bounded(lambda: read(self._events.is_late), PATH)
        return found

    def _lags(self, infos: Sequence[TableInfo]) -> Mapping[int, Lag]:
        """Returns the lags that can be read in time. The next call begins with the others."""
        at = self._lags_from % max(len(infos), 1)
        turn = [*infos[at:], *infos[:at]]
        found: dict[int, Lag] = {}
        with suppress(*LAG_ERRORS):
            self._events.bounded(
                lambda: read_lags(self._table, turn, self._clock, found, self._events.is_late), PATH
            )
        found = dict(found)
        self._lags_from = at + len(found) if len(found) < len(turn) else 0
        return found

    def rounds(self, table_id: int, limit: int) -> Sequence[TieringRound]:
        """Returns the newest rounds of a table, the newest first.

        :raises FlussError: the table of rounds cannot be read.
        """
        read = partial(self._table.rounds.newest, table_id, limit)
        return self._events.bounded(read, ROUNDS_PATH)


def shown_status(
    path: TablePath,
    table_id: int,
    freshness_ms: int,
    row: RecordedStatus | None,
    now_ms: int,
    unread: str | None = None,
    lag: Lag = NO_LAG,
    no_leader: str | None = None,
) -> TieringStatus:
    """The status of a table by its row.

    :param unread: why the row could not be read. :param no_leader: which buckets have no leader.
    """
    status = recorded.status_of(path, table_id, freshness_ms, row, now_ms)
    if no_leader is not None:
        status = replace(status, note=no_leader)
    if unread is not None:
        status = replace(status, failures=None, paused=None, rounds=None, note=unread)
    return replace(status, lag_rows=lag.rows, lag_ms=lag.ms, lake_snapshot_id=lag.lake_snapshot_id)


def described_freshness_ms(info: TableInfo) -> int:
    try:
        return freshness_ms(info.descriptor.properties)
    except InvalidConfig:
        return DEFAULT_FRESHNESS_MS
