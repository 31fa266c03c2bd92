"""Events in a simulated run that are not rounds: user actions, maintenance and restarts."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from sluice.model import Partition, TablePath
from sluice.rounds.values.offsets import TABLE_ID_KEY
from tests.simulation.actors import Actor
from tests.simulation.checker import Checker
from tests.simulation.clock import ManualClock
from tests.simulation.fluss.cluster import FlussTable, SimCluster
from tests.simulation.fluss.keyed import KeyedFlussTable
from tests.simulation.fluss.log_damage import LogDamage
from tests.simulation.lake.stored_lake import SimLake, SimTable

_DAYS = ("mon", "tue", "wed")
_ROWS_MAX = 5
_BUSY = 0.3
"""How many of the events while a user repairs a table change what the repair may lose."""
_ROLLBACK = 0.97
_REQUESTS = 0.04
"""How many of the events are requests for a compaction."""


@dataclass(frozen=True, slots=True)
class WorldContext:
    """The parts of the simulation that events use."""

    rng: random.Random
    clock: ManualClock
    cluster: SimCluster
    lake: SimLake
    checker: Checker
    note: Callable[[str], None]
    actors_born: Callable[[], int]
    spawn_repairer: Callable[[TablePath], object]
    may_roll_back: Callable[[], bool]
    repairers: Callable[[], list[Actor]]
    """The users who repair a table now."""
    damage: LogDamage


class WorldEvents:
    """Triggers events in one simulation."""

    def __init__(self, world: WorldContext) -> None:
        self._world = world
        self._rng = world.rng
        self._shapes: dict[TablePath, tuple[int, str, bool]] = {}
        self._dropped_days: set[tuple[TablePath, str]] = set()

    @property
    def paths(self) -> list[TablePath]:
        """All tables, also those that are dropped now."""
        return list(self._shapes)

    def begin(self) -> None:
        """Creates one or two tables with some rows."""
        for number in range(self._rng.randint(1, 2)):
            path = TablePath("db", f"t{number}")
            freshness = self._rng.choice(("1s", "10s", "1min", "3min"))
            self._shapes[path] = self._rng.randint(1, 3), freshness, self._rng.random() < 0.5
            self._create(path)
            for _ in range(3):
                self._append(self._world.cluster.tables[path], empty=False)

    def trigger(self) -> None:
        """Triggers one random event, most often new rows."""
        world, roll = self._world, self._rng.random()
        path = self._rng.choice(self.paths)
        if path not in world.cluster.tables:
            world.note("table created again")
            self._create(path)
            return
        fluss, table = world.cluster.tables[path], world.lake.tables.get(path)
        if world.damage.is_due() and not self._is_behind(fluss):
            world.damage.happen(fluss)
            return
        if self._rng.random() < _REQUESTS:
            world.note("compaction requested")
            world.cluster.request_compaction(path)
            return
        roll = self._disturbed(fluss, roll)
        if roll < 0.5:
            self._append(fluss, empty=roll < 0.08)
        elif roll < 0.56:
            self._truncate(fluss)
        elif roll < 0.61:
            world.note("coordinator restarted")
            world.cluster.restart()
        elif roll < 0.72:
            self._partition(fluss)
        elif roll < 0.735:
            again = self._rng.random() < 0.5
            world.note("table dropped and created again" if again else "table dropped")
            world.cluster.drop_table(path)
            if again:
                self._create(path)
        elif roll < 0.77:
            self.drop_foreign_lake_table(path)
        elif table is not None:
            self._foreign(path, table, roll)

    def _disturbed(self, fluss: FlussTable, roll: float) -> float:
        """The event to trigger: at critical times more often one that a repair must survive."""
        if self._world.repairers() and self._rng.random() < _BUSY:
            return self._rng.choice((0.55, _ROLLBACK))  # 0.55: retention
        if self._world.damage.has(fluss) and self._rng.random() < _BUSY:
            return _ROLLBACK  # often past the repair of a log
        return roll

    def append_to(self, path: TablePath) -> None:
        """Appends rows to a table."""
        self._append(self._world.cluster.tables[path], empty=False)

    def drop_foreign_lake_table(self, path: TablePath) -> None:
        """Drops or renames the lake table of a Fluss table that was dropped and created again."""
        world = self._world
        table = world.lake.tables.get(path)
        ours = (
            None
            if table is None
            else table.newest_tiering_snapshot() or table.history().newest_tiering_snapshot()
        )
        table_id = str(world.cluster.tables[path].described.table_id)
        if ours is None or ours.summary[TABLE_ID_KEY] == table_id:
            return
        rename = self._rng.random() < 0.5
        world.note("lake table renamed" if rename else "lake table dropped")
        world.lake.drop(path, rename=rename)

    # ---- Fluss ----

    def _create(self, path: TablePath) -> None:
        buckets, freshness, partitioned = self._shapes[path]
        fluss = self._world.cluster.create_table(path, buckets, freshness, partitioned=partitioned)
        if partitioned:
            self._add_partition(fluss, "mon")

    def _append(self, fluss: FlussTable, *, empty: bool) -> None:
        buckets = fluss.buckets()
        if not buckets:
            return
        bucket = self._rng.choice(buckets)
        rows = 0 if empty else self._rng.randint(1, _ROWS_MAX)
        fluss.add(bucket, rows, self._world.clock.now_ms())
        self._world.checker.acknowledged[bucket] = fluss.acknowledged[bucket]
        if isinstance(fluss, KeyedFlussTable):
            self._world.checker.changes[bucket] = fluss.history[bucket]
        self._world.note("empty batch appended" if empty else "rows appended")

    def _truncate(self, fluss: FlussTable) -> None:
        """Applies log retention to rows that Fluss has registered, now or earlier.

        The lake may lack them only while a user repairs it: the user can always restore them.
        """
        registered = fluss.latest_registered()
        is_behind, repairers = self._is_behind(fluss), self._world.repairers()
        if registered is None or (is_behind and not repairers):
            return
        for bucket in fluss.buckets():
            held = fluss.lake_ends.get(bucket, 0)
            if held > registered.offsets.get(bucket, 0):
                continue  # Fluss went back to a lake that another user had rolled back
            log = fluss.logs.get(bucket, [])
            if log and log[0].next_offset <= held:
                self._world.note("log truncated during a repair" if is_behind else "log truncated")
                for actor in repairers:  # another user may have restored what one still copies
                    actor.faults.add("log truncated")
                first = next((r.base_offset for r in log if r.next_offset > held), held)
                fluss.truncate_before(bucket, first)

    def _partition(self, fluss: FlussTable) -> None:
        if not fluss.described.is_partitioned:
            return
        there = {partition.values[0]: partition for partition in fluss.partitions_by_id.values()}
        day = self._rng.choice(_DAYS)
        if day in there and self._is_behind(fluss):
            return  # the lake may lack rows that only this partition's logs have
        if day in there:
            self._world.note("partition dropped")
            fluss.drop_partition(there[day].partition_id)
            self._dropped_days.add((fluss.described.path, day))
            return
        again = (fluss.described.path, day) in self._dropped_days
        self._world.note("partition created again" if again else "partition created")
        self._add_partition(fluss, day)

    def _add_partition(self, fluss: FlussTable, day: str) -> None:
        partition = Partition(self._world.cluster.next_id(), (day,))
        fluss.add_partition(partition)
        self._world.checker.values[partition.partition_id] = partition.values

    # ---- the lake ----

    def _foreign(self, path: TablePath, table: SimTable, roll: float) -> None:
        world, rng = self._world, self._rng
        if roll < 0.84:
            if table.compact(rng):
                world.note("compaction")
        elif roll < 0.88:
            world.note("foreign append")
            table.append_foreign()
        elif roll < 0.94:
            if self.may_expire(path) and table.expire_snapshots(rng):
                world.note("snapshots expired")
        elif roll < 0.96 and table.rolled_back_at < 0:  # else nobody could tell what main holds
            world.note("old metadata removed")
            table.forget_expired()
        elif world.may_roll_back() and table.roll_back(rng, world.actors_born()):
            world.note("rolled back")
            if rng.random() < 0.5:
                world.spawn_repairer(path)

    def may_expire(self, path: TablePath) -> bool:
        """Whether snapshots may expire: not while a repair may need them.

        The same holds after a rollback past a snapshot that Fluss does not know yet. If others
        write on top and the snapshots below expire, nobody can tell what main holds.
        """
        fluss, table = self._world.cluster.tables.get(path), self._world.lake.tables.get(path)
        if fluss is None or table is None or self._is_behind(fluss):
            return False
        if table.rolled_back_at < 0 or not isinstance(fluss, KeyedFlussTable):
            return True
        ours = table.newest_tiering_snapshot()
        return ours is not None and ours.snapshot_id == table.tagged

    def _is_behind(self, fluss: FlussTable) -> bool:
        """Whether the lake is behind Fluss; a repair may need what clean-up removes."""
        table = self._world.lake.tables.get(fluss.described.path)
        if table is None:
            return fluss.latest_registered() is not None
        return self._world.checker.is_behind(fluss, table)
