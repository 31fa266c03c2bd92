"""Rounds that died, and a lake that Spark SQL has maintained, rolled back or expired meanwhile."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from sluice.client.tiering.tiering import TieringClient
from sluice.driver.local import tier_once
from sluice.driver.repairing import RepairResult, diagnose_table, repair
from sluice.errors import LakeOffsetsLost, LakeRolledBack, LakeTableMissing, TableNotDue
from sluice.lake.iceberg.lake import IcebergLake
from sluice.lake.iceberg.table import IcebergTable
from sluice.model import Claim, LakeSnapshotInfo, TableBucket, TableInfo, TablePath
from sluice.model import types as t
from sluice.rounds.commit.commit import commit_round
from sluice.rounds.commit.files import RoundFiles
from sluice.rounds.plan.plan import RoundPlan
from sluice.rounds.records.result import RoundResult
from sluice.rounds.repair.diagnosis import Diagnosis
from sluice.rounds.values.attempt import Attempt, RoundPorts
from sluice.rounds.values.ports import SplitRunner, SplitWriterFactory
from tests.spark.conftest import Site

pytestmark = pytest.mark.spark
PATH = TablePath("shop", "orders")
EXPIRE = (
    "CALL lake.system.expire_snapshots(table => 'shop.orders', retain_last => 1,"
    " older_than => timestamp '2100-01-01')"
)
COMPACT = (
    "CALL lake.system.rewrite_data_files(table => 'shop.orders', options => map("
    "'rewrite-all', 'true'))"
)


def tier(site: Site) -> RoundResult:
    """One round, as soon as the table is due."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return tier_once(site.config, PATH, jvm=site.jvm)
        except TableNotDue:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def found(site: Site) -> Diagnosis:
    return diagnose_table(site.config, PATH, site.jvm)


def ways(site: Site) -> dict[str, bool]:
    """Each way that is open: whether it is without loss."""
    return {way.name: not way.risks for way in found(site).actions}


def put_right(site: Site, by: str | None = None) -> RepairResult:
    return repair(site.config, PATH, by, wait_ms=60_000, jvm=site.jvm)


def fill(site: Site, first: int, count: int) -> None:
    site.append(PATH, pa.table({"id": pa.array(range(first, first + count), pa.int64())}))


def assert_rows(site: Site, count: int) -> None:
    """Rows 0 to ``count`` are in the lake once each, and Fluss knows the lake's newest of ours."""
    seen = site.rows("SELECT count(*), count(DISTINCT id), sum(id) FROM lake.shop.orders")
    assert tuple(seen[0]) == (count, count, sum(range(count)))
    registered = site.client.admin.lake_snapshot(PATH)
    assert registered is not None
    assert sum(registered.offsets.values()) == count
    tag = site.rows("SELECT snapshot_id FROM lake.shop.orders.refs WHERE name = 'sluice-tiered'")
    assert [row[0] for row in tag] == [registered.snapshot_id]


@pytest.fixture
def two_rounds(site: Site, arm: Callable[[str], None]) -> Site:
    """A table whose second round died right after its commit to the lake."""
    site.create(PATH, {"id": t.BIGINT}, bucket_count=1)
    fill(site, 0, 10)
    tier(site)
    fill(site, 10, 5)
    arm("round.lake_commit.after=raise")
    with pytest.raises(RuntimeError, match=r"round\.lake_commit\.after"):
        tier(site)
    return site


@pytest.mark.slow
def test_compaction_and_expiry_after_a_death_before_the_registration_double_nothing(
    two_rounds: Site,
) -> None:
    """The tag comes with the commit itself: no expiry takes a snapshot that Fluss does not know."""
    site = two_rounds
    site.rows(COMPACT)
    site.rows(EXPIRE)
    fill(site, 15, 3)
    result = tier(site)
    assert (result.recovered_snapshot_id is not None, result.rows) == (True, 3)
    assert_rows(site, 18)


# ---- rolled back ----


@pytest.fixture
def rolled_back(site: Site) -> Site:
    """Ten rows in the lake, and five that were there before Spark SQL rolled it back."""
    site.create(PATH, {"id": t.BIGINT}, bucket_count=1)
    fill(site, 0, 10)
    first = tier(site)
    fill(site, 10, 5)
    tier(site)
    site.rows(f"CALL lake.system.rollback_to_snapshot('shop.orders', {first.lake_snapshot_id})")
    return site


def test_a_rollback_is_put_right_by_the_command_that_the_error_names(rolled_back: Site) -> None:
    site = rolled_back
    fill(site, 15, 5)
    with pytest.raises(LakeRolledBack, match=r"is behind .*`sluice repair shop\.orders`"):
        tier(site)
    answer = found(site)
    assert answer.recommended is not None
    assert answer.recommended.name == "restore"
    done = put_right(site)
    assert (done.action, done.result) == (answer.recommended, None)
    assert found(site).healthy
    assert tier(site).rows == 5
    assert_rows(site, 20)


def test_rows_that_the_lake_lost_for_good_are_copied_from_the_log_again(rolled_back: Site) -> None:
    """Not even the snapshot that main was set back to is left, but in an earlier metadata file."""
    site = rolled_back
    drop_tag(site)
    site.rows(COMPACT)
    site.rows(EXPIRE)
    assert ways(site) == {"retier": True, "adopt": False}
    done = put_right(site)
    assert done.result is not None
    assert done.result.rows == 5
    assert_rows(site, 15)
    assert found(site).healthy


@pytest.mark.slow
def test_a_rollback_is_put_right_by_the_statement_of_the_page_too(rolled_back: Site) -> None:
    site = rolled_back
    with pytest.raises(LakeRolledBack) as caught:
        tier(site)
    snapshot_id = caught.value.details["registered_snapshot_id"]
    site.rows(f"CALL lake.system.set_current_snapshot('shop.orders', {snapshot_id})")
    assert tier(site).outcome == "nothing_new"
    assert_rows(site, 15)


@pytest.mark.slow
def test_another_writers_rows_since_the_rollback_are_not_dropped_without_a_word(
    rolled_back: Site,
) -> None:
    site = rolled_back
    site.rows("INSERT INTO lake.shop.orders VALUES (99)")
    assert ways(site) == {"retier": True, "restore": False}
    [restore] = [way for way in found(site).actions if way.name == "restore"]
    assert "another writer's, append, +1 rows" in restore.risks[0]
    put_right(site)
    seen = site.rows("SELECT count(*), count(DISTINCT id), sum(id) FROM lake.shop.orders")
    assert tuple(seen[0]) == (16, 16, 99 + sum(range(15)))


# ---- expired ----


def drop_tag(site: Site) -> None:
    site.rows("ALTER TABLE lake.shop.orders DROP TAG `sluice-tiered`")


@pytest.mark.slow
@pytest.mark.parametrize("proof", [True, False], ids=["proven", "not-proven"])
def test_a_mark_that_has_expired_is_set_again(site: Site, proof: bool) -> None:
    site.create(PATH, {"id": t.BIGINT}, bucket_count=1)
    fill(site, 0, 10)
    tier(site)
    drop_tag(site)
    for _ in range(2):  # so that no snapshot that is left has ours as its parent
        site.rows(COMPACT)
    site.rows(EXPIRE)
    if not proof:
        metadata = site.warehouse / "shop" / "orders" / "metadata"
        versions = sorted(
            metadata.glob("v*.metadata.json"), key=lambda p: int(p.name.split(".")[0][1:])
        )
        for old in versions[:-1]:
            old.unlink()
    fill(site, 10, 5)
    with pytest.raises(LakeRolledBack, match="no tiering snapshot"):
        tier(site)
    assert ways(site) == {"adopt": proof}
    if not proof:
        with pytest.raises(LakeRolledBack, match="--by adopt"):
            put_right(site)
    done = put_right(site, None if proof else "adopt")
    assert done.result is not None
    assert done.result.rows == 5
    assert_rows(site, 15)


@pytest.mark.slow
def test_maintenance_as_it_should_be_needs_no_repair(site: Site) -> None:
    """Compaction, expiry and orphan removal between rounds, again and again."""
    site.create(PATH, {"id": t.BIGINT}, bucket_count=1)
    for first in range(0, 30, 10):
        fill(site, first, 10)
        assert tier(site).rows == 10
        for statement in (COMPACT, COMPACT, EXPIRE):
            site.rows(statement)
        site.rows("CALL lake.system.remove_orphan_files(table => 'shop.orders')")
        assert found(site).healthy
        assert tier(site).outcome == "nothing_new"
    assert_rows(site, 30)


# ---- missing ----


@contextmanager
def set_aside(site: Site, tmp_path: Path) -> Iterator[Path]:
    """All that makes the lake table a table, but its newest metadata file."""
    metadata = site.warehouse / "shop" / "orders" / "metadata"
    versions = sorted(
        metadata.glob("v*.metadata.json"), key=lambda p: int(p.name.split(".")[0][1:])
    )
    kept = tmp_path / versions[-1].name
    shutil.copy(versions[-1], kept)
    for file in [*versions, metadata / "version-hint.text"]:
        file.unlink()
    yield kept


@pytest.mark.slow
def test_a_lost_table_comes_back_by_the_statement_of_the_page(site: Site, tmp_path: Path) -> None:
    site.create(PATH, {"id": t.BIGINT}, bucket_count=1)
    fill(site, 0, 10)
    tier(site)
    with set_aside(site, tmp_path) as kept:
        fill(site, 10, 5)
        with pytest.raises(LakeTableMissing, match=r"missing in .*`sluice repair shop\.orders`"):
            tier(site)
        [statement] = [text for text in found(site).advice if "register_table" in text]
        call = statement[statement.index(".system") :].replace("METADATA_FILE", str(kept))
        site.rows(f"CALL lake{call}")
    assert tier(site).rows == 5
    assert_rows(site, 15)


@pytest.mark.slow
def test_a_lost_table_is_made_anew_from_the_log_when_that_is_wanted(site: Site) -> None:
    site.create(PATH, {"id": t.BIGINT}, bucket_count=1)
    fill(site, 0, 10)
    tier(site)
    shutil.rmtree(site.warehouse / "shop" / "orders")
    fill(site, 10, 5)
    assert ways(site) == {"retier": False}
    with pytest.raises(LakeTableMissing, match="--by retier"):
        put_right(site)
    assert not (site.warehouse / "shop" / "orders").exists()
    done = put_right(site, "retier")
    assert done.result is not None
    assert done.result.rows == 10
    assert tier(site).rows == 5
    assert_rows(site, 15)


# ---- more offsets than a summary holds ----


MANY = 12_000


@pytest.mark.slow
def test_the_offsets_of_thousands_of_partitions_lie_beside_and_recover(
    site: Site, arm: Callable[[str], None]
) -> None:
    """As of a table with a partition for each hour of a year and more, dropped since."""
    site.create(PATH, {"id": t.BIGINT, "day": t.STRING}, partition_keys=("day",), bucket_count=1)
    claim = site.claim(PATH)
    gone = {TableBucket(claim.table_id, 10_000 + n, 0): 7 * n + 1 for n in range(MANY)}
    with lake_of(site) as lake:
        table = lake.create(site.client.admin.table_info(PATH))
        commit_offsets(site.client.tiering, lake, claim, table, gone)
    site.client.tiering.finished(claim)
    site.client.admin.create_partition(PATH, {"day": "a"})

    def fill_day(first: int, count: int) -> None:
        ids = pa.array(range(first, first + count), pa.int64())
        site.append(PATH, pa.table({"id": ids, "day": ["a"] * count}))

    fill_day(0, 10)
    arm("round.fluss_commit.before=raise")
    with pytest.raises(RuntimeError):
        tier(site)
    arm("")
    beside = sorted(site.warehouse.rglob("_sluice-offsets-*.json"), key=os.path.getmtime)
    assert len(beside) == 2
    for file in beside:  # old enough for Iceberg's own clean-up
        os.utime(file, (0, 0))
    site.rows("CALL lake.system.remove_orphan_files(table => 'shop.orders')")  # 3 days and older
    assert all(file.exists() for file in beside), "Iceberg passes over names that begin with _"

    content = beside[-1].read_bytes()
    beside[-1].write_bytes(content[:-1])
    with pytest.raises(LakeOffsetsLost, match=f"has {len(content) - 1} bytes"):
        tier(site)
    assert ways(site) == {"restore": False}, "main would go back behind a snapshot of ours"
    beside[-1].write_bytes(content)
    fill_day(10, 5)
    result = tier(site)
    assert (result.recovered_snapshot_id is not None, result.rows) == (True, 5)
    registered = site.client.admin.lake_snapshot(PATH)
    assert registered is not None
    assert len(registered.offsets) == MANY + 1
    seen = site.rows("SELECT count(*), count(DISTINCT id), sum(id) FROM lake.shop.orders")
    assert tuple(seen[0]) == (15, 15, sum(range(15)))
    summary = site.rows("SELECT max(length(to_json(summary))) FROM lake.shop.orders.snapshots")
    assert summary[0][0] < 5_000


@contextmanager
def lake_of(site: Site) -> Iterator[IcebergLake]:
    lake = IcebergLake(site.jvm.gateway, site.config.datalake.iceberg, site.config.tiering)
    with closing(lake):
        yield lake


def commit_offsets(
    tiering: TieringClient,
    lake: IcebergLake,
    claim: Claim,
    table: IcebergTable,
    offsets: dict[TableBucket, int],
) -> None:
    """A round's commit without files."""

    def no_runner(info: TableInfo, writers: SplitWriterFactory) -> SplitRunner:
        raise AssertionError("nothing is copied")

    info = tiering.table_info(claim.path)
    plan = RoundPlan(info, None, LakeSnapshotInfo(claim.table_id, -1, offsets), (), 0)
    attempt = Attempt.begun(claim, RoundPorts(tiering, lake, no_runner), "w")
    commit_round(attempt, table, plan, RoundFiles([]), "w")
