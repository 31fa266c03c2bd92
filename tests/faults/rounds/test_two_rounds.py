"""Two drivers of one table at once, as processes of their own: what one committed is not doubled.

Both have planned from the same base and written all their files before either one commits.
"""

from __future__ import annotations

import pytest

from tests.faults.scenes.scene import Scene
from tests.support.harness.findings import finding

pytestmark = pytest.mark.spark
FILES_WRITTEN = "round.copy.after=stop"
COMMIT_READY = "round.lake_commit.ready=stop"


@pytest.mark.slow
def test_two_tries_under_one_claim_the_second_finds_the_round_landed(scene: Scene) -> None:
    scene.append(200)
    claim = scene.claim()
    first = scene.start_round(claim, "a1", FILES_WRITTEN)
    first.wait_until_stopped()
    second = scene.start_round(claim, "a2", FILES_WRITTEN)
    second.wait_until_stopped()
    first.go_on()
    assert first.wait() == 0, first.said
    second.go_on()
    assert second.wait() == 0, second.said
    assert (scene.outcome(claim, "a1"), scene.outcome(claim, "a2")) == (
        "committed",
        "already_landed",
    )
    scene.check_no_orphans("the second has deleted what it had written")


@pytest.mark.slow
def test_two_tries_under_one_claim_that_commit_at_the_same_moment(scene: Scene) -> None:
    scene.append(200)
    scene.tier()
    scene.append(200)
    claim = scene.claim()
    drivers = [scene.start_round(claim, attempt, COMMIT_READY) for attempt in ("a1", "a2")]
    for driver in drivers:
        driver.wait_until_stopped()
    for driver in drivers:
        driver.go_on()
    assert [driver.wait() for driver in drivers] == [0, 0], drivers[0].said + drivers[1].said
    outcomes = [scene.outcome(claim, attempt) for attempt in ("a1", "a2")]
    assert sorted(outcomes) == ["already_landed", "committed"]
    scene.check_no_orphans()


@pytest.mark.parametrize(
    ("step", "ends_as"),
    [
        (COMMIT_READY, "LakeCommitRefused"),
        pytest.param("round.lake_commit.before=stop", "LakeCommitRefused", marks=pytest.mark.long),
        pytest.param("round.prepare.after=stop", "LakeCommitRefused", marks=pytest.mark.long),
        pytest.param(FILES_WRITTEN, "claim_lost", marks=pytest.mark.long),
    ],
)
def test_an_older_round_that_goes_on_after_a_newer_one_committed(
    scene: Scene, step: str, ends_as: str
) -> None:
    """It was asked whether it is still wanted before the newer one began: only the base tells."""
    scene.append(200)
    old = scene.claim()
    late = scene.start_round(old, "late", step)
    late.wait_until_stopped()
    scene.report_lost()
    scene.append(100)
    assert scene.tier().rows == 300
    late.go_on()
    assert late.wait() == (0 if ends_as == "claim_lost" else 1), late.said
    assert scene.outcome(old, "late") == ends_as
    scene.check_no_orphans("refused, it has deleted what it had written")
    scene.append(50)
    assert scene.tier().rows == 50
    scene.check_whole()


@pytest.mark.slow
def test_without_the_fence_the_older_round_doubles_every_row(scene: Scene) -> None:
    """The control: the same, but for a fence that lets every commit through."""
    scene.append(200)
    old = scene.claim()
    late = scene.start_round(old, "late", COMMIT_READY, "--without-fence")
    late.wait_until_stopped()
    scene.report_lost()
    scene.append(100)
    assert scene.tier().rows == 300
    late.go_on()
    late.wait()
    report = scene.report()
    with finding():
        assert report.doubled == 200
        assert report.rows == 500


@pytest.mark.slow
def test_rounds_of_two_epochs_that_commit_at_the_same_moment(scene: Scene) -> None:
    """One of them lands, whichever; the next round finds the lake and Fluss to agree."""
    scene.append(200)
    scene.tier()
    scene.append(200)
    old = scene.claim()
    drivers = [scene.start_round(old, "old", COMMIT_READY)]
    drivers[0].wait_until_stopped()
    scene.report_lost()
    new = scene.claim()
    drivers.append(scene.start_round(new, "new", COMMIT_READY))
    drivers[1].wait_until_stopped()
    for driver in drivers:
        driver.go_on()
    for driver in drivers:
        driver.wait()
    outcomes = (scene.outcome(old, "old"), scene.outcome(new, "new"))
    assert outcomes in (
        ("LakeCommitRefused", "committed"),
        ("claim_lost", "LakeCommitRefused"),
    ), "the old one may land, and yet not register"
    scene.report_lost()
    scene.append(50)
    scene.tier()
    scene.check_whole()


@pytest.mark.slow
def test_an_older_round_that_landed_and_registers_after_a_newer_one(scene: Scene) -> None:
    """Registered offsets do not go back: the newer round has registered the older one's already."""
    scene.append(200)
    old = scene.claim()
    late = scene.start_round(old, "late", "round.fluss_commit.before=stop")
    late.wait_until_stopped()
    scene.report_lost()
    scene.append(100)
    newer = scene.tier()
    assert (newer.rows, newer.recovered_snapshot_id is not None) == (100, True)
    late.go_on()
    assert late.wait() == 0, late.said
    assert scene.outcome(old, "late") in ("committed", "claim_lost")
    with scene.client() as client:
        registered = client.admin.lake_snapshot(scene.path)
    assert registered is not None
    assert registered.snapshot_id == newer.lake_snapshot_id
    scene.check_whole()
