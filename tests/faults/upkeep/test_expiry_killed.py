"""kill -9 of ``sluice tier`` while old snapshots expire after its commit.

The rows are in the lake and registered. What is left is files that no snapshot references.
``sluice clean`` removes those that rounds have written, and leaves manifests and manifest lists.
"""

from __future__ import annotations

import pytest

from sluice.model import TieringRound
from tests.faults.scenes.scene import COMPACT, Scene
from tests.support.harness.findings import finding
from tests.support.lake.aged_lake import age_snapshots

pytestmark = [pytest.mark.spark, pytest.mark.slow]
ROUNDS = 6
WEEK_MS = 7 * 24 * 3_600_000


def old_snapshots(scene: Scene) -> None:
    """A week ago, some rounds, a compaction of their data files, and one more round."""
    with scene.client() as client:
        client.admin.set_options(scene.path, {"table.datalake.auto-expire-snapshot": "true"})
    for number in range(ROUNDS):
        if number == ROUNDS - 1:
            scene.sql(COMPACT)
        scene.append(50)
        assert scene.tier().snapshots_expired == 0
    age_snapshots(scene.table_folder, WEEK_MS)
    scene.append(50)


def snapshots(scene: Scene) -> int:
    [[count]] = scene.sql("SELECT count(*) FROM {t}.snapshots")
    return int(count)


def lost_manifests(scene: Scene) -> set[str]:
    """Manifests and manifest lists that no snapshot references."""
    lists = scene.sql("SELECT manifest_list FROM {t}.snapshots")
    manifests = scene.sql("SELECT path FROM {t}.all_manifests")
    known = {row[0].rpartition("/")[2] for row in (*lists, *manifests)}
    return {path.name for path in scene.table_folder.rglob("metadata/*.avro")} - known


def newest_round(scene: Scene) -> TieringRound:
    with scene.client() as client:
        return client.statuses.history(scene.path)[0]


@pytest.mark.parametrize(
    ("step", "expires", "deletes"),
    [
        ("round.expire.committed", True, False),
        pytest.param("round.expire.before", False, False, marks=pytest.mark.long),
        pytest.param("round.expire.after", True, True, marks=pytest.mark.long),
    ],
)
def test_a_driver_killed_while_snapshots_expire(
    scene: Scene, step: str, expires: bool, deletes: bool
) -> None:
    old_snapshots(scene)
    before = snapshots(scene)
    scene.kill_tier(step)
    assert snapshots(scene) == (2 if expires else before + 1)
    left, manifests = scene.check().orphans, lost_manifests(scene)
    with finding():
        assert bool(left) == bool(manifests) == (expires and not deletes)
    scene.append(50)
    result = scene.tier()
    assert (result.notes, result.snapshots_expired > 0) == ((), not expires)
    told = newest_round(scene)
    assert (told.snapshots_expired, told.files_expired) == (
        result.snapshots_expired,
        result.files_expired,
    )
    scene.check_whole()  # clean-up removes what the driver left
    with finding():
        assert lost_manifests(scene) == manifests
