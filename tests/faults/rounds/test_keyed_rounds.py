"""Random changes, rounds and kills: after each whole round the lake of a table equals the model.

Of two tables, one with each changelog image. What must occur at least once is put into the plan of
a run; that it did occur is asserted at its end.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from sluice.model import TablePath
from tests.faults.scenes.keyed_run import Event, Run
from tests.faults.scenes.keyed_world import KeyedScene, KeyedTable
from tests.support.harness.meanwhile import Meanwhile
from tests.support.harness.nightly import NIGHTLY
from tests.support.programs.processes import ServerProcess, served

ROUNDS = 40
"""Of one run."""
FEW_ROUNDS = 26
"""Of the run of seed 0: the events of each kind, and three plain rounds between them."""
SEEDS = 10 if NIGHTLY else 6
SERVER_STEPS = (
    "server.put_kv.before_log",
    "server.put_kv.after_log",
    "server.put_kv.after_store",
    "server.kv_snapshot.before_record",
    "server.kv_snapshot.after_record",
)
SERVER_ROUND_STEPS = ("server.commit_lake.before", "server.commit_lake.after")
SETTINGS = {
    "SLUICE_SERVER_TIERING_CHECK_INTERVAL_MS": "100",
    "SLUICE_SERVER_KV_SNAPSHOT_INTERVAL_MS": "400",
}


class ServerRun(Run):
    """On a server process of its own, which is killed too."""

    def __init__(
        self, home: Path, server: ServerProcess, jvm: Any, sql: Callable[..., Any], seed: int
    ) -> None:
        self.server = server
        scenes = []
        for image in ("FULL", "WAL"):
            path = TablePath("db", f"{image.lower()}_{seed}")
            layout = "legacy" if image == "FULL" else "clean"
            scene = KeyedScene(home, server, path, jvm, sql, layout=layout)
            scene.image, scene.auto_compaction = image, image == "WAL"
            scene.create()
            scenes.append(scene)
        super().__init__(scenes, Random(seed))

    def events(self) -> list[Event]:
        return [
            *[self.kill_driver] * 2,
            self.kill_server_during_puts,
            self.kill_server_during_a_round,
            self.compact_meanwhile,
            self.begin_beside_changes,
            *[self.cut] * 3,
            *[self.only_deletes] * 2,
            *[self.create_again] * 4,
            *[self.spill] * 4,
            *[self.write_meanwhile] * 4,
        ]

    def kill_server_during_puts(self, table: KeyedTable) -> None:
        step = self.random.choice(SERVER_STEPS)
        # Six flushes are six puts at least, and snapshots of the two buckets of a partition.
        passages = 5 if ".put_kv." in step else 2
        self.start_server(f"{step}=kill@{self.random.randrange(passages) + 1}")
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

    def start_server(self, failpoints: str) -> None:
        self.server.kill()
        try:
            self.server.start(SLUICE_FAILPOINTS=failpoints)
        except AssertionError:  # snapshots begin before it is ready
            if "kv_snapshot" not in failpoints:
                raise
            assert self.server.wait_until_dead(120) == -signal.SIGKILL, failpoints

    def wait_until_dead(self) -> None:
        assert self.server.wait_until_dead(120) == -signal.SIGKILL
        self.server.kill()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with served(tmp_path / "fluss", **SETTINGS) as running:
        yield running


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("seed", "rounds"),
    [
        (0, FEW_ROUNDS),
        *(pytest.param(n, ROUNDS, marks=pytest.mark.long) for n in range(SEEDS)),
    ],
)
def test_the_lake_equals_what_was_acknowledged(
    tmp_path: Path,
    server: ServerProcess,
    spark_jvm: Any,
    lake_sql: Callable[[Path, str], list[Any]],
    seed: int,
    rounds: int,
) -> None:
    run = ServerRun(tmp_path, server, spark_jvm, lake_sql, seed)
    try:
        run.play(run.events(), rounds)
    finally:
        run.close()
    run.assert_occurred("server killed during puts", "server killed during a round")
