"""Maintenance of the lake table by Spark SQL between a round's plan and its commit.

Snapshots of other writers are no conflict; a lake that was rolled back is.
"""

from __future__ import annotations

import pytest

from sluice.errors import LakeRolledBack
from tests.faults.scene import COMPACT, Scene
from tests.support.findings import finding

pytestmark = pytest.mark.spark

EXPIRE = (
    "CALL lake.system.expire_snapshots(table => '{name}', retain_last => 1,"
    " older_than => TIMESTAMP '2100-01-01 00:00:00')"
)


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
