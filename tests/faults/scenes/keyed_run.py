"""Rounds of tables with a primary key under random changes: what may happen, and what must."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

from sluice.model import Partition
from sluice.rounds.records.result import RoundResult
from tests.faults.scenes.keyed_world import REGIONS, KeyedScene, KeyedTable
from tests.faults.scenes.scene import COMPACT
from tests.support.harness.meanwhile import Meanwhile
from tests.support.programs.processes import wait_for

DRIVER_STEPS = (
    "round.plan.after",
    "round.copy.after",
    "round.prepare.after",
    "round.lake_commit.ready",
    "round.lake_commit.after",
    "round.fluss_commit.after",
    "round.report.before",
)
MUST_OCCUR = (
    "FULL image",
    "WAL image",
    "snapshot overlapping the log",
    "re-insert",
    "deletes only",
    "delete of an unknown key",
    "partition created again",
    "column added",
    "foreign compaction between plan and commit",
    "window cut",
    "driver killed",
)

Event = Callable[[KeyedTable], None]


class Run:
    """One run: its two tables, one with each changelog image, and what happened."""

    columns_added = True

    def __init__(self, scenes: Sequence[KeyedScene], random: Random) -> None:
        self.random, self.seen = random, Counter[str]()
        self.tables = [KeyedTable(scene, random, self.seen) for scene in scenes]

    def play(self, events: list[Event], rounds: int) -> None:
        """These and plain rounds in a random order, and a last one each, which leaves nothing."""
        events = [*events, *[self.plain] * (rounds - len(events))]
        self.random.shuffle(events)
        for table in self.tables:
            self.plain(table)
        for number, event in enumerate(events):
            table = self.tables[number % 2]
            if self.columns_added and number in (rounds // 2, rounds // 2 + 1):
                table.add_column()
            event(table)
        for table in self.tables:
            self.tier(table)
            for region in REGIONS:
                assert table.lake[region] == table.rows[region]

    def close(self) -> None:
        for table in self.tables:
            table.scene.close()

    def assert_occurred(self, *more: str) -> None:
        wanted = [what for what in MUST_OCCUR if what != "column added" or self.columns_added]
        missing = [what for what in (*wanted, *more) if not self.seen[what]]
        assert not missing, f"did not occur: {missing}; did: {dict(self.seen)}"

    # -- events; each ends with a whole round

    def plain(self, table: KeyedTable) -> None:
        table.write(self.random.randrange(1, 4))
        self.tier(table)

    def write_meanwhile(self, table: KeyedTable) -> None:
        table.write()
        with Meanwhile(lambda: table.write(3)):
            result = table.scene.tier_until_done()
        table.check(result)

    def cut(self, table: KeyedTable) -> None:
        table.write(4)
        table.scene.max_round_bytes = 1
        self.tier(table)
        table.scene.max_round_bytes = 0

    def spill(self, table: KeyedTable) -> None:
        """The changes of the window do not fit the memory, and go to disk by their keys."""
        usual = table.scene.changes_memory_bytes
        table.scene.changes_memory_bytes = 1_000
        table.write(4)
        self.tier(table)
        table.scene.changes_memory_bytes = usual

    def only_deletes(self, table: KeyedTable) -> None:
        table.write()
        self.tier(table)
        if table.delete_some():
            self.tier(table)

    def create_again(self, table: KeyedTable) -> None:
        """With more rows than a snapshot has of it; whether it has any is left to chance."""
        region = self.random.choice(REGIONS)
        table.write()
        table.create_again(region)
        for _ in range(3):
            table.write()
        self.wait_for_a_snapshot(table, region)
        table.write(4)
        self.tier(table)

    def begin_beside_changes(self, table: KeyedTable) -> None:
        """A partition's first round holds a snapshot of all its rows, and then some change."""
        region = self.random.choice(REGIONS)
        table.create_again(region)
        table.write(3, region)
        self.wait_for_all_in_snapshots(table, region)
        driver = table.scene.stop_tier("round.lease.after")
        table.change_every_second(region)
        driver.go_on()
        assert driver.wait() == 0, driver.said
        table.check(RoundResult.from_json(driver.printed()))

    def wait_for_all_in_snapshots(self, table: KeyedTable, region: str) -> None:
        path, partition = table.scene.path, Partition(table.ids[region][-1], (region,))
        with table.scene.client() as client:
            ends = client.admin.list_offsets(path, partition_id=partition.partition_id)
            written = {number: end for number, end in ends.items() if end}

            def are_there() -> bool:
                latest = client.leases.latest(path, partition).snapshots
                return {b.bucket: found.log_offset for b, found in latest.items()} == written

            wait_for(f"KV snapshots of all of {path} partition {region}", are_there)

    def wait_for_a_snapshot(self, table: KeyedTable, region: str) -> None:
        with table.scene.client() as client:
            path, partition = table.scene.path, Partition(table.ids[region][-1], (region,))
            wait_for(
                f"a KV snapshot of {path} partition {region}",
                lambda: client.leases.latest(path, partition).snapshots,
            )

    def compact_meanwhile(self, table: KeyedTable) -> None:
        self.plain(table)
        table.write()
        driver = table.scene.stop_tier("round.lake_commit.ready")
        table.scene.sql(COMPACT)
        self.seen["foreign compaction between plan and commit"] += 1
        driver.go_on()
        assert driver.wait() == 0, driver.said
        table.write()
        self.tier(table)

    def kill_driver(self, table: KeyedTable) -> None:
        table.write(2)
        table.scene.kill_tier(self.random.choice(DRIVER_STEPS))
        self.seen["driver killed"] += 1
        table.write()
        self.tier(table)

    # -- parts of them

    def tier(self, table: KeyedTable) -> None:
        """A round that has no reason to fail, and what it left in the lake."""
        table.check(table.scene.tier())

    def until_done(self, table: KeyedTable) -> None:
        table.check(table.scene.tier_until_done())
