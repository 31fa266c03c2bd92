"""Processes of `sluice maintain` in the simulation, which run beside rounds without a claim."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from sluice.errors import FlussError, LakeError
from sluice.model import TablePath
from sluice.rounds.upkeep.maintenance import MaintenanceOptions, maintain
from sluice.rounds.values.limits import RoundLimits
from tests.simulation.actors import Actor, Killed
from tests.simulation.drivers import ActorFactory
from tests.simulation.lake.conversions import KEYS_BYTES
from tests.simulation.lake.lake import DriverTable

ORPHAN_AGE_MS = 600_000
"""Unreferenced files of maintenance that are older are deleted: no process lives so long, and no
commit is so late."""
_AT_ONCE_MAX = 2
_KILLED, _STEPS_MAX = 0.4, 40
"""How many processes are killed if any are, and after how many steps at most."""
_IDLE = 0.05
"""How much less often tables are maintained that have no equality deletes."""
_NEVER = 0.25
"""How many seeds have no maintenance."""


@dataclass
class Maintainers:
    """The processes of one simulation."""

    seed: int
    factory: ActorFactory
    cleans: bool
    """Whether they clean up, and expire snapshots. No user rolls a table back beside that."""

    def __post_init__(self) -> None:
        self._rng = random.Random(f"maintainers {self.seed}")
        self.often = 0.0 if self._rng.random() < _NEVER else self._rng.choice((0.05, 0.15, 0.3))
        self._running: list[Actor] = []

    def is_due(self, path: TablePath) -> bool:
        """Whether a process begins in this turn: more likely if it has deletes to convert."""
        if not self.often:
            return False
        self._running = [actor for actor in self._running if not actor.done]
        table = self.factory.lake_context.lake.tables.get(path)
        keyed = {} if table is None else table.keyed
        has_work = table is not None and any(keyed[p].deletes for p in table.paths() if p in keyed)
        often = self.often * (1 if has_work else _IDLE)
        return self._rng.random() < often and len(self._running) < _AT_ONCE_MAX

    def process(self, path: TablePath, *, mortal: bool) -> Callable[[Actor], None]:
        """A process that maintains one table, as an actor's body.

        :param mortal: whether it may be killed.
        """
        memory_bytes = KEYS_BYTES * self._rng.choice((1, 2, 100))

        dies = mortal and self._rng.random() < _KILLED
        steps_left = self._rng.randint(6, _STEPS_MAX) if dies else None

        def body(actor: Actor) -> None:
            actor.steps_left = steps_left
            self._running.append(actor)
            factory = self.factory
            try:
                client = factory.client(actor)
                registered, info = client.lake_snapshot(path), client.table_info(path)
                table = factory.make_lake(factory.lake_context, actor).load(path)
            except (FlussError, LakeError):
                return
            if table is None:
                return
            now_ms = factory.clock.now_ms()
            known = None if registered is None else registered.snapshot_id
            round_ms = RoundLimits().round_ms(info)
            options = MaintenanceOptions(memory_bytes, now_ms, round_ms, known, ORPHAN_AGE_MS)
            try:
                self._maintain(path, table, options)
            except LakeError:
                return
            except Killed:
                if stage := table.maintenance().stage:
                    factory.note(f"conversion died {stage}")
                raise

        return body

    def _maintain(self, path: TablePath, table: DriverTable, options: MaintenanceOptions) -> None:
        if self.cleans:
            self.factory.note("maintained")
            maintain(path, table, options, apply=True)
            return
        work = table.maintenance()
        work.convert(options.memory_bytes)
        work.remove_metadata_orphans(options.now_ms - options.metadata_age_ms)
