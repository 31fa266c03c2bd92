"""The tiering states and epochs of all lake tables of a coordinator.

Deliberate differences from Fluss: an epoch never decreases (the caller stores what
:attr:`TieringStatuses.changed` names, and gives it again at start); a repeated or late ``failed``
or ``finished`` for a table that is not being tiered changes nothing; freshness runs on from the
last round when the coordinator starts again; a failure's reason is kept until the next success; a
table that fails waits before it is tried again, longer with each failure; whether a worker lives is
judged by the monotonic clock, and a schedule does not wait for a wall clock that went back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

from sluice.errors import (
    FencedTieringEpoch,
    InvalidCoordinator,
    TableNotExist,
    UnknownServerError,
)
from sluice.model import TablePath, TieringRound
from sluice.model.round_record import FAILED
from sluice.statuses.outcomes import (
    BACKOFF_MS,
    after_failure,
    after_success,
    newly_accepted,
    wait_ms,
)
from sluice.statuses.transitions import State, TableStatus, may_enter


class TieringStatuses:
    """The states of all lake tables. Not thread-safe: the owner holds a lock, or uses a copy.

    Since this copy was made, ``changed`` collects the ids of tables whose stored part (epoch,
    times, error, statistics) has changed, and ``ended`` the rounds that have ended.
    """

    def __init__(
        self, coordinator_epoch: int, timeout_ms: int, backoff_ms: int = BACKOFF_MS
    ) -> None:
        """:param timeout_ms: time without a heartbeat after which a worker is considered lost.
        :param backoff_ms: wait after a table's first failure; 0: no wait, as in Fluss.
        """
        self.coordinator_epoch = coordinator_epoch
        self.changed: set[int] = set()
        self.ended: list[TieringRound] = []
        self.timeout_ms = timeout_ms
        self._backoff_ms = backoff_ms
        self._tables: dict[int, TableStatus] = {}
        self._pending: dict[int, None] = {}  # a queue with cheap removal: dicts keep their order

    def copy(self) -> TieringStatuses:
        """Returns an independent draft: change it, store its changes, then replace this one."""
        draft = TieringStatuses(self.coordinator_epoch, self.timeout_ms, self._backoff_ms)
        draft._tables = dict(self._tables)
        draft._pending = dict(self._pending)
        return draft

    # -- the tables

    def restore(self, status: TableStatus) -> None:
        """Loads a stored table at the coordinator's start: Initialized, then Scheduled.

        The freshness interval continues. A round in progress has ended, because the coordinator
        epoch has risen. A table with failures is Failed and waits as before.
        """
        self._tables[status.table_id] = replace(
            status, state=None, heartbeat_ms=None, claimed_ms=None, claimed_by=None
        )
        self._enter(status.table_id, State.INITIALIZED)
        self._enter(status.table_id, State.FAILED if status.failures else State.SCHEDULED)

    def enable(self, status: TableStatus, now_ms: int, *, at_once: bool = True) -> None:
        """Starts to tier a table, new or enabled again: New, then Scheduled, and due now.

        ``status`` has the table's last epoch, so that the epoch never decreases. Results of earlier
        rounds no longer count.

        :param at_once: False: the first round waits for the freshness, as in Fluss.
        """
        if status.table_id in self._tables:
            return
        self._tables[status.table_id] = replace(
            status,
            state=None,
            scheduled_from_ms=now_ms,
            heartbeat_ms=None,
            claimed_ms=None,
            claimed_by=None,
            last_error=None,
            last_error_ms=None,
            last_round_ms=None,
            failures=0,
            requested_ms=None,
            next_attempt_ms=now_ms if at_once else None,
        )
        self._enter(status.table_id, State.NEW)
        self._enter(status.table_id, State.SCHEDULED)

    def forget(self, table_id: int) -> None:
        """Ends the tiering of a table that was dropped, or whose tiering was disabled."""
        self._tables.pop(table_id, None)
        self._pending.pop(table_id, None)

    def set_freshness(self, table_id: int, freshness_ms: int) -> None:
        """Sets a new freshness, which moves the due time of a Scheduled table."""
        if table_id in self._tables:
            self._update(table_id, freshness_ms=freshness_ms)

    # -- transitions by time

    def has_due(self, now_ms: int, monotonic_ms: int) -> bool:
        """Whether :meth:`advance` would change anything."""
        waits = (self._ahead(now_ms), self._due(now_ms), self._lost(monotonic_ms))
        return any(True for found in waits for _ in found)

    def advance(self, now_ms: int, monotonic_ms: int) -> list[TableStatus]:
        """Applies all transitions due by now; returns the tables whose worker was lost.

        A Scheduled table becomes Pending after its freshness interval, a Failed one after its wait,
        the longest overdue first. A Tiering table without a heartbeat within the time-out becomes
        Failed, which ends its round and fences the lost worker. If the wall clock went back, a
        table waits for its interval once more, from now on.

        :param monotonic_ms: time by the clock that :meth:`claim` and :meth:`heartbeat` are given.
        """
        for status, values in list(self._ahead(now_ms)):
            self._update(status.table_id, **values)
        lost = list(self._lost(monotonic_ms))
        for status in lost:
            silent_s = (monotonic_ms - (status.heartbeat_ms or 0)) / 1000
            reason = (
                f"no heartbeat for {silent_s:.0f} s: the worker of tiering epoch"
                f" {status.tiering_epoch} is considered lost"
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

    def _lost(self, monotonic_ms: int) -> Iterable[TableStatus]:
        return (
            status
            for status in self._tables.values()
            if status.heartbeat_ms is not None
            and monotonic_ms - status.heartbeat_ms >= self.timeout_ms
        )

    def _ahead(self, now_ms: int) -> Iterable[tuple[TableStatus, dict[str, int]]]:
        """The tables whose due time no event before now can have set, and a possible one."""
        for status in self._tables.values():
            if status.state is State.SCHEDULED:
                names = ("scheduled_from_ms", "next_attempt_ms", "requested_ms")
                values = {name: now_ms for name in names if (getattr(status, name) or 0) > now_ms}
                if values:
                    yield status, values
            elif status.state is State.FAILED and status.next_attempt_ms is not None:
                wait = wait_ms(self._backoff_ms, status.failures or 0, status.freshness_ms)
                if status.next_attempt_ms > now_ms + wait:
                    yield status, {"next_attempt_ms": now_ms + wait}

    # -- calls of workers

    def check(self, table_id: int, coordinator_epoch: int, tiering_epoch: int) -> TableStatus:
        """Returns the table of a round, if the round is current.

        :raises InvalidCoordinator: the coordinator epoch is not current.
        :raises TableNotExist: the table was dropped, or is no longer tiered.
        :raises FencedTieringEpoch: another round has started.
        """
        if coordinator_epoch != self.coordinator_epoch:
            raise InvalidCoordinator(
                f"table {table_id}: coordinator epoch {coordinator_epoch} is not the current one,"
                f" {self.coordinator_epoch}: the round is void, claim the table again"
            )
        status = self._tables.get(table_id)
        if status is None:
            raise TableNotExist(f"table id {table_id} was dropped, or is no longer tiered")
        if tiering_epoch != status.tiering_epoch:
            # "current epoch 3" and "in Pending state": client/force_due.py reads Fluss's words
            raise FencedTieringEpoch(
                f"table {status.path} (id {table_id}): tiering epoch {tiering_epoch} is not the"
                f" current epoch {status.tiering_epoch}: another round has started"
            )
        return status

    def claim(
        self,
        now_ms: int,
        monotonic_ms: int,
        paths: Collection[TablePath] | None = None,
        by: str | None = None,
    ) -> TableStatus | None:
        """Assigns the table that has been Pending longest, only one of ``paths`` if given.

        :param monotonic_ms: the time of the claim's first heartbeat.
        :param by: the name of the worker.
        """
        for table_id in self._pending:
            status = self._tables[table_id]
            if not status.paused and (paths is None or status.path in paths):
                since = {"heartbeat_ms": monotonic_ms, "claimed_ms": now_ms, "claimed_by": by}
                self._enter(table_id, State.TIERING, **since)
                return self._tables[table_id]
        return None

    def held_by(self, worker: str) -> list[TableStatus]:
        """The tables that are assigned to a worker of this name."""
        return [status for status in self._tables.values() if status.claimed_by == worker]

    def heartbeat(
        self, table_id: int, coordinator_epoch: int, tiering_epoch: int, monotonic_ms: int
    ) -> None:
        """Records a heartbeat of a round.

        :param monotonic_ms: see :meth:`advance`.
        :raises UnknownServerError: the table is not being tiered (Fluss has no code for this).
            Otherwise as :meth:`check`.
        """
        status = self._check_round(table_id, coordinator_epoch, tiering_epoch)
        if status.state is not State.TIERING:
            raise UnknownServerError(
                f"table {status.path} (id {table_id}) is in {_name(status.state)} state, not"
                " Tiering: it has no round for this heartbeat"
            )
        self._tables[table_id] = replace(status, heartbeat_ms=monotonic_ms)

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
        details: TieringRound | None = None,
    ) -> bool:
        """Ends a round successfully; ``forced``: there are more rows, so it is Pending at once.

        It is also Pending at once after :meth:`request_round`, and when a forced finish follows the
        end of the round, as in Fluss. Returns False, without a change, if the end was already
        reported or the table has no round. Raises as :meth:`check`.
        """
        status = self._check_round(table_id, coordinator_epoch, tiering_epoch)
        if forced and status.state is State.SCHEDULED:
            self._enter(table_id, State.PENDING, next_attempt_ms=now_ms)
            return True
        if status.state is not State.TIERING:
            return False
        claimed_ms = now_ms if status.claimed_ms is None else status.claimed_ms
        requested_ms = status.next_attempt_ms
        is_requested = requested_ms is not None and requested_ms > claimed_ms
        forced = forced or is_requested
        self._enter(
            table_id,
            State.TIERED,
            scheduled_from_ms=now_ms,
            file_size=status.file_size if file_size is None else file_size,
            record_count=status.record_count if record_count is None else record_count,
            requested_ms=status.requested_next_ms if is_requested else None,
            **{
                **after_success(status, now_ms, claimed_ms, details),
                "next_attempt_ms": now_ms if forced else None,
            },
        )
        self._enter(table_id, State.PENDING if forced else State.SCHEDULED)
        details = details or TieringRound()
        outcome = details.outcome or "finished"
        self._ended(status, replace(details, outcome=outcome, reason=None), now_ms)
        return True

    def failed(
        self,
        table_id: int,
        coordinator_epoch: int,
        tiering_epoch: int,
        now_ms: int,
        reason: str | None = None,
        details: TieringRound | None = None,
    ) -> bool:
        """Ends a round with a failure: the table is Failed, and Pending after a wait.

        ``reason`` is None for old clients, which send none. Returns False, without a change, if
        the failure was already reported or the table has no round. Raises as :meth:`check`.
        """
        status = self._check_round(table_id, coordinator_epoch, tiering_epoch)
        if status.state is not State.TIERING:
            return False
        self._fail(table_id, reason, now_ms, details)
        return True

    def release(
        self,
        table_id: int,
        coordinator_epoch: int,
        tiering_epoch: int,
        stopped: str | None = None,
    ) -> bool:
        """Releases a claim without a failure: the table is Pending again, as the last in the queue.

        :param stopped: who stopped the round; None: the claim was not used.

        Returns False if the table has no round. Raises as :meth:`check`.
        """
        status = self._check_round(table_id, coordinator_epoch, tiering_epoch)
        if status.state is not State.TIERING:
            return False
        self._enter(table_id, State.PENDING, stopped=stopped or status.stopped)
        return True

    def _check_round(
        self, table_id: int, coordinator_epoch: int, tiering_epoch: int
    ) -> TableStatus:
        """As :meth:`check`, and refuses the ended round of a Failed table, whose epoch stays."""
        status = self.check(table_id, coordinator_epoch, tiering_epoch)
        if status.state is State.FAILED:
            raise FencedTieringEpoch(
                f"table {status.path} (id {table_id}): the round of tiering epoch {tiering_epoch}"
                " has failed and ended"
            )
        return status

    # -- requests of users

    def pause(self, table_id: int, paused: bool) -> None:
        """Pauses or resumes the assignment of a table. An open claim stays valid."""
        if self._tables[table_id].paused != paused:
            self._update(table_id, paused=paused)

    def retry(self, table_id: int, now_ms: int) -> None:
        """Clears a table's failures but keeps its error; a Failed table becomes due now."""
        status = self._tables[table_id]
        if status.failures:
            waits = status.state is State.FAILED
            due_ms = now_ms if waits else status.next_attempt_ms
            asked_ms = status.requested_ms
            if asked_ms is None and status.state is not State.TIERING:
                asked_ms = now_ms
            self._update(table_id, failures=0, next_attempt_ms=due_ms, requested_ms=asked_ms)

    def request_round(self, table_id: int, now_ms: int) -> None:
        """Requests a round of a table as soon as possible, after a round in progress."""
        status = self._tables[table_id]
        if status.claimed_ms is not None:
            now_ms = max(now_ms, status.claimed_ms + 1)
        if status.requested_next_ms is None:
            self._update(table_id, requested_ms=now_ms)
        if status.state is not State.PENDING:
            self._update(table_id, next_attempt_ms=now_ms)

    def request_compaction(self, table_id: int, now_ms: int) -> None:
        """Requests that the next round compacts the table, whatever options it has."""
        self._update(table_id, compaction_requested_ms=now_ms)

    # -- reading

    def get(self, table_id: int) -> TableStatus | None:
        return self._tables.get(table_id)

    def all(self) -> list[TableStatus]:
        """All tables, ordered by path."""
        return sorted(self._tables.values(), key=lambda status: status.path)

    @property
    def pending(self) -> list[int]:
        """Table ids in the order in which they will be assigned."""
        return list(self._pending)

    # -- the moves

    def _ended(self, status: TableStatus, details: TieringRound, now_ms: int) -> None:
        """Notes an ended round.

        :param status: the status before its end.
        """
        claimed_ms = now_ms if status.claimed_ms is None else status.claimed_ms
        ended = replace(
            details,
            table_id=status.table_id,
            round_number=(status.rounds or 0) + 1,
            tiering_epoch=status.tiering_epoch,
            coordinator_epoch=self.coordinator_epoch,
            started_ms=claimed_ms,
            ended_ms=now_ms,
            accepted=newly_accepted(status, details),
        )
        self.ended.append(ended)

    def _fail(
        self,
        table_id: int,
        reason: str | None,
        now_ms: int,
        details: TieringRound | None = None,
    ) -> None:
        status = self._tables[table_id]
        details = replace(details or TieringRound(), outcome=FAILED, reason=reason)
        self._ended(status, details, now_ms)
        kept = after_failure(
            status,
            now_ms,
            reason,
            freshness_ms=status.freshness_ms,
            backoff_ms=self._backoff_ms,
            details=details,
        )
        self._enter(table_id, State.FAILED, requested_ms=None, **kept)
        if not self._backoff_ms:
            self._enter(table_id, State.PENDING)

    def _enter(self, table_id: int, state: State, **values: Any) -> None:
        status = self._tables[table_id]
        assert may_enter(state, status.state), f"{status.path}: {status.state} -> {state}"
        if state is State.PENDING:
            values["tiering_epoch"] = status.tiering_epoch + 1
        if state is not State.TIERING:
            values["heartbeat_ms"] = values["claimed_ms"] = values["claimed_by"] = None
        self._update(table_id, state=state, **values)
        if state is State.PENDING:
            self._pending[table_id] = None
        else:
            self._pending.pop(table_id, None)

    def _update(self, table_id: int, **values: Any) -> None:
        self._tables[table_id] = replace(self._tables[table_id], **values)
        self.changed.add(table_id)


def _name(state: State | None) -> str:
    return "unknown" if state is None else state.value
