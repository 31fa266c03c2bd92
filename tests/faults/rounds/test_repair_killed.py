"""``sluice repair`` as a process: what it says, killed at each of its steps, and beside a round."""

from __future__ import annotations

import json
import signal

import pytest

from sluice.driver.repairing import diagnose_table, repair
from tests.faults.scenes.scene import Scene
from tests.support.programs.driver_process import DriverProcess
from tests.support.programs.processes import SLUICE, sluice

pytestmark = [pytest.mark.spark, pytest.mark.slow]
EXPIRE = (
    "CALL lake.system.expire_snapshots(table => '{name}', retain_last => 1,"
    " older_than => TIMESTAMP '2100-01-01 00:00:00')"
)


def command(scene: Scene, *words: str) -> list[str]:
    place = ["--bootstrap", scene.server.address, "--warehouse", str(scene.warehouse)]
    return ["repair", str(scene.path), *place, *words]


def start_repair(scene: Scene, failpoints: str, *words: str) -> DriverProcess:
    return scene._started([SLUICE, *command(scene, "--yes", *words)], failpoints)


def roll_back(scene: Scene) -> None:
    """Two rounds, the second one rolled back."""
    for _ in range(2):
        scene.append(100)
        scene.tier()
    first = scene.sql("SELECT snapshot_id FROM {t}.snapshots ORDER BY committed_at")[0]
    scene.sql(f"CALL lake.system.rollback_to_snapshot('{{name}}', {first.snapshot_id})")


def lose_the_second(scene: Scene) -> None:
    roll_back(scene)
    scene.sql("ALTER TABLE {t} DROP TAG `sluice-tiered`")
    scene.sql(EXPIRE)


def mend(scene: Scene) -> None:
    """What a person does after a repair that died: looks, and does what is proposed."""
    scene.report_lost()
    config = scene.config()
    if not diagnose_table(config, scene.path, scene.jvm).healthy:
        repair(config, scene.path, wait_ms=60_000, jvm=scene.jvm)
    assert diagnose_table(config, scene.path, scene.jvm).healthy
    scene.append(50)
    assert scene.tier().rows == 50
    scene.check_whole()


def test_it_shows_what_it_would_do_before_it_does(scene: Scene) -> None:
    roll_back(scene)
    before = scene.sql("SELECT * FROM {t}.refs ORDER BY name")
    shown = sluice(*command(scene))
    assert shown.returncode == 0, shown.stderr
    assert "nothing was changed; --yes runs the repair restore" in shown.stdout
    assert "retier" in shown.stdout
    assert scene.sql("SELECT * FROM {t}.refs ORDER BY name") == before
    done = sluice(*command(scene, "--yes"))
    assert done.returncode == 0, done.stderr
    assert "done: set main to the registered snapshot again" in done.stdout
    scene.check()


def test_what_loses_something_is_not_done_unless_it_is_named(scene: Scene) -> None:
    for _ in range(2):
        scene.append(100)
        scene.tier()
    lost = scene.warehouse / scene.path.database / scene.path.table
    lost.rename(lost.with_name("elsewhere"))
    shown = sluice(*command(scene))
    assert "name a repair: --by retier --yes" in shown.stdout
    other = sluice(*command(scene, "--by", "adopt"))
    assert "--by adopt is not available for this table" in other.stdout
    refused = sluice(*command(scene, "--yes"))
    assert (refused.returncode, lost.exists()) == (1, False)
    assert "--by retier" in refused.stderr
    done = sluice(*command(scene, "--yes", "--by", "retier"))
    assert done.returncode == 0, done.stderr
    assert "the round: committed to the lake, 200 rows" in done.stdout
    scene.check_whole()
    again = sluice(*command(scene, "--yes", "--format", "json"))
    assert json.loads(again.stdout)["done"] is None


@pytest.mark.parametrize(
    "step", [pytest.param("repair.restore.before", marks=pytest.mark.long), "repair.restore.after"]
)
def test_killed_while_it_moves_main(scene: Scene, step: str) -> None:
    roll_back(scene)
    process = start_repair(scene, f"{step}=kill")
    assert process.wait() == -signal.SIGKILL, process.said
    mend(scene)


@pytest.mark.parametrize(
    "step",
    [
        pytest.param("round.copy.after", marks=pytest.mark.long),
        pytest.param("round.lake_commit.before", marks=pytest.mark.long),
        "round.lake_commit.after",
    ],
)
def test_killed_while_it_copies_again_what_the_lake_lost(scene: Scene, step: str) -> None:
    lose_the_second(scene)
    scene.wait_until_due()
    process = start_repair(scene, f"{step}=kill")
    assert process.wait() == -signal.SIGKILL, process.said
    mend(scene)


def test_killed_while_it_marks_main(scene: Scene) -> None:
    """A compaction is main's only snapshot: ours has expired."""
    scene.append(100)
    scene.tier()
    scene.sql("CALL lake.system.rewrite_data_files(table => '{name}', options => map("
              "'rewrite-all', 'true'))")  # fmt: skip
    scene.sql("ALTER TABLE {t} DROP TAG `sluice-tiered`")
    scene.sql(EXPIRE)
    scene.wait_until_due()
    process = start_repair(scene, "round.lake_commit.after=kill")
    assert process.wait() == -signal.SIGKILL, process.said
    mend(scene)


def test_beside_a_round_that_is_about_to_commit(scene: Scene) -> None:
    """It was planned before the rollback. Main moves back below it; no second round is begun."""
    for _ in range(2):
        scene.append(100)
        scene.tier()
    first = scene.sql("SELECT snapshot_id FROM {t}.snapshots ORDER BY committed_at")[0]
    scene.append(50)
    claim = scene.claim()
    driver = scene.start_round(claim, "a1", "round.lake_commit.ready=stop")
    driver.wait_until_stopped()
    scene.sql(f"CALL lake.system.rollback_to_snapshot('{{name}}', {first.snapshot_id})")
    busy = sluice(*command(scene, "--yes", "--by", "retier", "--wait", "1s"))
    assert busy.returncode == 1
    assert "TableNotDue" in busy.stderr
    done = sluice(*command(scene, "--yes", "--format", "json"))
    assert json.loads(done.stdout)["done"]["repair"] == "restore", done.stderr
    driver.go_on()
    driver.wait()
    assert scene.outcome(claim, "a1") == "committed"
    scene.check_whole()
