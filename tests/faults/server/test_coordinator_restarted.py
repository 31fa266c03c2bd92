"""The server is killed and started again while a driver stands still at a step of its round.

The driver's claim is of the coordinator's former life: it ends as lost, and the next round goes on
from what landed.
"""

from __future__ import annotations

import pytest

from tests.faults.scenes.scene import Scene

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.parametrize(
    ("step", "landed"),
    [
        pytest.param("round.claim.after", False, marks=pytest.mark.long),
        pytest.param("round.plan.after", False, marks=pytest.mark.long),
        pytest.param("round.copy.after", False, marks=pytest.mark.long),
        ("round.prepare.after", True),
        pytest.param("round.lake_commit.after", True, marks=pytest.mark.long),
    ],
)
def test_a_coordinator_restarted_while_a_round_is_at_a_step(
    scene: Scene, step: str, landed: bool
) -> None:
    """Between prepare and lake commit nobody is asked: the round lands, and is registered later."""
    scene.append(200)
    scene.tier()
    scene.append(200)
    driver = scene.start_tier(f"{step}=stop")
    driver.wait_until_stopped()
    scene.server.kill()
    scene.server.start()
    driver.go_on()
    assert driver.wait() == (0 if landed else 3), driver.said
    result = driver.printed()
    assert result["outcome"] == "claim_lost"
    assert (result["lake_snapshot_id"] is not None) == landed
    scene.append(100)
    following = scene.tier()
    assert following.rows == (100 if landed else 300)
    assert (following.recovered_snapshot_id is not None) == landed
    scene.check_whole()


def test_a_coordinator_restarted_after_the_fluss_commit_of_a_round_that_cannot_report(
    scene: Scene,
) -> None:
    scene.append(200)
    driver = scene.start_tier("round.report.before=stop")
    driver.wait_until_stopped()
    scene.server.kill()
    scene.server.start()
    driver.go_on()
    assert driver.wait() == 0, driver.said
    assert driver.printed()["outcome"] == "committed"
    scene.append(100)
    assert scene.tier().rows == 100
    scene.check_whole()
