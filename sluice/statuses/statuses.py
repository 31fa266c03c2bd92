"""All lake tables of a coordinator: who waits, who is being tiered, under which epoch.

Differences from Fluss, each on purpose: an epoch never goes back (the caller stores what
:attr:`TieringStatuses.changed` names, and gives it again at start); a repeated or late ``failed``
or ``finished`` for a table that is not being tiered changes nothing; freshness runs on from the
last round when the coordinator starts again; a failure's reason is kept until the next success; a
table that fails waits before it is tried again, longer with each failure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

from sluice.errors import (
    FencedTieringEpoch,
    InvalidCoordinator,
    TableNotExist,
    UnknownServerError,
)
from sluice.model import TablePath
from sluice.statuses.moves import State, TableStatus, may_enter

ERROR_CHARS_MAX = 4_096
"""Longest reason that is kept of a failure."""

BACKOFF_MS = 10_000
"""How long a table waits after its first failure; twice as long after each further one."""

BACKOFF_MAX_MS = 300_000
"""The wait grows up to this, or up to the table's freshness if that is more."""


@dataclass(frozen=True, slots=True)
class RoundEnd:
    """A round that has ended: of which table, how, and how long it had been handed out."""

    path: TablePath
    succeeded: bool
    round_ms: int


class TieringStatuses:
    """The states of all lake tables. Not thread-safe: its owner holds a lock, or a copy.

    ``changed`` collects the ids of tables whose stored part (epoch, times, error, statistics) has
    changed since this copy was made, ``ended`` the rounds that have ended since.
    """

    def __init__(
        self, coordinator_epoch: int, timeout_ms: int, backoff_ms: int = BACKOFF_MS
    ) -> None:
        """:param timeout_ms: silence after which a worker is taken for lost.
        :param backoff_ms: how long a table waits after its first failure; 0: never, as in Fluss.
        """
        self.coordinator_epoch = coordinator_epoch
        self.changed: set[int] = set()
        self.ended: list[RoundEnd] = []
        self._timeout_ms = timeout_ms
        self._backoff_ms = backoff_ms
        self._tables: dict[int, TableStatus] = {}
        self._pending: dict[int, None] = {}  # a queue with cheap removal: dicts keep their order

    def copy(self) -> TieringStatuses:
        """An independent draft: change it, store what it says, then put it in this one's place."""
        draft = TieringStatuses(self.coordinator_epoch, self._timeout_ms, self._backoff_ms)
        draft._tables = dict(self._tables)
        draft._pending = dict(self._pending)
        return draft

    # -- which tables there are

    def restore(self, status: TableStatus) -> None:
        """Takes in a table from storage at the coordinator's start: Initialized, then Scheduled.

        Freshness runs on from where it was; a round that was under way is over, since the
        coordinator epoch has risen. A table that was failing is Failed, and waits as before.
        """
        self._tables[status.table_id] = replace(
            status, state=None, heartbeat_ms=None, claimed_ms=None
        )
        self._enter(status.table_id, State.INITIALIZED)
        self._enter(status.table_id, State.FAILED if status.failures else State.SCHEDULED)

    def enable(self, status: TableStatus, now_ms: int, *, at_once: bool = True) -> None:
        """Begins to tier a table, new or enabled again: New, then Scheduled, and due now.

        ``status`` carries the epoch that the table had reached before, so that it never goes back;
        what its rounds came to then counts no more.

        :param at_once: False: its first round waits for its freshness, as in Fluss.
        """
        if status.table_id in self._tables:
            return
        self._tables[status.table_id] = TableStatus(
            status.table_id,
            status.path,
            status.freshness_ms,
            now_ms,
            status.tiering_epoch,
            last_tiered_ms=status.last_tiered_ms,
            file_size=status.file_size,
            record_count=status.record_count,
            next_attempt_ms=now_ms if at_once else None,
            paused=status.paused,
        )
        self._enter(status.table_id, State.NEW)
        self._enter(status.table_id, State.SCHEDULED)

    def forget(self, table_id: int) -> None:
        """Ends the tiering of a table that was dropped or has tiering disabled."""
        self._tables.pop(table_id, None)
        self._pending.pop(table_id, None)

    def set_freshness(self, table_id: int, freshness_ms: int) -> None:
        """A new freshness; it moves the timer of a Scheduled table and of later rounds."""
        if table_id in self._tables:
            self._update(table_id, freshness_ms=freshness_ms)

    # -- what time does

    def has_due(self, now_ms: int) -> bool:
        """Whether :meth:`advance` would change anything."""
        return any(True for _ in self._due(now_ms)) or any(True for _ in self._lost(now_ms))

    def advance(self, now_ms: int) -> list[TableStatus]:
        """Moves what time has moved; answers the tables whose worker was given up.

        A Scheduled table whose freshness has run out, or a Failed one that has waited, becomes
        Pending, the longest overdue first; a Tiering table without a heartbeat for the time-out
        becomes Failed, which ends its round and so fences the lost worker.
        """
        lost = list(self._lost(now_ms))
        for status in lost:
            silent_s = (now_ms - (status.heartbeat_ms or 0)) / 1000
            reason = (
                f"no heartbeat for {silent_s:.0f} s: the worker of tiering epoch"
                f" {status.tiering_epoch} is taken for lost"
            )
            self._fail(status.table_id, reason, now_ms)
        for status in sorted(self._due(now_ms), key=lambda s: (s.due_ms, s.table_id)):
            self._enter(status.table_id, State.PENDING)
        return lost

    def _due(self, now_ms: int) -> Iterable[TableStatus]:
        return (
            status
            for status in self._tables.values()
            if status.state in (State.SCHEDULED, State.FAILED) and status.due_ms <= now_ms
        )

    def _lost(self, now_ms: int) -> Iterable[TableStatus]:
        return (
            status
            for status in self._tables.values()
            if status.heartbeat_ms is not None and now_ms - status.heartbeat_ms >= self._timeout_ms
        )

    # -- what a worker does

    def check(self, table_id: int, coordinator_epoch: int, tiering_epoch: int) -> TableStatus:
        """The table of a round that is still wanted.

        :raises InvalidCoordinator: another coordinator epoch. :raises TableNotExist: dropped, or
            not tiered any more. :raises FencedTieringEpoch: another round was begun.
        """
        if coordinator_epoch != self.coordinator_epoch:
            raise InvalidCoordinator(
                f"table {table_id}: coordinator epoch {coordinator_epoch} is not the current one,"
                f" {self.coordinator_epoch}: the round is void, claim the table again"
            )
        status = self._tables.get(table_id)
        if status is None:
            raise TableNotExist(f"table {table_id} was dropped, or is not tiered any more")
        if tiering_epoch != status.tiering_epoch:
            # "current epoch 3" and "in Pending state": client/due_now.py reads Fluss's words
            raise FencedTieringEpoch(
                f"table {status.path} (id {table_id}): tiering epoch {tiering_epoch} is not the"
                f" current epoch {status.tiering_epoch}: another round was begun"
            )
        return status

    def claim(self, now_ms: int, wanted: Collection[TablePath] | None = None) -> TableStatus | None:
        """Hands out the table that has been Pending longest, of ``wanted`` if that is given."""
        for table_id in self._pending:
            status = self._tables[table_id]
            if not status.paused and (wanted is None or status.path in wanted):
                self._enter(table_id, State.TIERING, heartbeat_ms=now_ms, claimed_ms=now_ms)
                return self._tables[table_id]
        return None

    def heartbeat(
        self, table_id: int, coordinator_epoch: int, tiering_epoch: int, now_ms: int
    ) -> None:
        """Says that a round goes on.

        :raises UnknownServerError: the table is not being tiered (Fluss has no code for this).
            Otherwise as :meth:`check`.
        """
        status = self._check_round(table_id, coordinator_epoch, tiering_epoch)
        if status.state is not State.TIERING:
            raise UnknownServerError(
                f"table {status.path} (id {table_id}) is in {_name(status.state)} state, not"
                " Tiering: it has no round that a heartbeat could keep alive"
            )
        self._tables[table_id] = replace(status, heartbeat_ms=now_ms)

    def finished(
        self,
        table_id: int,
        coordinator_epoch: int,
        tiering_epoch: int,
        now_ms: int,
        *,
        forced: bool = False,
        file_size: int | None = None,
        record_count: int | None = None,
    ) -> bool:
        """Ends a round well; ``forced``: there is more to do, so the table is Pending at once.

        So it is where :meth:`request_round` was asked for meanwhile, and where a forced finish comes after
        the round's own end, as in Fluss. Answers False if this was said before, or the table has no
        round: nothing changes then. Raises as :meth:`check`.
        """
        status = self._check_round(table_id, coordinator_epoch, tiering_epoch)
        if forced and status.state is State.SCHEDULED:
            self._enter(table_id, State.PENDING, next_attempt_ms=now_ms)
            return True
        if status.state is not State.TIERING:
            return False
        claimed_ms = now_ms if status.claimed_ms is None else status.claimed_ms
        asked_ms = status.next_attempt_ms
        forced = forced or (asked_ms is not None and asked_ms > claimed_ms)
        self._enter(
            table_id,
            State.TIERED,
            scheduled_from_ms=now_ms,
            last_tiered_ms=now_ms,
            last_error=None,
            last_error_ms=None,
            failures=0,
            next_attempt_ms=now_ms if forced else None,
            last_round_ms=max(now_ms - claimed_ms, 0),
            file_size=status.file_size if file_size is None else file_size,
            record_count=status.record_count if record_count is None else record_count,
        )
        self._enter(table_id, State.PENDING if forced else State.SCHEDULED)
        self.ended.append(RoundEnd(status.path, True, max(now_ms - claimed_ms, 0)))
        return True

    def failed(
        self,
        table_id: int,
        coordinator_epoch: int,
        tiering_epoch: int,
        now_ms: int,
        reason: str | None = None,
    ) -> bool:
        """Ends a round with a failure: the table is Failed, and Pending once it has waited.

        ``reason`` is None of an old client, which gives none. Answers False if this was said
        before, or the table has no round: nothing changes then. Raises as :meth:`check`.
        """
        status = self._check_round(table_id, coordinator_epoch, tiering_epoch)
        if status.state is not State.TIERING:
            return False
        self._fail(table_id, reason, now_ms)
        return True

    def release(self, table_id: int, coordinator_epoch: int, tiering_epoch: int) -> bool:
        """Takes a claim back that its holder does not want: no failure, the table waits again.

        It waits behind all others, so that nobody keeps them waiting by giving back. Answers False
        if the table has no round. Raises as :meth:`check`.
        """
        status = self._check_round(table_id, coordinator_epoch, tiering_epoch)
        if status.state is not State.TIERING:
            return False
        self._enter(table_id, State.PENDING)
        return True

    def _check_round(
        self, table_id: int, coordinator_epoch: int, tiering_epoch: int
    ) -> TableStatus:
        """As :meth:`check`; the round of a Failed table is over, though its epoch rises later."""
        status = self.check(table_id, coordinator_epoch, tiering_epoch)
        if status.state is State.FAILED:
            raise FencedTieringEpoch(
                f"table {status.path} (id {table_id}): the round of tiering epoch {tiering_epoch}"
                " has failed and is over"
            )
        return status

    # -- what a user wants

    def pause(self, table_id: int, paused: bool) -> None:
        """Hands a table out to nobody, or to workers again. A round under way goes on."""
        if self._tables[table_id].paused != paused:
            self._update(table_id, paused=paused)

    def retry(self, table_id: int, now_ms: int) -> None:
        """Forgets the failures of a table; one that is Failed is due now. Its error stays."""
        status = self._tables[table_id]
        if status.failures:
            waits = status.state is State.FAILED
            due_ms = now_ms if waits else status.next_attempt_ms
            self._update(table_id, failures=0, next_attempt_ms=due_ms)

    def request_round(self, table_id: int, now_ms: int) -> None:
        """Wants one more round of a table as soon as can be; after the one under way, if any."""
        status = self._tables[table_id]
        if status.claimed_ms is not None:
            self._update(table_id, next_attempt_ms=max(now_ms, status.claimed_ms + 1))
        elif status.state is not State.PENDING:
            self._update(table_id, next_attempt_ms=now_ms)

    # -- reading

    def get(self, table_id: int) -> TableStatus | None:
        return self._tables.get(table_id)

    def all(self) -> list[TableStatus]:
        """Every table, by path."""
        return sorted(self._tables.values(), key=lambda status: status.path)

    @property
    def pending(self) -> list[int]:
        """Table ids in the order in which they will be handed out."""
        return list(self._pending)

    # -- the moves

    def _fail(self, table_id: int, reason: str | None, now_ms: int) -> None:
        status = self._tables[table_id]
        claimed_ms = now_ms if status.claimed_ms is None else status.claimed_ms
        self.ended.append(RoundEnd(status.path, False, max(now_ms - claimed_ms, 0)))
        failures = status.failures + 1
        self._enter(
            table_id,
            State.FAILED,
            last_error=None if reason is None else reason[:ERROR_CHARS_MAX],
            last_error_ms=now_ms,
            failures=failures,
            next_attempt_ms=now_ms + wait_ms(self._backoff_ms, failures, status.freshness_ms),
        )
        if not self._backoff_ms:
            self._enter(table_id, State.PENDING)

    def _enter(self, table_id: int, state: State, **values: Any) -> None:
        status = self._tables[table_id]
        assert may_enter(state, status.state), f"{status.path}: {status.state} -> {state}"
        if state is State.PENDING:
            values["tiering_epoch"] = status.tiering_epoch + 1
        if state is not State.TIERING:
            values["heartbeat_ms"] = values["claimed_ms"] = None
        self._update(table_id, state=state, **values)
        if state is State.PENDING:
            self._pending[table_id] = None
        else:
            self._pending.pop(table_id, None)

    def _update(self, table_id: int, **values: Any) -> None:
        self._tables[table_id] = replace(self._tables[table_id], **values)
        self.changed.add(table_id)


def wait_ms(backoff_ms: int, failures: int, freshness_ms: int) -> int:
    """How long a table waits after so many failures in a row."""
    doublings = min(failures - 1, 62)  # more than any limit; the number stays small
    return min(backoff_ms << doublings, max(freshness_ms, BACKOFF_MAX_MS))


def _name(state: State | None) -> str:
    return "unknown" if state is None else state.value
