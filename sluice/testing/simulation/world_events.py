"""Events in a simulated run that are not rounds: user actions, maintenance and restarts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice.model import Partition, TablePath
from sluice.rounds.offsets import TABLE_ID_KEY
from sluice.testing.simulation.cluster import FlussTable
from sluice.testing.simulation.keyed import KeyedFlussTable
from sluice.testing.simulation.lake import SimTable

if TYPE_CHECKING:
    from sluice.testing.simulation.simulation import Simulation

_DAYS = ("mon", "tue", "wed")
_ROWS_MAX = 5


class WorldEvents:
    """Triggers events in one simulation."""

    def __init__(self, simulation: Simulation) -> None:
        self._sim = simulation
        self._rng = simulation.rng
        self._shapes: dict[TablePath, tuple[int, str, bool]] = {}
        self._dropped_days: set[tuple[TablePath, str]] = set()

    def begin(self) -> None:
        """Creates one or two tables with some rows."""
        for number in range(self._rng.randint(1, 2)):
            path = TablePath("db", f"t{number}")
            freshness = self._rng.choice(("1s", "10s", "1min", "3min"))
            self._shapes[path] = self._rng.randint(1, 3), freshness, self._rng.random() < 0.5
            self._create(path)
            for _ in range(3):
                self._append(self._sim.cluster.tables[path], empty=False)

    def trigger(self) -> None:
        """Triggers one random event, most often new rows."""
        sim, roll = self._sim, self._rng.random()
        path = self._rng.choice(list(sim.cluster.tables))
        fluss, table = sim.cluster.tables[path], sim.lake.tables.get(path)
        if roll < 0.5:
            self._append(fluss, empty=roll < 0.08)
        elif roll < 0.56:
            self._truncate(fluss)
        elif roll < 0.61:
            sim.note("coordinator restarted")
            sim.cluster.restart()
        elif roll < 0.72:
            self._partition(fluss)
        elif roll < 0.735:
            sim.note("table dropped and created again")
            self._create(path)
        elif roll < 0.77:
            self.drop_foreign_lake_table(path)
        elif table is not None:
            self._foreign(path, table, roll)

    def drop_foreign_lake_table(self, path: TablePath) -> None:
        """Drops or renames the lake table of a Fluss table that was dropped and created again."""
        sim = self._sim
        table = sim.lake.tables.get(path)
        ours = (
            None
            if table is None
            else table.newest_tiering_snapshot() or table.history().newest_tiering_snapshot()
        )
        table_id = str(sim.cluster.tables[path].described.table_id)
        if ours is None or ours.summary[TABLE_ID_KEY] == table_id:
            return
        rename = self._rng.random() < 0.5
        sim.note("lake table renamed" if rename else "lake table dropped")
        sim.lake.drop(path, rename=rename)

    # ---- Fluss ----

    def _create(self, path: TablePath) -> None:
        buckets, freshness, partitioned = self._shapes[path]
        fluss = self._sim.cluster.create_table(path, buckets, freshness, partitioned=partitioned)
        if partitioned:
            self._add_partition(fluss, "mon")

    def _append(self, fluss: FlussTable, *, empty: bool) -> None:
        buckets = fluss.buckets()
        if not buckets:
            return
        bucket = self._rng.choice(buckets)
        rows = 0 if empty else self._rng.randint(1, _ROWS_MAX)
        fluss.add(bucket, rows, self._sim.clock.now_ms())
        self._sim.checker.acknowledged[bucket] = fluss.acknowledged[bucket]
        if isinstance(fluss, KeyedFlussTable):
            self._sim.checker.changes[bucket] = fluss.history[bucket]
        self._sim.note("empty batch appended" if empty else "rows appended")

    def _truncate(self, fluss: FlussTable) -> None:
        """Applies log retention to rows that the lake has; other rows would be lost for good."""
        registered = fluss.latest_registered()
        if registered is None or self._is_behind(fluss):
            return
        for bucket in fluss.buckets():
            held = registered.offsets.get(bucket, 0)
            log = fluss.logs.get(bucket, [])
            if log and log[0].next_offset <= held:
                self._sim.note("log truncated")
                first = next((r.base_offset for r in log if r.next_offset > held), held)
                fluss.truncate_before(bucket, first)

    def _partition(self, fluss: FlussTable) -> None:
        if not fluss.described.is_partitioned:
            return
        there = {partition.values[0]: partition for partition in fluss.partition_list}
        day = self._rng.choice(_DAYS)
        if day in there and self._is_behind(fluss):
            return  # the lake may lack rows that only this partition's logs have
        if day in there:
            self._sim.note("partition dropped")
            fluss.partition_list.remove(there[day])
            self._dropped_days.add((fluss.described.path, day))
            return
        again = (fluss.described.path, day) in self._dropped_days
        self._sim.note("partition created again" if again else "partition created")
        self._add_partition(fluss, day)

    def _add_partition(self, fluss: FlussTable, day: str) -> None:
        partition = Partition(self._sim.cluster.next_id(), (day,))
        fluss.partition_list.append(partition)
        self._sim.checker.values[partition.partition_id] = partition.values

    # ---- the lake ----

    def _foreign(self, path: TablePath, table: SimTable, roll: float) -> None:
        sim, rng = self._sim, self._rng
        if roll < 0.84:
            if table.compact(rng):
                sim.note("compaction")
        elif roll < 0.88:
            sim.note("foreign append")
            table.append_foreign()
        elif roll < 0.94:
            fluss = sim.cluster.tables[path]
            if not self._is_behind(fluss) and table.expire_snapshots(rng):
                sim.note("snapshots expired")
        elif roll < 0.96 and table.rolled_back_at < 0:  # else nobody could tell what main holds
            sim.note("old metadata removed")
            table.forget_expired()
        elif self._may_roll_back() and table.roll_back(rng, sim.born):
            sim.note("rolled back")
            if rng.random() < 0.5:
                sim.spawn("user", sim.actor_factory.repairer(path))

    def _is_behind(self, fluss: FlussTable) -> bool:
        """Whether the lake is behind Fluss; a repair may need what clean-up removes."""
        table = self._sim.lake.tables.get(fluss.described.path)
        if table is None:
            return fluss.latest_registered() is not None
        return self._sim.checker.behind(fluss, table)

    def _may_roll_back(self) -> bool:
        """Whether a user may roll back: not while clean-up and drivers run (docs/clean-up.md)."""
        return not self._sim.cleans or not self._sim.actors
