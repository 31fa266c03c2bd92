"""SIGSTOP of ``sluice tier`` until it is given up for lost, and SIGCONT after another round.

The driver wakes up, believes nothing has happened, and goes on where it stood.
"""

from __future__ import annotations

import pytest

from tests.faults.scenes.scene import Scene
from tests.support.programs.processes import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.parametrize(
    ("step", "landed"),
    [
        pytest.param("round.plan.after", False, marks=pytest.mark.long),
        pytest.param("round.copy.file.before", False, marks=pytest.mark.long),
        pytest.param("round.copy.after", False, marks=pytest.mark.long),
        pytest.param("round.lake_commit.before", False, marks=pytest.mark.long),
        pytest.param("round.lake_commit.ready", False, marks=pytest.mark.long),
        ("round.fluss_commit.before", True),
    ],
)
def test_a_driver_stopped_beyond_the_time_out_and_continued_after_another_round(
    quick_scene: Scene, step: str, landed: bool
) -> None:
    scene = quick_scene
    scene.append(200)
    scene.tier_until_done()
    scene.append(200)
    driver = scene.start_tier(f"{step}=stop")
    with scene.claim_kept():  # a busy machine takes longer to the step than a claim lives
        driver.wait_until_stopped()
    epoch = scene.status().tiering_epoch
    wait_for("the coordinator to give it up", lambda: scene.status().status != "Tiering", 60)
    assert "no heartbeat" in (scene.status().last_error or "")
    scene.append(100)
    other = scene.tier_until_done()
    assert other.tiering_epoch > epoch
    assert (other.recovered_snapshot_id is not None) == landed
    driver.go_on()
    code = driver.wait()
    if code == 1:
        assert "the newest tiering snapshot is no longer the planned base" in driver.said
    elif landed:
        assert (code, driver.printed()["outcome"] in ("claim_lost", "committed")) == (0, True)
    else:
        assert (code, driver.printed()["outcome"]) == (3, "claim_lost"), driver.said
    scene.check_no_orphans("refused, it has deleted what it had written")
    scene.append(50)
    scene.tier_until_done()
    scene.check_whole()
