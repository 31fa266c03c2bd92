"""kill -9 of ``sluice maintain --yes`` at each step.

It holds no claim, so rounds go on beside it. Until its commit nothing has changed; after it, all
has. The files of a conversion that did not commit stay until they are days old.
"""

from __future__ import annotations

import os
import signal
import time

import pytest

from sluice.driver.maintaining import maintain_tables
from sluice.rounds.upkeep.maintenance import METADATA_AGE_MS, MaintenanceReport
from tests.faults.conftest import BeginKeyed
from tests.faults.scenes.keyed_world import KeyedTable
from tests.faults.scenes.scene import Scene
from tests.support.harness.findings import finding

pytestmark = [pytest.mark.spark, pytest.mark.slow]
LONG = [pytest.mark.long]
READY, AFTER = "maintain.convert.ready", "maintain.convert.after"
MANY_ROUNDS = 21


def by_equality(table: KeyedTable) -> None:
    """A round that looks up nothing."""
    table.scene.position_lookup_bytes = 0
    table.write(3)
    result = table.scene.tier()
    assert result.deletes_as.startswith("equality deletes")
    table.check(result)
    table.scene.position_lookup_bytes = 1 << 30


def kill_maintain(scene: Scene, step: str) -> None:
    process = scene.command(
        "maintain", "--yes", "--bootstrap", scene.address, failpoints=f"{step}=kill"
    )
    assert process.wait() == -signal.SIGKILL, process.said


def maintained(scene: Scene) -> MaintenanceReport:
    """``sluice maintain --yes``, in this process."""
    [report] = maintain_tables(scene.config(), scene.path, apply=True, jvm=scene.jvm)
    assert (report.error, report.notes) == ("", [])
    return report


def left_files(scene: Scene) -> set[str]:
    """Data files that no snapshot references; rows and metadata have to be right beside them."""
    report = scene.report()
    with finding():
        assert report.damage == {}
    return set(report.orphans)


def age(paths: set[str]) -> None:
    """Makes files as old as those that maintenance deletes."""
    for path in paths:
        os.utime(path, times=(time.time() - METADATA_AGE_MS / 1000 - 60,) * 2)


@pytest.mark.parametrize(
    ("version", "step"),
    [
        (2, READY),
        *(
            pytest.param(version, step, marks=LONG)
            for version in (2, 3)
            for step in (READY, AFTER, "maintain.orphans.before")
            if (version, step) != (2, READY)
        ),
    ],
)
def test_a_killed_conversion(begin_keyed: BeginKeyed, version: int, step: str) -> None:
    table = begin_keyed(version)
    scene = table.scene
    by_equality(table)
    kill_maintain(scene, step)
    left = left_files(scene)
    with finding():
        assert bool(left) == (step == READY)
        assert all("-maintenance-" in path for path in left)
    table.write(3)
    result = scene.tier()
    assert result.deletes_as == "positions"
    table.check(result)
    report = maintained(scene)
    with finding():
        assert bool(report.before.equality_files) == (step == READY)
        assert report.after is not None
        assert report.after.equality_files == report.after.useless_equality_files == 0
        assert report.orphans_removed == 0
        assert left_files(scene) == left
    age(left)
    report = maintained(scene)
    with finding():
        assert report.orphans_removed == len(left)
        assert left_files(scene) == set()


@pytest.mark.long
@pytest.mark.parametrize("step", ["maintain.manifests.before", "maintain.orphans.before"])
def test_a_maintenance_killed_beside_its_manifests(scene: Scene, step: str) -> None:
    """The next one merges those that are left."""
    for _ in range(MANY_ROUNDS):
        scene.append(5)
        scene.tier()
    kill_maintain(scene, step)
    assert left_files(scene) == set()
    scene.append(5)
    scene.tier()
    report = maintained(scene)
    with finding():
        assert (report.manifests_merged > 0) == (step == "maintain.manifests.before")
    scene.check_whole()
