"""`sluice maintain` on lakes with equality deletes, many manifests and orphan files."""

from __future__ import annotations

import json
import os
import pickle
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from sluice.cli.main import cli
from sluice.driver.conversions import ThreadConversions
from sluice.errors import LakeCommitRefused
from sluice.lake.iceberg.commit.tagged_update import TaggedUpdate
from sluice.lake.iceberg.lake import IcebergLake
from sluice.lake.iceberg.snapshots import live_files
from sluice.lake.iceberg.table import IcebergTable
from sluice.lake.iceberg.upkeep import maintenance as lake_maintenance
from sluice.lake.iceberg.upkeep.equality_conversion import BucketConversion
from sluice.lake.iceberg.upkeep.maintenance import LakeMaintenance
from sluice.model import Reason
from sluice.rounds.records.maintenance import newest_runs, read_outcome, request_uri
from sluice.rounds.upkeep.conversion import BucketWork, Converted, ConvertedBucket, NotConverted
from sluice.rounds.upkeep.maintenance import MaintenanceOptions, MaintenanceReport, maintain
from sluice.rounds.upkeep.orphans import new_maintenance_id
from tests.spark.conftest import STOCK, LocalStock
from tests.spark.lake.test_lake_long_history import counted
from tests.spark.positions.test_positions_over_time import budget, forms

pytestmark = [pytest.mark.spark, pytest.mark.slow]
DAY_MS = 24 * 3_600_000
MANIFESTS = "FROM {lake}.manifests WHERE content = 0"


def lake_table(stock: LocalStock) -> IcebergTable:
    site = stock.site
    lake = IcebergLake(site.jvm.gateway, {"type": "hadoop", "warehouse": str(site.warehouse)})
    table = lake.load(STOCK)
    assert table is not None
    return table


def maintained(stock: LocalStock, **options: int) -> MaintenanceReport:
    settings = {"memory_bytes": 1 << 28, "now_ms": time.time_ns() // 1_000_000, "round_ms": 0}
    return maintain(STOCK, lake_table(stock), MaintenanceOptions(**settings | options), apply=True)


def tiered(stock: LocalStock) -> None:
    """A table with forty keys in two data files."""
    stock.create()
    stock.put({key: key for key in range(40)})
    stock.tier()


def by_equality(stock: LocalStock, rounds: int = 3) -> None:
    """Rounds as earlier versions made them."""
    budget(stock, 0)
    for number in range(rounds):
        stock.put(dict.fromkeys(range(number, 40, 5), number))
        stock.put({1: number, 100 + number: number})
        stock.delete(30 + number)
        assert stock.tier().deletes_as.startswith("equality deletes")
    budget(stock, 1 << 30)


@pytest.mark.parametrize("version", [2, pytest.param(3, marks=pytest.mark.long)])
def test_equality_deletes_become_positions(stock: LocalStock, version: int) -> None:
    stock.create(version=version, partitioned=True)
    for day in ("mon", "tue"):
        stock.client.admin.create_partition(STOCK, {"day": day})
        stock.put({key: key for key in range(40)}, day)
    stock.tier()
    stock.put({key: -key for key in range(5)})
    stock.tier()  # positions that are there before
    by_equality(stock)
    report = maintained(stock)
    stock.assert_equal()
    assert "equality" not in forms(stock)
    assert report.before.equality_files > 0
    assert report.after is not None
    assert report.after.equality_files == 0
    assert report.conversion is not None
    assert report.conversion.files_removed == report.before.equality_files
    assert report.conversion.commits == 1
    assert report.notes == []
    stock.put(dict.fromkeys(range(40), 1000))
    assert stock.tier().deletes_as == "positions"
    stock.assert_equal()
    assert maintained(stock).conversion is None
    stock.assert_no_litter()


@pytest.mark.parametrize(
    "other", ["round", "rewrite", pytest.param("delete", marks=pytest.mark.long)]
)
def test_others_who_commit_meanwhile_are_no_harm(
    stock: LocalStock, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiered(stock)
    by_equality(stock)

    def act(name: str) -> None:
        if name != "maintain.convert.ready":
            return
        monkeypatch.setattr(lake_maintenance, "failpoint", lambda _: None)
        if other == "round":
            stock.put(dict.fromkeys(range(0, 40, 2), 500))
            stock.tier()
        elif other == "rewrite":
            stock.rows(
                "CALL lake.system.rewrite_data_files(table => 'shop.stock',"
                " options => map('rewrite-all', 'true'))"
            )
        else:
            stock.rows("DELETE FROM {lake} WHERE id = 7")
            stock.held.pop(("mon", 7))

    monkeypatch.setattr(lake_maintenance, "failpoint", act)
    report = maintained(stock)
    stock.assert_equal()
    assert "equality" not in forms(stock)
    assert report.conversion is not None
    assert report.conversion.refused == (other == "rewrite")
    assert report.notes == []


def test_a_conversion_that_landed_and_was_called_refused(
    stock: LocalStock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its snapshot has expired since; later ones reference its files."""
    tiered(stock)
    by_equality(stock)
    ask = LakeMaintenance._ask

    def land_and_refuse(self: LakeMaintenance, tagged: TaggedUpdate, what: str) -> None:
        monkeypatch.setattr(LakeMaintenance, "_ask", ask)
        ask(self, tagged, what)
        stock.put({1: 500})
        stock.tier()
        stock.rows(
            "CALL lake.system.expire_snapshots(table => 'shop.stock', retain_last => 1,"
            " older_than => TIMESTAMP '2100-01-01 00:00:00')"
        )
        raise LakeCommitRefused("conflict")

    monkeypatch.setattr(LakeMaintenance, "_ask", land_and_refuse)
    report = maintained(stock)
    stock.assert_equal()
    assert report.conversion is not None
    assert (report.conversion.commits, report.conversion.refused) == (1, 0)
    assert report.notes == []


def test_what_does_not_fit_into_memory_is_left_and_told(stock: LocalStock) -> None:
    tiered(stock)
    by_equality(stock)
    report = maintained(stock, memory_bytes=100)
    assert report.conversion is not None
    assert len(report.conversion.left) == 2
    for why in report.conversion.left.values():
        assert "need more memory than tiering.changes_memory_bytes, 100 bytes" in why
    assert report.notes == []  # a compaction removes them
    stock.assert_equal()


def test_deletes_that_do_not_fit_together_are_converted_in_turn(stock: LocalStock) -> None:
    tiered(stock)
    by_equality(stock)
    [size] = stock.rows("SELECT max(file_size_in_bytes) AS most FROM {lake}.delete_files")
    report = maintained(stock, memory_bytes=size.most * 12)  # for one delete file of a bucket
    assert report.conversion is not None
    assert (report.conversion.commits, report.conversion.files_removed) == (3, 6)
    assert "equality" not in forms(stock)
    assert report.notes == []
    stock.assert_equal()


def test_deletes_stay_if_there_are_too_many_data_files_to_list(
    stock: LocalStock, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiered(stock)
    by_equality(stock)
    monkeypatch.setattr(live_files, "FILES_MAX", 1)
    report = maintained(stock)
    stock.assert_equal()
    assert "equality" in forms(stock)
    assert "more than 1 data files" in report.before.unknown
    assert report.before.useless_equality_files == 0


def test_deletes_that_apply_too_often_stay(
    stock: LocalStock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files are described in parts: what all of them would take is not known before."""
    tiered(stock)
    by_equality(stock)
    work = lake_table(stock).maintenance()
    whole = work.live_files()
    monkeypatch.setattr(live_files, "_AT_ONCE", 1)
    assert work.live_files() == whole
    pairs = sum(len(one.files) for one in whole[1].buckets.values())
    monkeypatch.setattr(live_files, "PAIRS_MAX", pairs // 2)
    report = maintained(stock)
    assert report.before.unknown.startswith(
        f"its deletes apply to data files more than {pairs // 2} "
    )
    assert "equality" in forms(stock)


class BusyRounds:
    """While buckets are converted, a round adds equality deletes to all of them."""

    at_once = 1

    def __init__(self, stock: LocalStock) -> None:
        self._stock, self.buckets = stock, list[int]()

    def __call__(self, works: Sequence[BucketWork]) -> Sequence[Converted]:
        assert len(self.buckets) < 10, "the conversion does not end"
        found = [work.convert() for work in works]
        items = [work for work in works if isinstance(work, BucketConversion)]
        self.buckets += [work.split.bucket.bucket for work in items]
        by_equality(self._stock, 1)
        return found


def test_a_conversion_ends_although_rounds_add_deletes(
    stock: LocalStock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets to each bucket, and what rounds have added is left to the next one."""
    tiered(stock)
    by_equality(stock)
    monkeypatch.setattr(lake_maintenance, "_BUCKETS", 1)
    run = BusyRounds(stock)
    done = lake_table(stock).maintenance().convert(1 << 28, run)
    assert run.buckets == [0, 1]
    assert (done.commits, done.refused, done.left) == (2, 0, {})
    assert "equality" in forms(stock)
    stock.assert_equal()
    assert maintained(stock).notes == []
    assert "equality" not in forms(stock)
    stock.assert_equal()


def test_a_file_of_a_spec_without_buckets_is_named(stock: LocalStock) -> None:
    tiered(stock)
    table = lake_table(stock)._loaded.java
    table.updateSpec().removeField("id_bucket").commit()
    files = stock.site.jvm.gateway.jvm.org.apache.iceberg.DataFiles.builder(table.spec())
    files = files.withPath("/x/foreign.parquet").withFormat("parquet")
    table.newAppend().appendFile(files.withFileSizeInBytes(9).withRecordCount(9).build()).commit()
    bucket = stock.site.jvm.gateway.jvm.org.apache.iceberg.expressions.Expressions.bucket("id", 2)
    table.updateSpec().addField("id_bucket", bucket).commit()
    report = maintained(stock)
    assert "file /x/foreign.parquet" in report.before.unknown
    assert report.notes == []


def test_a_listing_costs_calls_by_the_number_of_delete_files(stock: LocalStock) -> None:
    """And not by its square, though each of them applies to all older data files."""
    tiered(stock)
    sent = []
    for rounds in (1, 3, 3):
        by_equality(stock, rounds)
        work = lake_table(stock).maintenance()
        with counted(stock.site.jvm) as commands:
            work.live_files()
        sent.append(len(commands))
    first, second = sent[1] - sent[0], sent[2] - sent[1]
    assert 0 < second <= 1.2 * first


class FullStorage:
    """Converts the first bucket. Then the storage is full."""

    at_once = 2

    def __call__(self, works: Sequence[BucketWork]) -> Sequence[Converted]:
        [first] = ThreadConversions(self.at_once)([pickle.loads(pickle.dumps(works[0]))])
        assert isinstance(first, ConvertedBucket)
        assert first.files, "there is something to delete"
        full = NotConverted(Reason.from_text("no space left on device"), storage_refuses=True)
        return [first, *[full] * (len(works) - 1)]


def test_a_storage_that_is_full_leaves_nothing_behind(stock: LocalStock) -> None:
    """A work item can be pickled, and is run on a thread."""
    tiered(stock)
    by_equality(stock)
    settings = MaintenanceOptions(1 << 28, time.time_ns() // 1_000_000, 1, run=FullStorage())
    report = maintain(STOCK, lake_table(stock), settings, apply=True)
    assert report.notes == ["could not convert equality deletes: no space left on device"]
    assert forms(stock)["equality"] == report.before.equality_files
    stock.assert_no_litter()
    settings = replace(settings, run=ThreadConversions(2))
    assert maintain(STOCK, lake_table(stock), settings, apply=True).notes == []
    assert "equality" not in forms(stock)
    stock.assert_equal()


def test_full_manifests_are_not_merged_again(stock: LocalStock) -> None:
    stock.create()
    for number in range(22):
        stock.put({number: number})
        stock.tier()

    def full_bytes(count: int) -> None:
        size = f"'commit.manifest.target-size-bytes' = '{2 * count}'"
        merges = "'commit.manifest-merge.enabled' = 'false'"  # those of Iceberg itself
        stock.rows(f"ALTER TABLE {{lake}} SET TBLPROPERTIES ({size}, {merges})")

    full_bytes(512)
    left = maintained(stock)
    assert list(left.before.needs()) == []
    assert left.manifests_merged == 0
    full_bytes(1 << 20)
    assert maintained(stock).manifests_merged == 21
    [(path, merged_bytes)] = stock.rows(f"SELECT path, length {MANIFESTS}")
    full_bytes(merged_bytes)
    for number in range(21):
        stock.put({number: -number})
        stock.tier()
    assert maintained(stock).manifests_merged == 20
    paths = [path for (path,) in stock.rows(f"SELECT path {MANIFESTS}")]
    assert len(paths) == 2
    assert path in paths
    stock.assert_equal()


def test_manifests_are_merged_and_old_orphans_deleted(stock: LocalStock) -> None:
    stock.create()
    for number in range(22):
        stock.put({number: number})
        stock.tier()
    report = maintained(stock)
    assert report.before.small_data_manifests > 20
    assert report.after is not None
    assert report.after.data_manifests == 1
    assert report.manifests_merged == report.before.data_manifests - 1
    stock.assert_equal()
    metadata = stock.site.warehouse / "shop" / "stock" / "metadata"
    data = next(stock.site.warehouse.rglob("data/**/*.parquet")).parent
    name = new_maintenance_id(lake_table(stock).uuid)
    old = [
        metadata / "snap-1-1-x.avro",
        metadata / "x-m0.avro",
        data / f"00000-0-{name}-00001.parquet",
    ]
    new = [metadata / "snap-2-1-y.avro", metadata / "notes.avro"]
    for path in (*old, *new):
        path.write_text("orphan")
    for path in (*old, new[1]):
        os.utime(path, times=(time.time() - 4 * 86_400,) * 2)
    found = maintained(stock)
    assert [path.exists() for path in old] == [False] * 3
    assert [path.exists() for path in new] == [True] * 2
    assert (found.orphans_removed, found.orphan_bytes) == (3, 18)
    stock.assert_equal()
    stock.put({1: 5})
    stock.tier()
    stock.assert_equal()


def test_manifests_stay_in_a_folder_of_two_tables(stock: LocalStock) -> None:
    """A table that was renamed keeps its folder, and the next one of its name has the same."""
    stock.create()
    stock.put({1: 1})
    stock.tier()
    metadata = stock.site.warehouse / "shop" / "stock" / "metadata"
    newest = max(metadata.glob("*.metadata.json"), key=lambda path: path.stat().st_mtime)
    uuid = lake_table(stock).uuid
    (metadata / "00007-of-another.metadata.json").write_text(
        newest.read_text().replace(uuid, "00000000-0000-4000-8000-000000000000")
    )
    data = next(stock.site.warehouse.rglob("data/**/*.parquet")).parent
    theirs = [metadata / "snap-1-1-x.avro", metadata / "x-m0.avro"]
    ours = data / f"00000-0-{new_maintenance_id(uuid)}-00001.parquet"
    for path in (*theirs, ours):
        path.write_text("orphan")
        os.utime(path, times=(time.time() - 4 * 86_400,) * 2)
    assert maintained(stock).orphans_removed == 1
    assert [path.exists() for path in (*theirs, ours)] == [True, True, False]


def run(stock: LocalStock, *words: str) -> Result:
    address = stock.site.config.client.bootstrap
    lake = ["--warehouse", str(stock.site.warehouse), "--bootstrap", address]
    return CliRunner().invoke(cli, ["maintain", *words, *lake])


def doctor(stock: LocalStock) -> dict[str, Any]:
    """What `sluice doctor` finds about the table."""
    address = stock.site.config.client.bootstrap
    words = ["--warehouse", str(stock.site.warehouse), "--bootstrap", address, "--format", "json"]
    done = CliRunner().invoke(cli, ["doctor", *words])
    assert done.exit_code == 0, done.output
    [found] = [one for one in json.loads(done.stdout) if one["what"] == "table shop.stock"]
    return dict(found)


def test_the_command_shows_and_does_what_tables_need(stock: LocalStock, tmp_path: Path) -> None:
    tiered(stock)
    by_equality(stock)
    shown = run(stock)
    assert shown.exit_code == 0, shown.output
    assert "equality delete files: PyIceberg, polars and Snowflake refuse the table" in shown.stdout
    assert "--yes does what is possible now, and requests a compaction" in shown.stdout
    assert "a compaction was requested" not in shown.stdout
    assert "equality" in forms(stock)
    health = doctor(stock)
    assert (health["ok"], health["result"]) == (True, "needs work")
    assert "deletes. It has" not in health["seen"]
    assert "with equality deletes, 4 snapshots" in health["seen"]
    assert "`sluice maintain shop.stock --yes`" in health["seen"]
    work = f"file://{tmp_path}/work"
    done = run(stock, "shop.stock", "--yes", "--work-uri", work)
    assert done.exit_code == 0, done.output
    assert "equality delete files became" in done.stdout
    [noted] = newest_runs(work)[0].runs
    left = read_outcome(request_uri(work, noted.folder, noted.attempt))
    assert (left.has_ended, [one.table for one in left.reports]) == (True, ["shop.stock"])
    assert "equality delete files became" in left.reports[0].done[0]
    assert "now 8 data files in 2 buckets, at most 4 in one" in done.stdout
    assert "a compaction was requested: the table's next round makes it" in done.stdout
    [status] = stock.client.statuses.list(STOCK)
    assert status.compaction_requested_ms is not None
    result = stock.tier()  # without new rows
    assert result.compacted == "8 data files of 2 buckets were rewritten as 2"
    [status] = stock.client.statuses.list(STOCK)
    assert status.compaction_requested_ms is None
    asked = json.loads(run(stock, "--format", "json").stdout)
    [table] = asked["tables"]
    assert (asked["applied"], table["table"], table["needs"]) == (False, "shop.stock", [])
    assert (table["before"]["data_files"], table["before"]["dead_rows"]) == (2, 0)
    health = doctor(stock)
    assert (health["ok"], health["result"]) == (True, "")
    assert health["seen"].startswith("2 data files in 2 buckets, at most 1 in one, ")
    missing = run(stock, "shop.nothing", "--yes")
    assert missing.exit_code == 1
    assert missing.stderr.startswith("sluice: TableNotExist: ")
    pattern = run(stock, "shop.*")
    assert pattern.exit_code == 2
    assert "'shop.*' is a pattern; give one name, or none for all" in pattern.stderr
    stock.assert_equal()
