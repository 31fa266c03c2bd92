"""kill -9 of ``sluice tier`` before and after each step of a round.

The next round leaves every acknowledged row in the lake exactly once, whatever the dead one had
done; what it had not committed is at most a file that nobody references, and clean-up removes it.
"""

from __future__ import annotations

import pytest

from tests.faults.scenes.scene import Scene
from tests.support.harness.findings import finding

pytestmark = pytest.mark.spark  # the checker reads with Spark

QUICK = ["round.lake_commit.after"]
SLOW = ["round.lake_commit.ready", "round.fluss_commit.after"]
OTHERS = [
    "round.claim.before",
    "round.claim.after",
    "round.recover.before",
    "round.recover.after",
    "round.plan.before",
    "round.plan.after",
    "round.copy.before",
    "round.copy.file.before",
    "round.copy.file.after",
    "round.copy.after",
    "round.prepare.before",
    "round.prepare.after",
    "round.lake_commit.before",
    "round.fluss_commit.before",
    "round.report.before",
    "round.report.after",
]
LEAVE_FILES = {
    "round.copy.file.before",
    "round.copy.file.after",
    "round.copy.after",
    "round.prepare.before",
    "round.prepare.after",
    "round.lake_commit.before",
    "round.lake_commit.ready",
}
"""Files are written and nothing references them: what clean-up is there for."""


@pytest.mark.parametrize(
    "step",
    [
        *QUICK,
        *(pytest.param(step, marks=pytest.mark.slow) for step in SLOW),
        *(pytest.param(step, marks=pytest.mark.long) for step in OTHERS),
    ],
)
def test_a_driver_killed_at_a_step_of_its_second_round(scene: Scene, step: str) -> None:
    scene.append(300)
    scene.tier()
    scene.append(200)
    scene.kill_tier(step)
    with finding():
        assert bool(scene.report().orphans) == (step in LEAVE_FILES)
    scene.append(100)
    scene.tier()
    scene.check_whole()


@pytest.mark.slow
@pytest.mark.parametrize(
    "step",
    [
        "round.fluss_commit.before",
        *(
            pytest.param(step, marks=pytest.mark.long)
            for step in ("round.recover.after", "round.copy.after", "round.lake_commit.ready")
        ),
    ],
)
def test_a_driver_killed_in_the_first_round_of_a_table(scene: Scene, step: str) -> None:
    """Nothing is registered, and the lake table has just been made."""
    scene.append(300)
    scene.kill_tier(step)
    scene.tier()
    scene.check_whole()


@pytest.mark.slow
@pytest.mark.parametrize(
    "step",
    ["round.recover.prepared", pytest.param("round.recover.after", marks=pytest.mark.long)],
)
def test_a_driver_killed_while_it_registers_what_a_dead_one_committed(
    scene: Scene, step: str
) -> None:
    scene.append(300)
    scene.kill_tier("round.lake_commit.after")
    scene.append(200)
    scene.kill_tier(step)
    scene.append(100)
    scene.tier()
    scene.check_whole()


@pytest.mark.slow
def test_drivers_killed_one_after_the_other_at_every_commit(scene: Scene) -> None:
    """Three dead rounds in a row, each further on than the one before."""
    for step in ("round.prepare.after", "round.lake_commit.after", "round.fluss_commit.after"):
        scene.append(200)
        scene.kill_tier(step)
    scene.tier()
    scene.check_whole()
