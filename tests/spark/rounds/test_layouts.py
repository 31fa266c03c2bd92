"""Each layout, each kind of table, and whatever happens to it: the lake equals a replay.

The replay is plain Python (``tests/support/lake/layout_tables.py``). A test is one cell of
:data:`CELLS`. Those of :data:`SLOW` are in the slow tests, all others in the long ones.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from sluice.driver.cleaning import clean_tables
from sluice.driver.repairing import RepairResult, diagnose_table, repair
from sluice.driver.table_health import table_findings
from sluice.errors import SplitFailed
from sluice.rounds.upkeep.compaction import AUTO_COMPACTION
from tests.spark.conftest import STOCK, LocalStock
from tests.spark.rounds.test_bucket_repairs import damage_last
from tests.spark.rounds.tiered_layouts import Tiered
from tests.spark.upkeep.test_maintain import maintained
from tests.support.lake.aged_lake import age_snapshots
from tests.support.lake.layout_tables import KINDS

pytestmark = [pytest.mark.spark, pytest.mark.slow]
WEEK_MS = 7 * 24 * 3_600_000
FAR_MS = 2**62
COMPACTED_BY = 12
"""Rounds after which a table must have been compacted, if rows go to its buckets at random."""


def three_rounds(table: Tiered) -> None:
    table.create()
    for number in range(3):
        table.insert(number)
        assert table.tier().outcome == "committed"
        table.check()


def updates_and_deletes(table: Tiered) -> None:
    table.create()
    table.step(0)
    table.tier()
    for number in (1, 2, 3):
        table.by_positions(number)
        table.check()


def compaction(table: Tiered) -> None:
    table.create(**{AUTO_COMPACTION: "true"})
    until_compacted(table, 0)


def until_compacted(table: Tiered, number: int) -> int:
    """Rounds until one has compacted, and two more; returns the number of the next step."""
    end = number + COMPACTED_BY
    table.step(number)
    while not table.tier().files_compacted:
        number += 1
        assert number < end, "no round has compacted"
        table.step(number)
    table.check()
    for more in (1, 2):
        table.by_positions(number + more)
    return number + 3


def expiry(table: Tiered) -> None:
    table.create()
    for number in range(6):
        table.step(number)
        table.tier()
    age_snapshots(table.folder, WEEK_MS)
    table.step(6)
    assert table.tier(auto_expire_snapshot=True).snapshots_expired == 5
    table.check()
    table.by_positions(7)


def kill_and_recovery(table: Tiered) -> None:
    """Rounds that end before and after the commit to the lake; ``tests/faults`` kills others."""
    table.create()
    table.step(0)
    table.tier()
    for place, number in {
        "prepare.after": 1,
        "lake_commit.after": 3,
        "fluss_commit.before": 5,
    }.items():
        stop_at(table, place, number)
        table.step(number + 1)
        result = table.tier()
        assert (result.recovered_snapshot_id is not None) == (place != "prepare.after")
        table.check()
    clean(table)
    assert table.orphans() == set()


def stop_at(table: Tiered, place: str, number: int) -> None:
    """A step whose round ends there."""
    table.step(number)
    table.arm(f"round.{place}=raise")
    with pytest.raises(RuntimeError, match="failpoint"):
        table.tier()
    table.arm("")


def clean(table: Tiered) -> None:
    """As `sluice clean` does."""
    site = table.stock.site
    [report] = clean_tables(site.config, STOCK, apply=True, jvm=site.jvm)
    assert not report.error


def retier(table: Tiered) -> None:
    """Main loses two rounds and their snapshots, then the lake its table.

    The second of these rounds began a partition.
    """
    table.create()
    table.step(0)
    kept = table.tier().lake_snapshot_id
    for number in (1, 2):
        table.step(number)
        table.tier()
    lose(table, kept)
    done = put_right(table, "retier")
    assert done.result is not None
    table.check()
    table.by_positions(3)
    shutil.rmtree(table.folder)
    put_right(table, "retier")
    table.check()
    table.by_positions(4)


def lose(table: Tiered, kept: int | None) -> None:
    """Main goes back to a snapshot, and no later one is left."""
    java = table.java()
    java.manageSnapshots().removeTag("sluice-tiered").setCurrentSnapshot(kept).commit()
    java.expireSnapshots().expireOlderThan(FAR_MS).retainLast(1).commit()


def put_right(table: Tiered, by: str, skip: tuple[str, int] | None = None) -> RepairResult:
    site = table.stock.site
    return repair(site.config, STOCK, by, skip=skip, wait_ms=60_000, jvm=site.jvm)


def repairs(table: Tiered) -> None:
    """Main is rolled back, and restored; a batch cannot be read, and is skipped or rebuilt."""
    table.create()
    table.step(0)
    kept = table.tier().lake_snapshot_id
    table.by_positions(1)
    table.java().manageSnapshots().rollbackTo(kept).commit()
    put_right(table, "restore")
    table.check()
    table.step(2)
    damage_newest(table)
    with pytest.raises(SplitFailed):
        table.tier()
    site = table.stock.site
    bucket, _, offset = diagnose_table(site.config, STOCK, site.jvm).batch.rpartition(":")
    if table.kind.is_keyed:
        table.stock.snapshots()
    put_right(table, "rebuild" if table.kind.is_keyed else "skip", (bucket, int(offset)))
    table.tier()
    table.check()
    table.by_positions(3)


def damage_newest(table: Tiered) -> None:
    """Damages the last batch of one log, which is not tiered yet."""
    logs = table.logs()
    place = max(logs, key=lambda one: logs[one]["__timestamp"].to_pylist()[-1:])
    partition, bucket = place
    folders = [*table.stock.data_dir.rglob(f"log-{bucket}")]
    [folder] = [one for one in folders if not partition or one.parent.name.startswith(partition)]
    [file] = folder.glob("*.log")
    base = damage_last(file)
    table.is_damaged = True
    if not table.kind.is_keyed:
        lost = [row for row in logs[place].to_pylist() if row["__offset"] >= base]
        table.replay.lose(row["id"] for row in lost)
        table.skipped[place] = {row["__offset"] for row in lost}


def conversion(table: Tiered) -> None:
    """Equality deletes become positions."""
    table.create()
    table.step(0)
    table.tier(position_lookup_bytes=0)
    for number in (1, 2):
        table.step(number)
        assert table.tier().deletes_as.startswith("equality deletes")
    table.check_by_spark()  # PyIceberg reads no table with equality deletes
    report = maintained(table.stock)
    assert report.before.equality_files > 0
    assert report.after is not None
    assert (report.after.equality_files, report.notes) == (0, [])
    table.check()
    table.step(3)
    assert table.tier(position_lookup_bytes=1 << 30).deletes_as == "positions"


def foreign_compaction(table: Tiered) -> None:
    """Spark rewrites the files; then rounds delete, compact and are lost in the new ones."""
    table.create()
    for number in range(3):
        table.step(number)
        table.tier()
    rewrite(table)
    table.check()
    stop_at(table, "lake_commit.after", 3)
    rewrite(table)
    assert table.tier().recovered_snapshot_id is not None
    table.check()
    properties = {AUTO_COMPACTION: "true"}
    table.stock.client.admin.set_options(STOCK, properties)
    number = until_compacted(table, 4)
    kept = table.newest()
    table.by_positions(number)
    rewrite(table)
    clean(table)
    table.check()
    lose(table, kept)
    put_right(table, "retier")
    table.check()
    table.by_positions(number + 1)
    [found] = table_findings(table.stock.site.config, table.stock.site.jvm)
    assert found.ok, found


def rewrite(table: Tiered) -> None:
    """By Spark's own procedures."""
    options = "options => map('rewrite-all', 'true', 'remove-dangling-deletes', 'true')"
    table.stock.rows(f"CALL lake.system.rewrite_data_files(table => '{STOCK}', {options})")
    if table.kind.is_keyed:
        options = "options => map('rewrite-all', 'true')"
        call = "CALL lake.system.rewrite_position_delete_files"
        table.stock.rows(f"{call}(table => '{STOCK}', {options})")


SCENARIOS: dict[str, Callable[[Tiered], None]] = {
    one.__name__: one
    for one in (
        three_rounds,
        updates_and_deletes,
        compaction,
        expiry,
        kill_and_recovery,
        retier,
        repairs,
        conversion,
        foreign_compaction,
    )
}
LOGS = [name for name, kind in KINDS.items() if not kind.is_keyed]
LEFT_OUT = {
    **{(name, "updates_and_deletes"): "a log table has no keys" for name in LOGS},
    **{(name, "conversion"): "a log table has no deletes" for name in LOGS},
}
"""Cells that do not exist, by kind and scenario, and why."""
WITHOUT = {"foreign_compaction": "c_time"}
"""The column that a kind has not in a scenario: Spark rewrites no table that has one of TIME."""
SLOW = {
    ("clean", "log", "repairs"),
    ("clean", "partitioned log", "retier"),
    ("clean", "log of all types", "compaction"),
    ("clean", "nested log", "three_rounds"),
    ("clean", "keyed", "foreign_compaction"),
    ("clean", "partitioned keyed", "conversion"),
    ("clean", "keyed", "kill_and_recovery"),
    ("clean", "keyed of all types", "expiry"),
    ("clean", "nested keyed", "updates_and_deletes"),
    ("legacy", "log", "foreign_compaction"),
    ("legacy", "partitioned log", "kill_and_recovery"),
    ("legacy", "log of all types", "expiry"),
    ("legacy", "nested log", "compaction"),
    ("legacy", "keyed", "repairs"),
    ("legacy", "partitioned keyed", "retier"),
    ("legacy", "keyed of all types", "updates_and_deletes"),
    ("legacy", "nested keyed", "three_rounds"),
    ("legacy", "nested keyed", "conversion"),
}
"""Each scenario and each kind once for each layout."""
CELLS = [
    (layout, kind, scenario)
    for layout in ("clean", "legacy")
    for kind in KINDS
    for scenario in SCENARIOS
    if (kind, scenario) not in LEFT_OUT
]


@pytest.mark.parametrize(
    ("layout", "kind", "scenario"),
    [
        pytest.param(*cell, id=" ".join(cell), marks=() if cell in SLOW else pytest.mark.long)
        for cell in CELLS
    ],
)
def test_the_lake_equals_a_replay(
    stock: LocalStock, layout: str, kind: str, scenario: str, arm: Callable[[str], None]
) -> None:
    chosen = KINDS[kind]
    if (left_out := WITHOUT.get(scenario)) is not None:
        chosen = chosen.without(left_out)
    table = Tiered(stock, chosen, layout, arm)
    SCENARIOS[scenario](table)
    table.check()
    table.check_files()


@pytest.mark.parametrize("layout", ["clean", "legacy"])
def test_the_slow_cells_cover_each_kind_and_each_scenario(layout: str) -> None:
    chosen = [cell for cell in CELLS if cell in SLOW and cell[0] == layout]
    assert {kind for _, kind, _ in chosen} == {*KINDS}
    assert {scenario for _, _, scenario in chosen} == {*SCENARIOS}
    assert {*CELLS} >= SLOW
