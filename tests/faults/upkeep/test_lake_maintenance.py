"""Maintenance of the lake table by Spark SQL between a round's plan and its commit.

Snapshots of other writers are no conflict; a lake that was rolled back is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest

from sluice.errors import LakeRolledBack
from sluice.model import TablePath
from sluice.rounds.values.write_ids import write_ids_in
from tests.faults.scenes.keyed_world import KeyedScene, KeyedTable
from tests.faults.scenes.maintained import Maintenance, play, replayed, rows_at
from tests.faults.scenes.scene import COMPACT, Scene
from tests.support.clusters.rest_catalog import RestCatalog
from tests.support.harness.findings import finding
from tests.support.harness.meanwhile import Meanwhile
from tests.support.harness.nightly import NIGHTLY
from tests.support.programs.processes import ServerProcess

pytestmark = pytest.mark.spark

EXPIRE = (
    "CALL lake.system.expire_snapshots(table => '{name}', retain_last => 1,"
    " older_than => TIMESTAMP '2100-01-01 00:00:00')"
)

ROUNDS = 200 if NIGHTLY else 60
"""Of the longest loop."""


def two_rounds(scene: Scene) -> None:
    for _ in range(2):
        scene.append(100)
        scene.tier()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("maintenance", "step"),
    [
        pytest.param([COMPACT], "round.copy.after", id="compaction", marks=pytest.mark.long),
        pytest.param(
            [COMPACT], "round.lake_commit.ready", id="compaction-late", marks=pytest.mark.long
        ),
        pytest.param([EXPIRE], "round.copy.after", id="expiry", marks=pytest.mark.long),
        pytest.param([EXPIRE], "round.lake_commit.ready", id="expiry-late", marks=pytest.mark.long),
        pytest.param([COMPACT, EXPIRE], "round.copy.after", id="compaction-and-expiry"),
    ],
)
def test_maintenance_between_plan_and_commit_is_no_conflict(
    scene: Scene, maintenance: list[str], step: str
) -> None:
    two_rounds(scene)
    scene.append(100)
    claim = scene.claim()
    driver = scene.start_round(claim, "a1", f"{step}=stop")
    driver.wait_until_stopped()
    for statement in maintenance:
        scene.sql(statement)
    driver.go_on()
    assert driver.wait() == 0, driver.said
    assert scene.outcome(claim, "a1") == "committed"
    scene.check()
    with scene.client() as client:
        client.tiering.finished(claim)
    scene.append(50)
    assert scene.tier().rows == 50
    scene.check_whole()


@pytest.mark.slow
def test_compaction_and_expiry_after_a_driver_died_between_its_commits(scene: Scene) -> None:
    """The dead round's snapshot is unknown to Fluss; its tag, or its successor, must save it."""
    two_rounds(scene)
    scene.append(100)
    scene.kill_tier("round.fluss_commit.before")
    scene.sql(COMPACT)
    scene.sql(EXPIRE)
    scene.append(50)
    result = scene.tier()
    assert (result.rows, result.recovered_snapshot_id is not None) == (50, True)
    scene.check_whole()


@pytest.mark.slow
@pytest.mark.parametrize(
    "step",
    ["round.lake_commit.ready", pytest.param("round.copy.after", marks=pytest.mark.long)],
)
def test_a_rollback_between_plan_and_commit_refuses_the_round(scene: Scene, step: str) -> None:
    two_rounds(scene)
    first, second = scene.sql("SELECT snapshot_id FROM {t}.snapshots ORDER BY committed_at")
    scene.append(100)
    claim = scene.claim()
    driver = scene.start_round(claim, "a1", f"{step}=stop")
    driver.wait_until_stopped()
    scene.sql(f"CALL lake.system.rollback_to_snapshot('{{name}}', {first.snapshot_id})")
    driver.go_on()
    driver.wait()
    assert scene.outcome(claim, "a1") == "LakeCommitRefused"
    # Main is not known back to the base: the round may have landed before the rollback.
    with finding():
        assert scene.report().orphans != [], "kept until a newer commit proves them dead"
    scene.report_lost()
    with pytest.raises(LakeRolledBack, match=str(second.snapshot_id)):
        scene.tier()
    scene.sql(f"CALL lake.system.set_current_snapshot('{{name}}', {second.snapshot_id})")
    assert scene.tier().rows == 100
    scene.check_whole()


@pytest.fixture
def keyed(
    tmp_path: Path, shared_server: ServerProcess, spark_jvm: Any, spark: Any
) -> Iterator[Callable[[int, bool], KeyedTable]]:
    """A table with a primary key; its lake is in a catalog in which two processes can commit."""
    with ExitStack() as stack:

        def begin(version: int, compacts: bool) -> KeyedTable:
            catalog = stack.enter_context(RestCatalog(spark_jvm.gateway, tmp_path / "lake"))
            name = f"rest_{tmp_path.name}".replace("-", "_")
            spark.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
            for option, value in {**catalog.options, "cache-enabled": "false"}.items():
                spark.conf.set(f"spark.sql.catalog.{name}.{option}", value)

            def sql(_: Path, query: str) -> list[Any]:
                return spark.sql(query.replace("lake.", f"{name}.")).collect()

            path = TablePath("db", f"maintained_{version}_{tmp_path.name}")
            scene = KeyedScene(tmp_path, shared_server, path, spark_jvm, sql)
            stack.callback(scene.close)
            layout = "clean" if version == 2 else "legacy"
            scene.lake, scene.version = {**catalog.options, "layout": layout}, version
            scene.auto_compaction = compacts
            scene.create()
            return KeyedTable(scene, Random(version), Counter())

        yield begin


@pytest.mark.slow
@pytest.mark.no_rerun
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("version", "rounds", "between_kills", "compacts"),
    [
        (2, 2, 2, False),
        pytest.param(2, ROUNDS, 12, True, marks=pytest.mark.long),
        pytest.param(3, ROUNDS // 2, 12, True, marks=pytest.mark.long),
        pytest.param(3, ROUNDS // 2, 12, False, marks=pytest.mark.long),
    ],
)
def test_rounds_beside_compactions_and_deletes(
    keyed: Callable[[int, bool], KeyedTable],
    version: int,
    rounds: int,
    between_kills: int,
    compacts: bool,
) -> None:
    """Others rewrite data files and delete rows all the time, and drivers are killed.

    :param compacts: whether the rounds compact the table, too.
    """
    table = keyed(version, compacts)
    scene, random = table.scene, Random(rounds)
    table.write(6)
    scene.tier()
    maintenance = Maintenance(scene, Random(version))
    with Meanwhile(maintenance.run):
        try:
            outcome = play(table, maintenance, rounds, random, between_kills)
        finally:
            maintenance.end()
    scene.tier()
    print(f"{outcome}, landed {maintenance.landed}, refused {maintenance.refused}")
    with finding():
        expected = [(number, dict(rows)) for number, rows in replayed(scene, maintenance.deleted)]
        for snapshot_id, rows in [*expected[:: max(1, len(expected) // 10)], expected[-1]]:
            assert rows_at(scene, snapshot_id) == rows
        report = scene.report()
        assert set(report.damage) <= {"missing"}, "but for the rows that others have deleted"
        scene.clean()
        assert not [path for path in scene.report().orphans if write_ids_in(path)]
    assert outcome.deletes_as["positions"] >= rounds // 2
    assert outcome.looked_up_again > 0
    assert outcome.killed > 0
    assert (outcome.files_compacted > 0) == compacts
    assert (outcome.given_up > 0) == compacts
    assert all(maintenance.landed[kind] > rounds // 20 for kind in ("rewrite", "DELETE"))
