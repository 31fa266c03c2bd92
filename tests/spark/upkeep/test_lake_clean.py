"""Clean-up behind real Iceberg tables, while rounds run and while others write."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from sluice.cli.main import cli
from sluice.client import Heartbeats
from sluice.driver.cleaning import clean_tables
from sluice.driver.local import tier_once
from sluice.errors import LakeNotWritable, LakeTableMissing, TableNotDue
from sluice.lake.iceberg.commit.table_commits import TableCommits
from sluice.lake.iceberg.lake import IcebergLake
from sluice.model import Reason, TablePath
from sluice.model import types as t
from sluice.rounds.records.result import RoundResult
from sluice.rounds.upkeep.orphans import CleanReport
from sluice.rounds.values.progress import Progress
from tests.spark.conftest import At, Site

pytestmark = pytest.mark.spark
PATH = TablePath("shop", "orders")
Arm = Callable[[str], None]


def tier(site: Site, progress: Progress | None = None) -> RoundResult:
    while True:
        try:
            return tier_once(site.config, PATH, jvm=site.jvm, progress=progress)
        except TableNotDue:
            continue


def clean(site: Site, *, apply: bool = True) -> CleanReport:
    [report] = clean_tables(site.config, PATH, apply=apply, jvm=site.jvm)
    return report


def parquet(site: Site) -> set[str]:
    return {str(path) for path in site.warehouse.rglob("*.parquet")}


def count(site: Site) -> tuple[int, int]:
    return tuple(site.rows("SELECT count(*), count(DISTINCT id) FROM lake.shop.orders")[0])


def append(site: Site, first: int, rows: int) -> None:
    site.append(PATH, pa.table({"id": pa.array(range(first, first + rows), pa.int64())}))


@pytest.fixture
def orders(site: Site) -> Iterator[Site]:
    """A table with one commit of ten rows in each of two buckets, about."""
    site.create(PATH, {"id": t.BIGINT}, bucket_count=2, bucket_keys=("id",))
    append(site, 0, 20)
    tier(site)
    yield site


def dead_round(site: Site, arm: Arm) -> set[str]:
    """A round dies with its files written and its manifests ready."""
    before = parquet(site)
    arm("round.lake_commit.ready=raise")
    with pytest.raises(RuntimeError, match="failpoint"):
        tier(site)
    arm("")
    return parquet(site) - before


def test_the_command_removes_what_a_dead_round_left_after_the_next_commit(
    orders: Site, arm: Arm
) -> None:
    append(orders, 20, 10)
    left = dead_round(orders, arm)
    assert len(left) == 2
    half = next(iter(left)).replace("-00001.parquet", f"-00002.parquet.{'0' * 32}.tmp")
    hidden = Path(half).with_name("." + Path(half).name)
    hidden.write_bytes(b"PAR1")
    assert {left.path for left in clean(orders).kept} == {*left, str(hidden)}
    tier(orders)

    shown = clean(orders, apply=False)
    assert {left.path for left in shown.dead} == {*left, str(hidden)}
    assert left <= parquet(orders)
    # The command starts a JVM of its own.
    warehouse = str(orders.warehouse)
    arguments = ["clean", str(PATH), "--warehouse", warehouse, "--yes", "--format", "json"]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    [report] = json.loads(done.output)["tables"]
    assert set(report["removed"]) == {*left, str(hidden)}
    assert not left & parquet(orders)
    assert not hidden.exists()
    assert clean(orders).dead == []
    assert count(orders) == (30, 30)


@pytest.mark.parametrize("phase", ["lake_commit", "fluss_commit"])
def test_a_clean_up_within_a_round_takes_nothing_of_it(orders: Site, phase: str) -> None:
    append(orders, 20, 10)
    reports: list[CleanReport] = []
    result = tier(orders, At(phase, lambda: reports.append(clean(orders))))
    assert result.outcome == "committed"
    assert reports[0].removed == []
    assert len(reports[0].kept) == (0 if phase == "fluss_commit" else 2)
    assert count(orders) == (30, 30)


def test_naive_clean_up_within_a_round_destroys_what_it_commits(
    orders: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: all that is unreferenced goes, after the commit has read the footers."""
    append(orders, 20, 10)
    fence = TableCommits._fence
    gone: set[str] = set()

    def naive(table: TableCommits, *arguments: Any) -> Any:
        used = {row[0] for row in orders.rows("SELECT file_path FROM lake.shop.orders.all_files")}
        gone.update(parquet(orders) - {path.removeprefix("file:") for path in used})
        for path in gone:
            Path(path).unlink()
        return fence(table, *arguments)

    monkeypatch.setattr(TableCommits, "_fence", naive)
    assert tier(orders).outcome == "committed"
    used = {row[0] for row in orders.rows("SELECT file_path FROM lake.shop.orders.files")}
    assert len(gone & {path.removeprefix("file:") for path in used}) == 2
    with pytest.raises(Exception, match=r"FileNotFound|does not exist|No such file"):
        orders.rows("SELECT sum(id) FROM lake.shop.orders")


def test_a_driver_that_goes_on_after_its_files_were_removed_is_refused(
    orders: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another round has committed meanwhile: the fence keeps the lake whole.

    Heartbeats would tell the driver that its claim is lost, if one came before the fence is asked.
    """
    monkeypatch.setattr(Heartbeats, "beat", lambda heartbeats: None)
    append(orders, 20, 10)
    fence = TableCommits._fence
    reports: list[CleanReport] = []

    def meanwhile(table: TableCommits, *arguments: Any) -> Any:
        monkeypatch.setattr(TableCommits, "_fence", fence)
        orders.client.tiering.failed(claims[0], Reason.from_text("taken back"))
        assert tier(orders).outcome == "committed"
        reports.append(clean(orders))
        return fence(table, *arguments)

    claims = []
    claim = orders.client.tiering.__class__.claim

    def remember(self: Any, *arguments: Any) -> Any:
        found = claim(self, *arguments)
        claims.append(found)
        return found

    monkeypatch.setattr(orders.client.tiering.__class__, "claim", remember)
    monkeypatch.setattr(TableCommits, "_fence", meanwhile)
    with pytest.raises(Exception, match="no longer the planned base|another round"):
        tier(orders)
    assert len(reports[0].removed) == 2
    assert count(orders) == (30, 30)


def test_what_branches_tags_and_old_snapshots_hold_stays(orders: Site) -> None:
    first = orders.client.admin.lake_snapshot(PATH)
    assert first is not None
    append(orders, 20, 10)
    orders.rows("ALTER TABLE lake.shop.orders CREATE BRANCH side")
    tier(orders)
    orders.rows("DELETE FROM lake.shop.orders WHERE id >= 0")  # files go from main
    orders.rows("ALTER TABLE lake.shop.orders CREATE TAG old AS OF VERSION "
                f"{first.snapshot_id}")  # fmt: skip
    before = parquet(orders)
    report = clean(orders)
    assert (report.dead, report.kept) == ([], [])
    assert parquet(orders) == before
    assert orders.rows("SELECT count(*) FROM lake.shop.orders VERSION AS OF 'side'")[0][0] == 20


def test_a_file_that_only_a_delete_manifest_references_stays(orders: Site, arm: Arm) -> None:
    """As equality deletes will be; a compaction may have taken the data files beside them."""
    append(orders, 20, 10)
    left = sorted(dead_round(orders, arm))
    append(orders, 30, 1)
    tier(orders)
    config = orders.config
    with closing(IcebergLake(orders.jvm.gateway, config.datalake.iceberg, config.tiering)) as lake:
        table = lake.load(PATH)
        assert table is not None
        iceberg, gateway = orders.jvm.gateway.jvm.org.apache.iceberg, orders.jvm.gateway
        real = table._loaded.java
        ids = gateway.new_array(gateway.jvm.int, 1)
        ids[0] = real.schema().findField("id").fieldId()
        bucket = left[0].split("id_bucket=")[1].split("/")[0]
        builder = iceberg.FileMetadata.deleteFileBuilder(real.spec()).ofEqualityDeletes(ids)
        builder = builder.withPath(left[0]).withFormat("parquet").withFileSizeInBytes(100)
        builder = builder.withPartitionPath(f"id_bucket={bucket}")
        deletes = builder.withRecordCount(1).build()
        real.newRowDelta().addDeletes(deletes).commit()
    report = clean(orders)
    assert set(report.removed) == set(left[1:])
    assert left[0] in parquet(orders)


@pytest.mark.slow  # Spark's procedures
def test_expired_and_compacted_files_are_not_taken_for_living_ones(orders: Site, arm: Arm) -> None:
    append(orders, 20, 10)
    left = dead_round(orders, arm)
    for first in (30, 40):
        append(orders, first, 10)
        tier(orders)
    orders.rows(
        "CALL lake.system.rewrite_data_files(table => 'shop.orders',"
        " options => map('rewrite-all', 'true'))"
    )
    orders.rows(
        "CALL lake.system.expire_snapshots(table => 'shop.orders',"
        " older_than => TIMESTAMP '2999-01-01 00:00:00', retain_last => 1)"
    )
    assert set(clean(orders).removed) == left
    assert clean(orders).dead == []
    append(orders, 50, 10)
    assert tier(orders).outcome == "committed"
    assert count(orders) == (60, 60)


def test_data_outside_of_the_tables_own_folder_is_found(site: Site, arm: Arm) -> None:
    outside = site.warehouse.parent / "elsewhere"
    outside.mkdir()
    properties = {"iceberg.write.data.path": str(outside), "iceberg.write.object-storage.enabled": "true"}  # fmt: skip  # noqa: E501
    site.create(
        PATH,
        {"id": t.BIGINT, "day": t.STRING},
        partition_keys=("day",),
        bucket_count=1,
        custom_properties=properties,
    )
    for day in ("2026-01-01", "a_b"):
        site.client.admin.create_partition(PATH, {"day": day})
        site.append(PATH, pa.table({"id": pa.array([1, 2], pa.int64()), "day": [day] * 2}))
    arm("round.lake_commit.ready=raise")
    with pytest.raises(RuntimeError):
        tier(site)
    arm("")
    left = set(outside.rglob("*.parquet"))
    assert len(left) == 2
    tier(site)
    assert {Path(path) for path in clean(site).removed} == left
    assert not any(path.exists() for path in left)
    assert site.rows("SELECT count(*) FROM lake.shop.orders")[0][0] == 4
    assert len(list(outside.rglob("*.parquet"))) == 2


def test_all_tables_of_a_cluster(orders: Site) -> None:
    orders.create(TablePath("shop", "never_tiered"), {"id": t.BIGINT})
    reports = list(clean_tables(orders.config, None, apply=False, jvm=orders.jvm))
    assert [(report.table, report.error) for report in reports] == [("shop.orders", "")]
    for manifest in (orders.warehouse / "shop/orders/metadata").glob("*-m0.avro"):
        manifest.unlink()
    [report] = clean_tables(orders.config, None, apply=True, jvm=orders.jvm)
    assert "m0.avro" in report.error
    assert len(parquet(orders)) == 2
    with pytest.raises(LakeNotWritable, match=r"m0\.avro"):
        clean(orders)


def test_a_table_that_is_tiered_no_more_is_looked_at_too(site: Site) -> None:
    off = {"table.datalake.enabled": "false"}
    site.create(PATH, {"id": t.BIGINT}, properties=off)
    with closing(
        IcebergLake(site.jvm.gateway, site.config.datalake.iceberg, site.config.tiering)
    ) as lake:
        lake.create(site.client.admin.table_info(PATH))
    [report] = clean_tables(site.config, None, apply=False, jvm=site.jvm)
    assert (report.table, report.error) == (str(PATH), "")


def test_a_table_that_the_lake_lacks_is_named(site: Site) -> None:
    config = replace(site.config)
    with pytest.raises(LakeTableMissing, match=r"shop\.orders does not exist"):
        list(clean_tables(config, PATH, apply=True, jvm=site.jvm))
