"""``sluice clean`` beside living rounds, and stopped at its own steps.

It never takes a file that a living round could still commit; a naive one does, and the checker
sees the damage.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.scenes.scene import Scene
from tests.support.harness.findings import finding

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_clean_up_while_a_round_has_written_and_not_committed(scene: Scene) -> None:
    scene.append(200)
    scene.kill_tier("round.copy.after")
    scene.append(100)
    scene.tier()
    dead = scene.report().orphans
    assert dead
    scene.append(100)
    claim = scene.claim()
    driver = scene.start_round(claim, "a1", "round.lake_commit.ready=stop")
    driver.wait_until_stopped()
    living = sorted(set(scene.report().orphans) - set(dead))
    assert living
    done = scene.clean()
    with finding():
        assert sorted(done.removed) == dead
        assert sorted(left.path for left in done.kept) == living
    driver.go_on()
    assert driver.wait() == 0, driver.said
    assert scene.outcome(claim, "a1") == "committed"
    scene.check_no_orphans()


@pytest.mark.no_rerun
def test_naive_clean_up_takes_a_file_that_the_round_then_commits(scene: Scene) -> None:
    """The control: whatever no snapshot references goes, as an orphan's age alone would have it."""
    scene.append(200)
    claim = scene.claim()
    driver = scene.start_round(claim, "a1", "round.lake_commit.ready=stop")
    driver.wait_until_stopped()
    orphans = scene.report().orphans
    assert len(orphans) == 2
    for path in orphans:
        Path(path).unlink()
    driver.go_on()
    assert driver.wait() == 0, driver.said
    damage = scene.report().damage
    assert len(damage["unopened"]) == 2
    assert damage["missing"] == 200


def test_a_round_that_commits_between_the_steps_of_clean_up(scene: Scene) -> None:
    """Its files were listed before anything referenced them."""
    scene.append(200)
    scene.tier()
    scene.append(100)
    scene.kill_tier("round.copy.after")
    claim = scene.claim()
    driver = scene.start_round(claim, "a1", "round.lake_commit.ready=stop")
    driver.wait_until_stopped()
    cleaning = scene.command("clean", "--yes", failpoints="clean.list.after=stop")
    cleaning.wait_until_stopped()
    driver.go_on()
    assert driver.wait() == 0, driver.said
    cleaning.go_on()
    assert cleaning.wait() == 0, cleaning.said
    [told] = cleaning.printed()["tables"]
    assert len(told["removed"]) == 2, "those of the round that was killed"
    scene.check_no_orphans()
