"""Repairs of lake tables whose rows were deleted by position: what is read afterwards is right.

Each ends with rounds that delete rows by position again.
"""

from __future__ import annotations

import pytest

from sluice.driver.repairing import RepairResult, diagnose_table, repair
from tests.spark.conftest import STOCK, LocalStock
from tests.spark.rounds.test_bucket_repairs import damage_last, log_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]
EXPIRE = (
    f"CALL lake.system.expire_snapshots(table => '{STOCK}', retain_last => 1,"
    " older_than => timestamp '2100-01-01')"
)
COMPACT = (
    f"CALL lake.system.rewrite_data_files(table => '{STOCK}', options => map("
    "'rewrite-all', 'true'))"
)
versions = pytest.mark.parametrize("version", [2, pytest.param(3, marks=pytest.mark.long)])
others = pytest.mark.parametrize("version", [pytest.param(2, marks=pytest.mark.long), 3])


def put_right(stock: LocalStock, by: str, skip: tuple[str, int] | None = None) -> RepairResult:
    config, jvm = stock.site.config, stock.site.jvm
    done = repair(config, STOCK, by, skip=skip, wait_ms=20_000, jvm=jvm)
    assert diagnose_table(config, STOCK, jvm).healthy
    return done


def three_rounds(stock: LocalStock, version: int) -> list[int]:
    """The second and the third one delete rows by position; the lake's snapshots."""
    stock.create(version=version)
    stock.put({key: key for key in range(40)})
    found = [stock.tier().lake_snapshot_id]
    for first in (0, 10):
        stock.put({key: -key for key in range(first, first + 15)})
        stock.delete(first, 30 + first // 10)
        result = stock.tier()
        assert result.deletes_as == "positions"
        found.append(result.lake_snapshot_id)
    stock.assert_equal()
    return [one for one in found if one is not None]


def assert_right_from_now_on(stock: LocalStock) -> None:
    """What was acknowledged is in the lake, and stays so when the same keys change again."""
    stock.assert_equal()
    for sign in (1, 2):
        stock.put({key: sign * 1000 + key for key in range(5, 35)})
        stock.delete(6, 7)
        assert stock.tier().deletes_as == "positions"
        stock.assert_equal()


def lose_the_last(stock: LocalStock, main: int) -> None:
    """Main goes back to a snapshot, and no later one is left."""
    stock.rows("ALTER TABLE {lake} DROP TAG `sluice-tiered`")
    stock.rows(f"CALL lake.system.set_current_snapshot('{STOCK}', {main})")
    stock.rows(EXPIRE)


@versions
def test_a_rollback_is_undone(stock: LocalStock, version: int) -> None:
    _, second, _ = three_rounds(stock, version)
    stock.rows(f"CALL lake.system.rollback_to_snapshot('{STOCK}', {second})")
    assert put_right(stock, "restore").result is None
    assert_right_from_now_on(stock)


@others
def test_rows_and_deletes_that_were_lost_are_copied_again(stock: LocalStock, version: int) -> None:
    _, second, _ = three_rounds(stock, version)
    lose_the_last(stock, second)
    result = put_right(stock, "retier").result
    assert result is not None
    assert result.deletes_as == "positions"
    assert_right_from_now_on(stock)


@versions
def test_a_compaction_that_is_all_that_is_left_is_adopted(stock: LocalStock, version: int) -> None:
    three_rounds(stock, version)
    for _ in range(2):
        stock.rows(COMPACT)
    stock.rows("ALTER TABLE {lake} DROP TAG `sluice-tiered`")
    stock.rows(EXPIRE)
    put_right(stock, "adopt")
    assert_right_from_now_on(stock)


@others
def test_a_lost_bucket_is_rebuilt_while_another_is_copied_again(
    stock: LocalStock, version: int
) -> None:
    """One commit removes a bucket's files with their marks, and marks rows of another bucket."""
    first, _, _ = three_rounds(stock, version)
    log = log_of(stock.data_dir, 1)
    offset = damage_last(log)
    stock.snapshots()
    lose_the_last(stock, first)
    done = put_right(stock, "retier", ("1", offset))
    assert done.result is not None
    assert done.result.deletes_as == "positions"
    stock.tier()
    assert_right_from_now_on(stock)


@pytest.mark.parametrize("version", [pytest.param(2, marks=pytest.mark.long), 3])
def test_a_rebuilt_bucket_has_no_marks_of_its_earlier_files(
    stock: LocalStock, version: int
) -> None:
    three_rounds(stock, version)
    before = stock.rows("SELECT file_path FROM {lake}.files WHERE partition.id_bucket = 0")
    stock.put(dict.fromkeys(range(40), 7))
    offset = damage_last(log_of(stock.data_dir, 1))
    stock.snapshots()
    put_right(stock, "rebuild", ("1", offset))
    files = stock.rows("SELECT content, partition.id_bucket, file_path FROM {lake}.files")
    assert {content for content, bucket, _ in files if bucket == 1} == {0}
    assert {row.file_path for row in before} <= {path for _, bucket, path in files if bucket == 0}
    stock.tier()
    assert_right_from_now_on(stock)
