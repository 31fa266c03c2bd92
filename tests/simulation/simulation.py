"""One simulated run. A seed decides which actor runs when, what fails and what users do."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from sluice.iceberg_rules.layout import Layout
from sluice.model import TablePath
from sluice.rounds.copy.parts import PartRules
from sluice.rounds.upkeep.requested import REQUEST_MS_MAX
from tests.simulation import faults
from tests.simulation.actors import ACTORS_MAX, Actor, ActorScheduler, Killed
from tests.simulation.checker import Checker
from tests.simulation.clock import START_MS, ManualClock
from tests.simulation.drivers import ActorFactory
from tests.simulation.fluss.cluster import TIMEOUT_MS, FlussTable, SimCluster
from tests.simulation.fluss.keyed import (
    KeyedFlussTable,
    draw_budget,
    draw_compactions,
    draw_rounds_without,
)
from tests.simulation.fluss.log_damage import LogDamage
from tests.simulation.fluss.network import NetworkContext, SimAdmin, SimConnection
from tests.simulation.lake.context import LakeContext
from tests.simulation.lake.expiries import ExpiryChecker, RoundFacts, draw_expiry
from tests.simulation.lake.lake import DriverLake
from tests.simulation.lake.maintenance import NOBODY, Maintenance, draw_habits
from tests.simulation.lake.stored_lake import SimLake, SimTable
from tests.simulation.maintainers import ORPHAN_AGE_MS, Maintainers
from tests.simulation.world_events import WorldContext, WorldEvents

_TURNS = 260
_HEAL_ROUNDS_MAX = 12
_HEAL_STEPS_MAX = 20_000
_REQUEST_ROUNDS_MAX = 10
_UNREST_ROUNDS = 6
"""Rounds of each table beside maintenance, with faults."""
_TIME_PIECE_MS = 10_000
_REPAIRER, _OTHER = "user", "other"
CleanerMaker = Callable[["Simulation", TablePath], Callable[[Actor], None]]


@dataclass(frozen=True, slots=True)
class Variant:
    """The kind of tables, and the faulty parts that a control uses."""

    make_lake: Callable[[LakeContext, Actor], DriverLake] = DriverLake
    make_admin: Callable[[SimConnection, SimCluster], SimAdmin] = SimAdmin
    part_rules: type[PartRules] = PartRules
    cleaner: CleanerMaker | None = None
    trusting: bool = False
    """The coordinator accepts every lake commit, but is checked by the embedded server's rules."""
    keyed: bool = False
    """Tables have a primary key, so there are changes, KV snapshots and equality deletes."""
    more: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """Probabilities of faults that the control needs more often than they are drawn, by name."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one seed."""

    seed: int
    violation: str
    """The first violated rule; empty if there is none."""
    happened: Counter[str]
    steps: int
    digest: int
    """A digest of all events in order; the same seed always has the same digest."""
    trace: tuple[str, ...] = field(default=())


def run_seed(seed: int, *, trace: bool = False, variant: Variant | None = None) -> Outcome:
    """Runs one seed until all faults are repaired and the lake is complete."""
    return Simulation(seed, trace=trace, variant=variant or Variant()).run()


class Simulation:
    """The state of one seed's run. Used by one thread at a time."""

    def __init__(self, seed: int, *, trace: bool, variant: Variant) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.clock = ManualClock()
        self.steps = 0
        self.happened: Counter[str] = Counter()
        self.trace: list[str] | None = [] if trace else None
        self._digest = 0
        drawn = faults.draw(self.rng, seed)
        self.faults = self._drawn_faults = replace(drawn, **variant.more)
        self.cleans = self.rng.random() < 0.7
        self._scheduler = ActorScheduler()
        self.actors: list[Actor] = []
        self.born = 0
        self._late: list[tuple[int, str, Callable[[], object]]] = []
        self.checker = Checker(self.note, self._say, LogDamage(seed, self.note))
        fenced = self.rng.random() < 0.75
        self.checker.forward_only = fenced or variant.trusting
        self.cluster = SimCluster(
            self.clock,
            fenced=fenced and not variant.trusting,
            note=self.note,
            on_registered=self.checker.registered,
            new_table=KeyedFlussTable if variant.keyed else FlussTable,
            primary_key=variant.keyed,
            layout=Layout.LEGACY if seed % 2 else Layout.CLEAN,
        )
        habits = draw_habits(seed) if variant.keyed else NOBODY
        expiry = draw_expiry(seed)
        self.lake = SimLake(
            self.snapshot_made,
            self.checker.files_present,
            as_vectors=habits.as_vectors,
            properties=expiry.properties,
            now_ms=self.clock.now_ms,
        )
        self.expiries = ExpiryChecker(
            self.cluster, self.checker.wrong, lambda: self.checker.forward_only
        )
        self.checker.cluster, self.checker.lake = self.cluster, self.lake
        self.variant = variant
        self.maintenance = Maintenance(
            seed, habits, self.lake, self.note, self.step, lambda path: self.events.may_expire(path)
        )
        self.actor_factory = self._actor_factory(expires=expiry.is_on)
        self.maintainers = Maintainers(seed, self.actor_factory, self.cleans)
        self.events = WorldEvents(self._world_context())

    def _actor_factory(self, *, expires: bool) -> ActorFactory:
        network = NetworkContext(
            self.rng,
            self.cluster,
            lambda: self.faults,
            self.note,
            self.clock.advance,
            self.step,
            self.late,
        )
        lake_context = LakeContext(
            self.rng,
            self.lake,
            lambda: self.faults,
            self.note,
            self.step,
            self.late,
            self.committing,
            self.expiring,
            self.maintenance.before_commit,
            self.maintenance.after_listing,
        )
        return ActorFactory(
            self.rng,
            self.clock,
            network,
            lake_context,
            self.note,
            self.checker.wrong,
            self.checker.damage,
            self.checker.retier_met,
            self.variant.make_lake,
            self.variant.make_admin,
            self.variant.part_rules,
            draw_budget(self.seed),
            draw_rounds_without(self.seed),
            draw_compactions(self.seed),
            expires,
        )

    def _world_context(self) -> WorldContext:
        return WorldContext(
            self.rng,
            self.clock,
            self.cluster,
            self.lake,
            self.checker,
            self.note,
            lambda: self.born,
            self._spawn_repairer,
            self._may_roll_back,
            lambda: [actor for actor in self.actors if actor.name.startswith(_REPAIRER)],
            self.checker.damage,
        )

    # ---- what everybody calls ----

    def note(self, kind: str) -> None:
        """Counts an event."""
        self.happened[kind] += 1
        self._digest = hash((self._digest, self.steps, len(kind), self.clock.now_ms()))
        self._say(kind)

    def _say(self, text: str) -> None:
        if self.trace is not None:
            seconds = (self.clock.now_ms() - START_MS) / 1000
            self.trace.append(f"{seconds:9.3f} s  {text}")

    def step(self, actor: Actor, name: str) -> None:
        """A point in an actor's work where others may run, and where it may be killed or stopped.

        :raises Killed: the actor was killed.
        """
        if actor.killed:
            raise Killed
        self.steps += 1
        self._digest = hash((self._digest, actor.born, len(name)))
        if self.trace is not None:
            self._say(f"{actor.name}: {name}")
        roll = self.rng.random() / (faults.HOT if name in faults.HOT_STEPS else 1)
        if actor.steps_left is not None:
            actor.steps_left -= 1
        if roll < self.faults.kill or actor.steps_left == 0:
            actor.killed = True
            self.actor_factory.rounds.pop(actor, None)
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
        self._scheduler.yield_turn(actor)

    def late(self, kind: str, act: Callable[[], object]) -> None:
        """Schedules an effect that arrives after its sender has given up."""
        due_ms = self.clock.now_ms() + self.rng.choice((1_000, 10_000, 60_000, 300_000))
        self._late.append((due_ms, kind, act))

    def snapshot_made(self, table: SimTable) -> None:
        """Called when the main branch of a lake table has moved."""
        if self.trace is not None:
            ours = table.newest_tiering_snapshot()
            said = "" if ours is None else ours.summary.get("sluice.offsets", "")
            self._say(f"{table.location} at {table.main}, ours {ours and ours.snapshot_id} {said}")
        self.checker.snapshot_made(table)

    def committing(self, actor: Actor, path: TablePath) -> None:
        """Called at a commit: only repairs commit to a lake that lacks registered rows.

        Registered is what the round has read last. What a dead round registers after that follows
        in its own registration, and nothing is lost.
        """
        table, fluss = self.lake.tables[path], self.cluster.tables.get(path)
        running = self.actor_factory.rounds.get(actor)
        if running is not None:
            base = table.newest_tiering_snapshot()
            running.facts.base = None if base is None else base.snapshot_id
        if fluss is None or running is None or running.repair is not None:
            return
        if self.checker.behind(fluss, table, actor.registered.get(path)):
            self.checker.wrong(f"{actor.name} commits to {path}, which is behind Fluss")

    def expiring(
        self, actor: Actor, path: TablePath, going: Sequence[int], decided_ms: int
    ) -> None:
        """Called when snapshots are about to expire after a round, or in maintenance."""
        table, running = self.lake.tables[path], self.actor_factory.rounds.get(actor)
        facts = RoundFacts(decided_ms, 0) if running is None else running.facts
        if running is None and (base := table.newest_tiering_snapshot()):
            facts.base = base.snapshot_id
        self.expiries.check(path, table, going, facts, decided_ms)

    # ---- the run ----

    def run(self) -> Outcome:
        try:
            self.events.begin()
            for _ in range(_TURNS):
                if self.checker.violation:
                    break
                self._turn()
            if not self.checker.violation:
                self._heal()
        finally:
            self.faults = faults.NONE
            for actor in self.actors:
                self._scheduler.kill(actor)
        trace = tuple(self.trace or ())
        violation = self.checker.violation
        return Outcome(self.seed, violation, self.happened, self.steps, self._digest, trace)

    def _turn(self) -> None:
        """Makes one choice: an actor continues, an event occurs, or time passes."""
        if self.maintenance.is_due():
            self._spawn_maintenance(self.rng.choice(self.events.paths))
        for path in self.events.paths if self.variant.keyed else ():
            if self.maintainers.is_due(path):
                self._spawn_maintainer(path)
        roll = self.rng.random()
        awake = [actor for actor in self.actors if actor.wake_ms <= self.clock.now_ms()]
        if roll < 0.62 and awake:
            self._resume(self.rng.choice(awake))
        elif roll < 0.75 and len(self._workers()) < ACTORS_MAX:
            self._spawn()
        elif roll < 0.88:
            self.events.trigger()
        else:
            self.pass_time(self.rng.choice((100, 1_000, 5_000, 30_000, 60_000, 150_000)))
        if self.checker.violation:
            return
        self.clock.advance(self.rng.choice((0, 1, 10, 100)))
        self._arrive()

    def _resume(self, actor: Actor) -> None:
        self._scheduler.resume(actor)
        if actor.done:
            self.actors.remove(actor)
            if actor.error is not None:
                error = actor.error
                self.checker.wrong(f"{actor.name} broke: {type(error).__name__}: {error}")

    def spawn(self, kind: str, body: Callable[[Actor], None]) -> Actor:
        """Adds an actor, which does not run yet."""
        self.born += 1
        actor = Actor(f"{kind} {self.born}", body, self.born)
        self.actors.append(actor)
        return actor

    def _spawn(self) -> None:
        roll, actor_factory = self.rng.random(), self.actor_factory
        path = self.rng.choice(self.events.paths)
        if roll < 0.22 and actor_factory.claims:
            self.note("claim retried")
            self.spawn("retry", actor_factory.driver(again=self.rng.choice(actor_factory.claims)))
        elif roll < 0.34 and self.cleans:
            self.spawn("cleaner", self._cleaner(path))
        elif roll < 0.4:
            self._spawn_repairer(path)
        else:
            self.spawn("driver", actor_factory.driver(path if roll < 0.7 else None))

    def _spawn_repairer(self, path: TablePath) -> None:
        self.spawn(_REPAIRER, self.actor_factory.repairer(path))

    def _spawn_maintenance(self, path: TablePath) -> None:
        self.spawn(_OTHER, self.maintenance.procedure(path))

    def _spawn_maintainer(self, path: TablePath) -> None:
        mortal = self.faults.kill > 0
        self.spawn("maintainer", self.maintainers.process(path, mortal=mortal))

    def _workers(self) -> list[Actor]:
        """The actors that run code of this project."""
        return [actor for actor in self.actors if not actor.name.startswith(_OTHER)]

    def _may_roll_back(self) -> bool:
        """Whether a user may roll back: not while clean-up and drivers run (docs/clean-up.md)."""
        return not self.cleans or not self._workers()

    def _cleaner(self, path: TablePath) -> Callable[[Actor], None]:
        if self.variant.cleaner is not None:
            return self.variant.cleaner(self, path)
        return self.actor_factory.cleaner(path)

    def pass_time(self, milliseconds: int) -> None:
        """Moves the time forward; drivers that are not stopped send heartbeats."""
        while milliseconds > 0:
            self.clock.advance(min(milliseconds, _TIME_PIECE_MS))
            milliseconds -= _TIME_PIECE_MS
            self.actor_factory.beat()

    def _arrive(self, *, all_of_them: bool = False) -> None:
        for entry in list(self._late):
            due_ms, kind, act = entry
            if due_ms <= self.clock.now_ms() or all_of_them:
                self._late.remove(entry)
                self.note(kind)
                act()

    # ---- healing ----

    def _heal(self) -> None:
        """Ends all faults, resumes stopped actors and makes the repairs that users must make.

        Other writers go on maintaining the tables.
        """
        self._say("healing")
        self._calm()
        if not self._make_whole():
            return
        if self.variant.keyed and self.maintainers.often:
            self._maintain_in_unrest()
            if self.checker.violation or not self._make_whole():
                return
        self._tier_once_more()
        self._complete_requests()
        for path in list(self.lake.tables):
            self.spawn("cleaner", self._cleaner(path))
            self._finish()
        if self.variant.keyed:
            self.clock.advance(2 * ORPHAN_AGE_MS)
            for path in list(self.lake.tables):
                self._spawn_maintainer(path)
                self._finish()
        self.checker.tidy()

    def _calm(self) -> None:
        """Ends all faults, and lets every actor come to its end."""
        self.faults = faults.NONE
        self._arrive(all_of_them=True)
        for actor in self.actors:
            actor.wake_ms = 0
        self._finish()

    def _make_whole(self) -> bool:
        """Makes the repairs that users must make; False if no repair without loss exists."""
        unhealed: dict[TablePath, str] = {}
        for _ in range(_HEAL_ROUNDS_MAX):
            for path in list(self.cluster.tables):
                self.events.drop_foreign_lake_table(path)
                self._spawn_repairer(path)
                self._finish()
                self.pass_time(2 * TIMEOUT_MS)
                self._drive(path)
            unhealed = self._unhealed()
            if not unhealed or self.checker.violation:
                return not self.checker.violation
        # After what users did every repair loses rows, so a person would have to choose.
        if unhealed.keys() <= self.actor_factory.lossy:
            self.note("no way without loss")
            return False
        why = next(iter(unhealed.values()))
        self.checker.wrong(f"not healed: {why}; last errors: {self.actor_factory.errors}")
        return False

    def _maintain_in_unrest(self) -> None:
        """Rounds and maintenance of whole tables beside each other, with all faults."""
        self._say("unrest")
        self.faults = self._drawn_faults
        for _ in range(_UNREST_ROUNDS):
            for path in list(self.cluster.tables):
                self.events.append_to(path)
                self.pass_time(2 * TIMEOUT_MS)
                self._drive(path)
                if self.checker.violation:
                    return
        self._calm()

    def _tier_once_more(self) -> None:
        """Commits another round, so that all files of earlier ones are of rounds that are over."""
        for path in list(self.cluster.tables):
            self.events.append_to(path)
        for _ in range(_HEAL_ROUNDS_MAX):
            if self.checker.violation or not (unhealed := self._unhealed()):
                return
            for path in unhealed:
                self.pass_time(2 * TIMEOUT_MS)
                self._drive(path)
        why = next(iter(unhealed.values()))
        self.checker.wrong(f"not tiered: {why}; last errors: {self.actor_factory.errors}")

    def _complete_requests(self) -> None:
        """Runs rounds until no request for a compaction is open, or until each is too old."""
        for path in list(self.cluster.tables):
            for turn in range(_REQUEST_ROUNDS_MAX):
                if self.checker.violation or self.cluster.requested(path) is None:
                    break
                is_last = turn == _REQUEST_ROUNDS_MAX - 2
                self.pass_time(REQUEST_MS_MAX if is_last else 2 * TIMEOUT_MS)
                self.cluster.retry(path)
                self._drive(path)
            else:
                self.checker.wrong(f"the requested compaction of {path} stays open")

    def _drive(self, path: TablePath) -> None:
        """Runs a round to its end, with other writers beside it."""
        self.spawn("driver", self.actor_factory.driver(path))
        if self.maintenance.habits.often:
            self._spawn_maintenance(path)
        self._finish([path] if self.variant.keyed else [])

    def _unhealed(self) -> dict[TablePath, str]:
        """Why tables are not complete yet."""
        tables = list(self.cluster.tables.values())
        found = {t.described.path: self.checker.healed(t) for t in tables}
        return {path: why for path, why in found.items() if why}

    def _finish(self, maintained: Sequence[TablePath] = ()) -> None:
        """Runs every actor to its end.

        :param maintained: tables that are maintained meanwhile.
        """
        last = self.steps + _HEAL_STEPS_MAX
        while self.actors and not self.checker.violation:
            self._resume(self.rng.choice(self.actors))
            for path in maintained:
                if self.maintainers.is_due(path):
                    self._spawn_maintainer(path)
            self.clock.advance(1)
            self.actor_factory.beat()
            self._arrive()
            if self.steps > last:
                self.checker.wrong(f"{self.actors[0].name} does not come to an end")
