"""kill -9 of ``sluice tier`` at each step of a round that compacts its table.

The next round leaves the lake equal to what was acknowledged, and clean-up removes what no snapshot
references.
"""

from __future__ import annotations

import pytest

from tests.faults.conftest import BeginKeyed
from tests.faults.scenes.keyed_world import REGIONS, KeyedTable
from tests.faults.scenes.scene import COMPACT, Scene
from tests.support.harness.findings import finding

pytestmark = [pytest.mark.spark, pytest.mark.slow]
LONG = [pytest.mark.long]
BEFORE_COMMIT = (
    "round.compaction.before",
    "round.copy.file.before@6",
    "round.compaction.after",
    "round.compaction.after@2",
    "round.copy.after",
    "round.prepare.after",
    "round.lake_commit.ready",
)
AFTER_COMMIT = ("round.lake_commit.after", "round.fluss_commit.after", "round.unused_files.before")
REWRITES = ("round.compaction.after", "round.rewrite.before", "round.rewrite.ready")


def grown(begin: BeginKeyed, version: int) -> KeyedTable:
    """A table whose next round compacts each bucket: many rows of its files are deleted."""
    table = begin(version, auto_compaction=True)
    for _ in range(2):
        change(table)
        table.scene.tier()
    return table


def change(table: KeyedTable) -> None:
    for region in REGIONS:
        table.write(2, region)


def compacted_again(table: KeyedTable) -> list[str]:
    """The next round, what it leaves, and what clean-up removes."""
    change(table)
    result = table.scene.tier()
    table.check(result)
    orphans = table.scene.report().orphans
    table.scene.check_whole()
    return orphans


@pytest.mark.parametrize(
    ("version", "step"),
    [
        (2, "round.lake_commit.ready"),
        *(
            pytest.param(version, step, marks=LONG)
            for version in (2, 3)
            for step in (*BEFORE_COMMIT, *AFTER_COMMIT)
            if (version, step) != (2, "round.lake_commit.ready")
        ),
    ],
)
def test_a_driver_killed_at_a_step_of_a_compaction(
    begin_keyed: BeginKeyed, version: int, step: str
) -> None:
    table = grown(begin_keyed, version)
    change(table)
    table.scene.kill_tier(step)
    with finding():
        left = table.scene.report().orphans
        assert left
    if step == "round.lake_commit.ready":
        assert any("-compacted-" in path for path in left)
    if step in AFTER_COMMIT:  # the round's own rows, which compacted files contain
        assert any(path.endswith("00001.parquet") for path in left)
        assert not any("-compacted-" in path for path in left)
    assert compacted_again(table) == left


@pytest.mark.parametrize(
    ("version", "step"),
    [
        pytest.param(version, f"round.lookup_again.{when}", marks=LONG)
        for version in (2, 3)
        for when in ("before", "after")
    ],
)
def test_a_driver_killed_while_it_gives_its_compaction_up(
    begin_keyed: BeginKeyed, version: int, step: str
) -> None:
    table = grown(begin_keyed, version)
    change(table)
    table.scene.kill_tier_beside(COMPACT, step)
    left = table.scene.report().orphans
    with finding():
        assert any("-compacted-" in path for path in left)
    assert compacted_again(table) == left


@pytest.mark.parametrize(
    "step",
    ["round.rewrite.ready", *(pytest.param(one, marks=LONG) for one in REWRITES[:2])],
)
def test_a_driver_killed_before_it_commits_rewritten_files_of_a_log_table(
    compacted_scene: Scene, step: str
) -> None:
    scene = compacted_scene
    for _ in range(4):
        scene.append(200)
        scene.tier()
    scene.append(200)
    scene.kill_tier(step)
    with finding():
        left = scene.report().orphans
        assert any("-compacted-" in path for path in left)
    scene.append(200)
    assert scene.tier().files_compacted > 0
    scene.check_whole()


@pytest.mark.long
def test_a_driver_killed_after_it_committed_rewritten_files(compacted_scene: Scene) -> None:
    """Only its own rows are not in the lake yet: the next round copies them."""
    scene = compacted_scene
    for _ in range(4):
        scene.append(200)
        scene.tier()
    scene.append(200)
    scene.kill_tier("round.rewrite.after")
    with finding():
        left = scene.report().orphans
        assert left
        assert not any("-compacted-" in path for path in left)
    result = scene.tier()
    assert (result.rows, result.files_compacted) == (200, 0)
    scene.check_whole()
