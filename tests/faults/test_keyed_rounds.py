"""Random changes, rounds and kills: after each whole round the lake of a table equals the model.

Of two tables, one with each changelog image. What must occur at least once is put into the plan of
a run; that it did occur is asserted at its end.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from sluice.model import Partition, TablePath
from tests.faults.keyed_world import REGIONS, KeyedTable, Meanwhile, keyed_table
from tests.support.processes import ServerProcess, served, wait_for

ROUNDS = 40
"""Of one run; ten runs make 400."""
DRIVER_STEPS = (
    "round.lease.after",
    "round.plan.after",
    "round.copy.after",
    "round.prepare.after",
    "round.lake_commit.ready",
    "round.lake_commit.after",
    "round.fluss_commit.after",
    "round.report.before",
)
SERVER_STEPS = (
    "server.put_kv.before_log",
    "server.put_kv.after_log",
    "server.put_kv.after_store",
    "server.kv_snapshot.before_record",
    "server.kv_snapshot.after_record",
)
SERVER_ROUND_STEPS = ("server.commit_lake.before", "server.commit_lake.after")
COMPACT = (
    "CALL lake.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))"
)
SETTINGS = {
    "SLUICE_SERVER_TIERING_CHECK_INTERVAL_MS": "100",
    "SLUICE_SERVER_KV_SNAPSHOT_INTERVAL_MS": "400",
}
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
    "server killed during puts",
    "server killed during a round",
)


class Run:
    """One run: its server, its two tables, and what happened."""

    def __init__(
        self, home: Path, server: ServerProcess, jvm: Any, sql: Callable[..., Any], seed: int
    ) -> None:
        self.server, self.random, self.seen = server, Random(seed), Counter[str]()
        self.tables = [
            keyed_table(
                home,
                server,
                TablePath("db", f"{image.lower()}_{seed}"),
                jvm,
                sql,
                image,
                self.random,
                self.seen,
            )
            for image in ("FULL", "WAL")
        ]

    def play(self) -> None:
        """All rounds in a random order, and a last one each, which leaves nothing untiered."""
        events: list[Callable[[KeyedTable], None]] = [
            *[self.kill_driver] * 2,
            self.kill_server_during_puts,
            self.kill_server_during_a_round,
            self.compact_meanwhile,
            *[self.cut] * 3,
            *[self.only_deletes] * 2,
            *[self.create_again] * 4,
            *[self.spill] * 4,
            *[self.write_meanwhile] * 4,
        ]
        events += [self.plain] * (ROUNDS - len(events))
        self.random.shuffle(events)
        for number, event in enumerate(events):
            table = self.tables[number % 2]
            if number in (ROUNDS // 2, ROUNDS // 2 + 1):
                table.add_column()
            event(table)
        for table in self.tables:
            self.tier(table)
            with table.scene.client() as client:
                registered = client.admin.lake_snapshot(table.scene.path)
            assert registered is not None
            for region in REGIONS:
                assert table.lake[region] == table.rows[region]

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
        driver = table.scene.start_tier("round.lake_commit.ready=stop")
        driver.wait_until_stopped()
        table.scene.sql(COMPACT)
        self.seen["foreign compaction between plan and commit"] += 1
        driver.go_on()
        assert driver.wait() == 0, driver.said
        table.write()
        self.tier(table)

    def kill_driver(self, table: KeyedTable) -> None:
        table.write(2)
        step = self.random.choice(DRIVER_STEPS)
        driver = table.scene.start_tier(f"{step}=kill")
        code = driver.wait()
        if code == -signal.SIGKILL:
            self.seen["driver killed"] += 1
        else:  # only some rounds have a lease
            assert (code, step) == (0, "round.lease.after"), driver.said
        table.scene.report_lost()
        table.write()
        self.tier(table)

    def kill_server_during_puts(self, table: KeyedTable) -> None:
        step = self.random.choice(SERVER_STEPS)
        self.start_server(f"{step}=kill@{self.random.randrange(1, 6)}")
        with Meanwhile(lambda: table.write(6)):
            self.wait_until_dead()
            self.server.start()
        self.seen["server killed during puts"] += 1
        self.until_done(table)

    def kill_server_during_a_round(self, table: KeyedTable) -> None:
        step = self.random.choice(SERVER_ROUND_STEPS)
        self.start_server(f"{step}=kill")
        table.write(2)

        def start_again() -> None:
            self.wait_until_dead()
            self.server.start()

        with Meanwhile(start_again):
            result = table.scene.tier_until_done()
        table.check(result)
        self.seen["server killed during a round"] += 1
        self.until_done(table)

    # -- parts of them

    def start_server(self, failpoints: str) -> None:
        self.server.kill()
        self.server.start(SLUICE_FAILPOINTS=failpoints)

    def wait_until_dead(self) -> None:
        assert self.server.wait_until_dead(120) == -signal.SIGKILL
        self.server.kill()

    def tier(self, table: KeyedTable) -> None:
        """A round that has no reason to fail, and what it left in the lake."""
        table.check(table.scene.tier())

    def until_done(self, table: KeyedTable) -> None:
        table.check(table.scene.tier_until_done())


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with served(tmp_path / "fluss", **SETTINGS) as running:
        yield running


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 10))]
)
def test_the_lake_equals_what_was_acknowledged(
    tmp_path: Path,
    server: ServerProcess,
    spark_jvm: Any,
    lake_sql: Callable[[Path, str], list[Any]],
    seed: int,
) -> None:
    run = Run(tmp_path, server, spark_jvm, lake_sql, seed)
    try:
        run.play()
    finally:
        for table in run.tables:
            table.scene.close()
    missing = [what for what in MUST_OCCUR if not run.seen[what]]
    assert not missing, f"did not occur: {missing}; did: {dict(run.seen)}"
