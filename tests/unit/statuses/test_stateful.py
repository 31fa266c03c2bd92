"""Random histories of a coordinator against a small model that knows only what a user may rely on.

The model does not copy the rules: it keeps who was handed what, and when freshness or silence runs
out, and says from that alone what must be seen.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sluice.errors import FlussError
from sluice.model import TablePath
from sluice.statuses import TRANSITIONS, State, TableStatus, TieringStatuses

TIMEOUT = 120_000
FRESHNESS = 60_000
WAITS = [10_000, 20_000, 40_000, 80_000, 160_000, 300_000]
"""After that many failures; five minutes is more than the freshness."""
TWO_DAYS = 2 * 86_400_000
TABLES = st.integers(1, 4)


@dataclass
class Known:
    """What the model knows of an enabled table."""

    since: int
    beat: int | None = None  # set while a worker holds it
    epoch: int | None = None  # of the worker that holds it
    queued: bool = False
    error: bool = False
    failures: int = 0
    due: int | None = None  # in place of freshness
    failed: bool = False  # Failed, and waiting
    claimed: int = 0
    paused: bool = False

    def free(self) -> bool:
        """Nobody has it, and it waits for a time."""
        return self.beat is None and not self.queued

    def due_at(self) -> int:
        return self.since + FRESHNESS if self.due is None else self.due

    def fail(self, now: int) -> None:
        self.beat = self.epoch = None
        self.error = self.failed = True
        self.failures += 1
        self.due = now + self.wait()

    def wait(self) -> int:
        return WAITS[min(self.failures, 6) - 1] if self.failures else 0

    def bound(self, now: int) -> None:
        """No event before now can have set a later time."""
        if self.failed:
            assert self.due is not None
            self.due = min(self.due, now + self.wait())
        elif self.free():
            self.since = min(self.since, now)
            self.due = None if self.due is None else min(self.due, now)


class Coordinator(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 10 * TWO_DAYS
        self.up = 1_000_000
        """The monotonic clock, which nobody sets."""
        self.coordinator_epoch = 1
        self.real = TieringStatuses(1, TIMEOUT)
        self.model: dict[int, Known] = {}
        self.epochs: dict[int, int] = {}  # highest ever seen: survives everything
        self.stored: dict[int, TableStatus] = {}

    def remember(self) -> None:
        """What a caller stores."""
        for table_id in self.real.changed:
            status = self.real.get(table_id)
            if status is not None:
                self.stored[table_id] = status
        self.real.changed.clear()

    def settle(self) -> None:
        self.real.advance(self.now, self.up)
        for known in self.model.values():
            known.bound(self.now)
            if known.beat is not None and self.up - known.beat >= TIMEOUT:
                known.fail(self.now)
            elif known.free() and self.now >= known.due_at():
                known.queued, known.failed = True, False
        self.remember()

    @rule(table=TABLES)
    def enable(self, table: int) -> None:
        old = self.stored.get(table)
        epoch = 0 if old is None else old.tiering_epoch
        path = TablePath("db", f"t{table}")
        base = old or TableStatus(table, path, FRESHNESS, 0, epoch)
        self.real.enable(base, self.now)
        self.model.setdefault(table, Known(self.now, due=self.now, paused=base.paused))
        self.remember()

    @rule(table=TABLES)
    def forget(self, table: int) -> None:
        self.real.forget(table)
        self.model.pop(table, None)

    @rule(step=st.sampled_from([0, 1, 30_000, 59_999, 60_000, 119_999, 120_000, 500_000]))
    def wait(self, step: int) -> None:
        self.now += step
        self.up += step
        self.settle()

    @rule(step=st.sampled_from([-TWO_DAYS, -60_000, 60_000, TWO_DAYS]))
    def set_the_wall_clock(self, step: int) -> None:
        self.now += step
        self.settle()

    @rule(wanted=st.none() | st.sets(TABLES))
    def claim(self, wanted: set[int] | None) -> None:
        paths = None if wanted is None else {TablePath("db", f"t{w}") for w in wanted}
        status = self.real.claim(self.now, self.up, paths)
        ready = {
            t
            for t, k in self.model.items()
            if k.queued and not k.paused and (wanted is None or t in wanted)
        }
        assert (status is None) == (not ready)
        if status is not None:
            assert status.table_id in ready
            known = self.model[status.table_id]
            known.queued, known.beat, known.epoch = False, self.up, status.tiering_epoch
            known.claimed = self.now
        self.remember()

    @rule(
        table=TABLES,
        what=st.sampled_from(["beat", "finish", "force", "fail", "fail", "release"]),
        epoch_off=st.sampled_from([0, 0, 0, -1, 1]),
        coordinator_off=st.sampled_from([0, 0, 0, 0, -1]),
    )
    def report(self, table: int, what: str, epoch_off: int, coordinator_off: int) -> None:
        known = self.model.get(table)
        held = known is not None and known.beat is not None
        current = self.epochs.get(table, 0)
        valid = known is not None and epoch_off == 0 and coordinator_off == 0
        valid = valid and known is not None and not known.failed  # that round is over
        time = self.up if what == "beat" else self.now
        arguments = (table, self.coordinator_epoch + coordinator_off, current + epoch_off, time)
        before = self.real.all(), self.real.pending
        try:
            if what == "beat":
                self.real.heartbeat(*arguments)
                answer = True
            elif what == "fail":
                answer = self.real.failed(*arguments, "why")
            elif what == "release":
                answer = self.real.release(*arguments[:3])
            else:
                answer = self.real.finished(*arguments, forced=what == "force")
        except FlussError:
            assert not (valid and (held or what != "beat"))
            assert (self.real.all(), self.real.pending) == before
            return
        assert valid
        late = what == "force" and not held and known is not None and not known.queued
        assert answer == (held or late)
        if late and known is not None:
            known.queued, known.due = True, self.now
        elif not held or known is None:
            assert (self.real.all(), self.real.pending) == before
        elif what == "beat":
            known.beat = self.up
        elif what == "fail":
            known.fail(self.now)
        elif what == "release":
            known.beat = known.epoch = None
            known.queued = True
        else:
            known.beat = known.epoch = None
            known.queued = what == "force" or (known.due or 0) > known.claimed
            known.due = self.now if known.queued else None
            known.since, known.error, known.failures = self.now, False, 0
        self.remember()

    @rule(table=TABLES, paused=st.booleans())
    def pause(self, table: int, paused: bool) -> None:
        if table in self.model:
            self.real.pause(table, paused)
            self.model[table].paused = paused
            self.remember()

    @rule(table=TABLES, again=st.booleans())
    def want(self, table: int, again: bool) -> None:
        known = self.model.get(table)
        if known is None:
            return
        if again:
            self.real.request_round(table, self.now)
            if known.beat is not None:
                known.due = max(self.now, known.claimed + 1)
            elif not known.queued:
                known.due = self.now
        else:
            self.real.retry(table, self.now)
            if known.failed and known.failures:
                known.due = self.now
            known.failures = 0
        self.remember()
        self.settle()

    @precondition(lambda self: self.model)
    @rule()
    def restart(self) -> None:
        self.coordinator_epoch += 1
        self.real = TieringStatuses(self.coordinator_epoch, TIMEOUT)
        for table, known in self.model.items():
            self.real.restore(self.stored[table])
            known.beat = known.epoch = None
            known.queued = False
            known.failed = known.failures > 0
        self.settle()

    @invariant()
    def agrees(self) -> None:
        assert {s.table_id for s in self.real.all()} == set(self.model)
        assert sorted(self.real.pending) == sorted(t for t, k in self.model.items() if k.queued)
        for status in self.real.all():
            known = self.model[status.table_id]
            assert status.state is (
                State.TIERING
                if known.beat is not None
                else State.PENDING
                if known.queued
                else State.FAILED
                if known.failed
                else State.SCHEDULED
            )
            assert (status.failures, status.paused) == (known.failures, known.paused)
            assert known.beat is not None or known.queued or status.due_ms == known.due_at()
            assert known.epoch is None or known.epoch == status.tiering_epoch
            assert (status.last_error is not None) == known.error
            assert (status.last_error is None) == (status.last_error_ms is None)
            assert status.tiering_epoch >= self.epochs.get(status.table_id, 0)
            self.epochs[status.table_id] = status.tiering_epoch


Coordinator.TestCase.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, derandomize=True
)
TestCoordinator = Coordinator.TestCase


def test_every_state_can_be_entered_and_left() -> None:
    assert set(TRANSITIONS) == set(State)
    sources = {source for sources in TRANSITIONS.values() for source in sources}
    assert sources == {None, *State}
