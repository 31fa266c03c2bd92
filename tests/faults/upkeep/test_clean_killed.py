"""``sluice clean --yes`` as a process: beside a driver that stands still, and killed itself."""

from __future__ import annotations

import json
import signal

import pytest

from tests.faults.scenes.scene import Scene
from tests.support.harness.findings import finding
from tests.support.programs.driver_process import DriverProcess
from tests.support.programs.processes import SLUICE

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def start_clean(scene: Scene, failpoints: str = "") -> DriverProcess:
    command = [
        SLUICE, "clean", str(scene.path), "--warehouse", str(scene.warehouse), "--yes",
        "--format", "json",
    ]  # fmt: skip
    return scene._started(command, failpoints)


def cleaned(scene: Scene) -> list[str]:
    """What a clean-up has removed."""
    process = start_clean(scene)
    assert process.wait() == 0, process.said
    [report] = process.printed()["tables"]
    assert report["failed"] == {}, json.dumps(report, indent=1)
    removed: list[str] = report["removed"]
    return removed


def test_a_driver_that_stands_before_its_commit_finds_all_of_its_files(scene: Scene) -> None:
    scene.append(100)
    scene.tier()
    scene.append(100)
    driver = scene.start_tier("round.lake_commit.ready=stop")
    driver.wait_until_stopped()
    orphans, removed = scene.report().orphans, cleaned(scene)
    with finding():
        assert len(orphans) == 2
        assert removed == []
    driver.go_on()
    assert driver.wait() == 0, driver.said
    scene.check_no_orphans()


@pytest.mark.parametrize(
    "step",
    [
        "clean.batch.after",
        pytest.param("clean.batch.before", marks=pytest.mark.long),
        pytest.param("clean.list.after", marks=pytest.mark.long),
    ],
)
def test_a_clean_up_that_is_killed_leaves_nothing_worse(scene: Scene, step: str) -> None:
    scene.append(100)
    scene.tier()
    scene.append(100)
    scene.kill_tier("round.lake_commit.ready")
    scene.tier_until_done()
    with finding():
        assert len(scene.check().orphans) == 2
    process = start_clean(scene, f"{step}=kill")
    assert process.wait() == -signal.SIGKILL, process.said
    left, removed = scene.check().orphans, cleaned(scene)
    with finding():
        assert len(left) == len(removed) == (0 if step == "clean.batch.after" else 2)
    scene.check_no_orphans()
