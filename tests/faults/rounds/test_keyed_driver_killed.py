"""kill -9 of ``sluice tier`` in rounds that delete rows by position, and while they look them up.

The next round leaves the lake equal to what was acknowledged. What no snapshot references, spare
files of a round that committed among it, is removed by clean-up, and not before its round is over.
"""

from __future__ import annotations

import pytest

from sluice.rounds.upkeep.orphans import CleanReport
from tests.faults.conftest import BeginKeyed
from tests.faults.rounds.test_driver_killed import LEAVE_FILES, OTHERS, QUICK, SLOW
from tests.faults.scenes.keyed_world import REGIONS, KeyedTable, compaction_of
from tests.faults.scenes.scene import COMPACT
from tests.support.harness.findings import finding

pytestmark = [pytest.mark.spark, pytest.mark.slow]
LONG = [pytest.mark.long]
AFTER_COMMIT = {
    "round.lake_commit.after",
    "round.fluss_commit.before",
    "round.fluss_commit.after",
    "round.unused_files.before",
}
"""Only spare files are left: the keys of the positions, as equality deletes."""
POSITIONS = {2: "-positions.parquet", 3: "-deletes.puffin"}
"""The ends of names of files of positions, by the format version."""
STEPS = (
    *QUICK,
    *SLOW,
    *OTHERS,
    "round.copy.file.before@4",
    "round.copy.file.after@4",
    "round.copy.file.after@8",
)


def whole_again(table: KeyedTable) -> list[str]:
    """The next round, what it leaves, and what clean-up removes."""
    table.write()
    result = table.scene.tier()
    assert result.deletes_as == "positions"
    table.check(result)
    orphans = table.scene.report().orphans
    table.scene.check_whole()
    return orphans


@pytest.mark.parametrize(
    ("version", "step"),
    [
        (3, "round.lake_commit.ready"),
        *(
            pytest.param(version, step, marks=LONG)
            for version in (2, 3)
            for step in STEPS
            if (version, step) != (3, "round.lake_commit.ready")
        ),
    ],
)
def test_a_driver_killed_at_a_step_of_a_round_with_positions(
    begin_keyed: BeginKeyed, version: int, step: str
) -> None:
    table = begin_keyed(version)
    table.write(4)
    table.scene.kill_tier(step)
    name = step.partition("@")[0]
    with finding():
        left = table.scene.report().orphans
        assert bool(left) == (name in LEAVE_FILES | AFTER_COMMIT)
    orphans = whole_again(table)
    assert orphans == left
    if name in ("round.copy.after", "round.lake_commit.ready"):
        assert any(path.endswith(POSITIONS[version]) for path in orphans)


@pytest.mark.parametrize(
    ("version", "step"),
    [
        (2, "round.lookup_again.after"),
        pytest.param(3, "round.lookup_again.after", marks=LONG),
        pytest.param(2, "round.lookup_again.before", marks=LONG),
        pytest.param(3, "round.lookup_again.before", marks=LONG),
    ],
)
def test_a_driver_killed_after_others_rewrote_its_data_files(
    begin_keyed: BeginKeyed, version: int, step: str
) -> None:
    table = begin_keyed(version)
    table.write(4)
    table.scene.kill_tier_beside(COMPACT, step)
    left = table.scene.report().orphans
    with finding():
        assert left != []
    assert whole_again(table) == left


@pytest.mark.parametrize(
    ("version", "step"),
    [
        (3, "round.unused_files.before"),
        pytest.param(2, "round.unused_files.before", marks=LONG),
        pytest.param(2, "round.lake_commit.after", marks=LONG),
    ],
)
def test_clean_up_after_a_partition_was_looked_up_again(
    begin_keyed: BeginKeyed, version: int, step: str
) -> None:
    """The deletes of the other partition are committed; those that others outdated are not."""
    table = begin_keyed(version)
    for region in REGIONS:
        table.write(2, region)
    table.scene.kill_tier_beside(compaction_of("eu"), step)
    left = table.scene.report().orphans
    outdated = [path for path in left if POSITIONS[version] in path]
    with finding():
        assert outdated
        assert all("region=eu" in path for path in outdated)
    assert whole_again(table) == left


@pytest.mark.long
@pytest.mark.parametrize("version", [2, 3])
def test_clean_up_after_a_driver_killed_before_it_removed_its_spare_files(
    begin_keyed: BeginKeyed, version: int
) -> None:
    """Its own commit has followed its base, so nobody waits for another one."""
    table = begin_keyed(version)
    table.write(4)
    table.scene.kill_tier("round.unused_files.before")
    spare = table.scene.check().orphans
    with finding():
        assert spare
        assert all(path.endswith("-deletes.parquet") for path in spare)
    table.scene.check_whole()
    table.write()
    table.check(table.scene.tier())


@pytest.mark.parametrize("version", [pytest.param(2, marks=LONG), 3])
def test_clean_up_beside_a_round_that_is_about_to_look_rows_up_again(
    begin_keyed: BeginKeyed, version: int
) -> None:
    """Its keys are only in files that no snapshot references."""
    table = begin_keyed(version)
    table.write(4)
    stops = "round.lake_commit.ready=stop,round.lookup_again.before=stop"
    driver = table.scene.start_tier(stops)
    driver.wait_until_stopped()
    table.scene.sql(COMPACT)
    removed = [table.scene.clean()]
    driver.go_on()
    driver.wait_until_stopped()
    removed.append(table.scene.clean())
    with finding():
        assert all(_kept_all(done) for done in removed)
    driver.go_on()
    assert driver.wait() == 0, driver.said
    table.scene.check_no_orphans("it has removed what it did not need")
    assert "looked up again" in str(driver.printed()["notes"])
    table.write()
    table.check(table.scene.tier())


def _kept_all(done: CleanReport) -> bool:
    """Data, positions and keys."""
    names = [left.path.rpartition("-")[2] for left in done.kept]
    return done.removed == [] and len({*names}) == 3
