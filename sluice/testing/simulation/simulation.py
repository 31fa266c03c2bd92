"""One simulated run: a seed decides who acts when, what fails, and what users do meanwhile."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from sluice.model import TablePath
from sluice.testing.simulation import faults
from sluice.testing.simulation.actors import ACTORS_MAX, Actor, Killed, Stage
from sluice.testing.simulation.checker import Checker
from sluice.testing.simulation.clock import START_MS, ManualClock
from sluice.testing.simulation.cluster import TIMEOUT_MS, FlussTable, SimCluster
from sluice.testing.simulation.drivers import Crew
from sluice.testing.simulation.happenings import Happenings
from sluice.testing.simulation.keyed import KeyedFlussTable
from sluice.testing.simulation.lake import DriverLake, LakeWorld, SimLake, SimTable
from sluice.testing.simulation.network import Wires

_TURNS = 260
_HEAL_ROUNDS_MAX = 12
_HEAL_STEPS_MAX = 20_000
_TIME_PIECE_MS = 10_000
_HOT = 5
"""How much more often than elsewhere somebody dies, is stopped or interrupted at these steps."""
_HOT_STEPS = frozenset(
    {
        "commit",
        "commit validates",
        "commit swaps",
        "commit answered",
        "PrepareLakeTableSnapshot answered",
        "CommitLakeTableSnapshot",
        "CommitLakeTableSnapshot answered",
        "references",
        "remove",
    }
)

CleanerMaker = Callable[["Simulation", TablePath], Callable[[Actor], None]]


@dataclass(frozen=True, slots=True)
class Variant:
    """What kind of tables there are, and what a control replaces by something faulty."""

    make_lake: Callable[[LakeWorld, Actor], DriverLake] = DriverLake
    cleaner: CleanerMaker | None = None
    trusting: bool = False
    """The coordinator takes every lake commit, and is held to what the embedded one promises."""
    keyed: bool = False
    """Tables have a primary key: changes, snapshots, and equality deletes in the lake."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one seed."""

    seed: int
    violation: str
    """Empty if everything held."""
    happened: Counter[str]
    steps: int
    digest: int
    """Of everything that happened, in order: the same seed has the same."""
    trace: tuple[str, ...] = field(default=())


def run_seed(seed: int, *, trace: bool = False, variant: Variant | None = None) -> Outcome:
    """Runs a seed from its beginning to where everything is healed and whole."""
    return Simulation(seed, trace=trace, variant=variant or Variant()).run()


class Simulation:
    """The world of one seed. One thread at a time is inside."""

    def __init__(self, seed: int, *, trace: bool, variant: Variant) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.clock = ManualClock()
        self.steps = 0
        self.happened: Counter[str] = Counter()
        self.trace: list[str] | None = [] if trace else None
        self._digest = 0
        self.faults = faults.draw(self.rng)
        self.cleans = self.rng.random() < 0.7
        self._stage = Stage()
        self.actors: list[Actor] = []
        self.born = 0
        self._late: list[tuple[int, str, Callable[[], object]]] = []
        self.checker = Checker(self.note, self._say)
        fenced = self.rng.random() < 0.75
        self.checker.forward_only = fenced or variant.trusting
        self.cluster = SimCluster(
            self.clock,
            fenced=fenced and not variant.trusting,
            note=self.note,
            on_registered=self.checker.registered,
            new_table=KeyedFlussTable if variant.keyed else FlussTable,
            primary_key=variant.keyed,
        )
        self.lake = SimLake(self.snapshot_made, self.checker.files_present)
        self.checker.cluster, self.checker.lake = self.cluster, self.lake
        self.variant = variant
        wires = Wires(
            self.rng,
            self.cluster,
            self._faults,
            self.note,
            self.clock.advance,
            self.step,
            self.late,
        )
        lake_world = LakeWorld(
            self.rng,
            self.lake,
            self._faults,
            self.note,
            self.step,
            self.late,
            self.committing,
        )
        self.crew = Crew(
            self.rng,
            self.clock,
            wires,
            lake_world,
            self.note,
            self.checker.wrong,
            variant.make_lake,
        )
        self.happenings = Happenings(self)

    # ---- what everybody calls ----

    def note(self, kind: str) -> None:
        """Counts something that has happened."""
        self.happened[kind] += 1
        self._digest = hash((self._digest, self.steps, len(kind), self.clock.now_ms()))
        self._say(kind)

    def _say(self, text: str) -> None:
        if self.trace is not None:
            seconds = (self.clock.now_ms() - START_MS) / 1000
            self.trace.append(f"{seconds:9.3f} s  {text}")

    def step(self, actor: Actor, name: str) -> None:
        """A place in an actor's work where others may act, and where it may be killed or stopped.

        :raises Killed: it was.
        """
        if actor.killed:
            raise Killed
        self.steps += 1
        self._digest = hash((self._digest, actor.born, len(name)))
        if self.trace is not None:
            self._say(f"{actor.name}: {name}")
        roll = self.rng.random() / (_HOT if name in _HOT_STEPS else 1)
        if roll < self.faults.kill:
            actor.killed = True
            self.crew.rounds.pop(actor, None)
            self.note("driver killed")
            self.happened[f"killed at {name}"] += 1
            raise Killed
        roll -= self.faults.kill
        if roll < self.faults.stop:
            stopped_ms = self.rng.choice((500, 10_000, 60_000, 2 * TIMEOUT_MS, 5 * TIMEOUT_MS))
            actor.wake_ms = self.clock.now_ms() + stopped_ms
            beyond = stopped_ms > TIMEOUT_MS
            self.note("driver stopped beyond the time-out" if beyond else "driver stopped")
        elif roll - self.faults.stop >= self.faults.switch:
            return
        self._stage.hand_over(actor)

    def late(self, kind: str, act: Callable[[], object]) -> None:
        """Something that comes about when its sender has given up long since."""
        due_ms = self.clock.now_ms() + self.rng.choice((1_000, 10_000, 60_000, 300_000))
        self._late.append((due_ms, kind, act))

    def snapshot_made(self, table: SimTable) -> None:
        """Main of a lake table has moved."""
        if self.trace is not None:
            ours = table.newest_tiering_snapshot()
            said = "" if ours is None else ours.summary.get("sluice.offsets", "")
            self._say(f"{table.location} at {table.main}, ours {ours and ours.snapshot_id} {said}")
        self.checker.snapshot_made(table)

    def committing(self, actor: Actor, path: TablePath) -> None:
        """A round commits. After a rollback none may, but one that lived before or that repairs."""
        table, fluss = self.lake.tables[path], self.cluster.tables.get(path)
        running = self.crew.rounds.get(actor)
        if fluss is None or running is None or running.repair_mode is not None:
            return
        if 0 <= table.rolled_back_at < actor.born and self.checker.behind(fluss, table):
            self.checker.wrong(f"{actor.name} commits to {path}, which is behind Fluss")

    def _faults(self) -> faults.Faults:
        return self.faults

    # ---- the run ----

    def run(self) -> Outcome:
        try:
            self.happenings.begin()
            for _ in range(_TURNS):
                if self.checker.violation:
                    break
                self._turn()
            if not self.checker.violation:
                self._heal()
        finally:
            self.faults = faults.NONE
            for actor in self.actors:
                self._stage.kill(actor)
        trace = tuple(self.trace or ())
        violation = self.checker.violation
        return Outcome(self.seed, violation, self.happened, self.steps, self._digest, trace)

    def _turn(self) -> None:
        """One choice: somebody goes on, something happens, or time passes."""
        roll = self.rng.random()
        awake = [actor for actor in self.actors if actor.wake_ms <= self.clock.now_ms()]
        if roll < 0.62 and awake:
            self._resume(self.rng.choice(awake))
        elif roll < 0.75 and len(self.actors) < ACTORS_MAX:
            self._spawn()
        elif roll < 0.88:
            self.happenings.one()
        else:
            self.pass_time(self.rng.choice((100, 1_000, 5_000, 30_000, 60_000, 150_000)))
        if self.checker.violation:
            return
        self.clock.advance(self.rng.choice((0, 1, 10, 100)))
        self._arrive()

    def _resume(self, actor: Actor) -> None:
        self._stage.resume(actor)
        if actor.done:
            self.actors.remove(actor)
            if actor.error is not None:
                error = actor.error
                self.checker.wrong(f"{actor.name} broke: {type(error).__name__}: {error}")

    def spawn(self, kind: str, body: Callable[[Actor], None]) -> Actor:
        """A new actor, which has not begun yet."""
        self.born += 1
        actor = Actor(f"{kind} {self.born}", body, self.born)
        self.actors.append(actor)
        return actor

    def _spawn(self) -> None:
        roll, crew = self.rng.random(), self.crew
        path = self.rng.choice(list(self.cluster.tables))
        if roll < 0.22 and crew.claims:
            self.note("claim retried")
            self.spawn("retry", crew.driver(again=self.rng.choice(crew.claims)))
        elif roll < 0.34 and self.cleans:
            self.spawn("cleaner", self._cleaner(path))
        elif roll < 0.4:
            self.spawn("user", crew.repairer(path))
        else:
            self.spawn("driver", crew.driver(path if roll < 0.7 else None))

    def _cleaner(self, path: TablePath) -> Callable[[Actor], None]:
        if self.variant.cleaner is not None:
            return self.variant.cleaner(self, path)
        return self.crew.cleaner(path)

    def pass_time(self, milliseconds: int) -> None:
        """Time passes; drivers that are not stopped send their heartbeats meanwhile."""
        while milliseconds > 0:
            self.clock.advance(min(milliseconds, _TIME_PIECE_MS))
            milliseconds -= _TIME_PIECE_MS
            self.crew.beat()

    def _arrive(self, *, all_of_them: bool = False) -> None:
        for entry in list(self._late):
            due_ms, kind, act = entry
            if due_ms <= self.clock.now_ms() or all_of_them:
                self._late.remove(entry)
                self.note(kind)
                act()

    # ---- healing ----

    def _heal(self) -> None:
        """Faults end, whoever is stopped goes on, users put right what is theirs to put right."""
        self._say("healing")
        self.faults = faults.NONE
        self._arrive(all_of_them=True)
        for actor in self.actors:
            actor.wake_ms = 0
        self._finish()
        unhealed: dict[TablePath, str] = {}
        for _ in range(_HEAL_ROUNDS_MAX):
            for path in list(self.cluster.tables):
                self.happenings.drop_foreign_lake_table(path)
                self.spawn("user", self.crew.repairer(path))
                self._finish()
                self.pass_time(2 * TIMEOUT_MS)
                self.spawn("driver", self.crew.driver(path))
                self._finish()
            found = {t.described.path: self.checker.healed(t) for t in self._tables()}
            unhealed = {path: why for path, why in found.items() if why}
            if not unhealed or self.checker.violation:
                break
        else:
            # What users did left no way without loss: one of them has to choose.
            if unhealed.keys() <= self.crew.lossy:
                self.note("no way without loss")
                return
            why = next(iter(unhealed.values()))
            self.checker.wrong(f"not healed: {why}; last errors: {self.crew.errors}")
        for path in list(self.lake.tables):
            self.spawn("cleaner", self._cleaner(path))
            self._finish()
        self.checker.tidy()

    def _tables(self) -> list[FlussTable]:
        return list(self.cluster.tables.values())

    def _finish(self) -> None:
        """Everybody who acts comes to an end."""
        last = self.steps + _HEAL_STEPS_MAX
        while self.actors and not self.checker.violation:
            self._resume(self.rng.choice(self.actors))
            self.clock.advance(1)
            self.crew.beat()
            if self.steps > last:
                self.checker.wrong(f"{self.actors[0].name} does not come to an end")
