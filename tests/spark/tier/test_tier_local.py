"""`sluice tier` end to end: embedded server, client, threads, a JVM on demand, read by Spark."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from sluice.client.tiering.log_source import ClientLogSource
from sluice.config import DatalakeConfig
from sluice.driver.local import tier_once
from sluice.errors import (
    ConfigurationError,
    LakeNotWritable,
    LakeTableMismatch,
    SplitFailed,
    StorageError,
    TableNotDue,
    TableNotExist,
)
from sluice.model import Column, Reason, TablePath
from sluice.model import types as t
from sluice.rounds.records.result import RoundResult
from sluice.rounds.values.progress import NoProgress
from sluice.rounds.values.types import LogRecords, Split
from tests.spark.conftest import Site
from tests.support.network.ports import kept_port

pytestmark = pytest.mark.spark
PATH = TablePath("shop", "orders")


def tier(site: Site, *, own_jvm: bool = False) -> RoundResult:
    """One round, as soon as the table is due."""
    deadline = time.monotonic() + 120
    while True:
        try:
            return tier_once(site.config, PATH, jvm=None if own_jvm else site.jvm)
        except TableNotDue:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def orders(first: int, count: int) -> pa.Table:
    ids = pa.array(range(first, first + count), pa.int64())
    return pa.table({"id": ids, "note": pa.array([f"n{i % 7}" for i in range(count)])})


@pytest.mark.parametrize("layout", ["legacy"])
def test_rounds_bring_every_row_once_with_its_bucket_and_offset(site: Site) -> None:
    site.create(PATH, {"id": t.BIGINT, "note": t.STRING}, bucket_count=3, bucket_keys=("id",))
    site.append(PATH, orders(0, 5000))
    first = tier(site, own_jvm=True)
    assert (first.outcome, first.rows, first.files) == ("committed", 5000, 3)
    site.append(PATH, orders(5000, 300))
    second = tier(site)
    assert (second.outcome, second.rows) == ("committed", 300)
    assert tier(site).outcome == "nothing_new"

    seen = site.rows(
        "SELECT count(*), count(DISTINCT id), sum(id), count(DISTINCT __bucket, __offset)"
        " FROM lake.shop.orders"
    )
    assert tuple(seen[0]) == (5300, 5300, sum(range(5300)), 5300)
    ends = site.rows("SELECT __bucket, max(__offset) + 1 FROM lake.shop.orders GROUP BY 1")
    assert {str(b): end for b, end in ends} == second.offsets
    registered = site.client.admin.lake_snapshot(PATH)
    assert registered is not None
    assert registered.snapshot_id == second.lake_snapshot_id
    tag = site.rows("SELECT snapshot_id FROM lake.shop.orders.refs WHERE name = 'sluice-tiered'")
    assert tag[0][0] == second.lake_snapshot_id


def test_a_bucket_that_fails_keeps_no_other_from_the_lake(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.create(PATH, {"id": t.BIGINT, "note": t.STRING}, bucket_count=3, bucket_keys=("id",))
    site.append(PATH, orders(0, 300))
    read = ClientLogSource.read

    def failing(self: ClientLogSource, split: Split) -> Iterator[LogRecords]:
        if split.bucket.bucket == 1:
            raise StorageError("segment 0 is unreadable")
        return read(self, split)

    with monkeypatch.context() as patched:
        patched.setattr(ClientLogSource, "read", failing)
        with pytest.raises(SplitFailed) as caught:
            tier(site)
    words = "bucket 1 of table shop.orders failed, 2 other buckets were committed: StorageError: "
    assert words in str(caught.value)
    registered = site.client.admin.lake_snapshot(PATH)
    assert registered is not None
    assert {bucket.bucket for bucket in registered.offsets} == {0, 2}
    [status] = site.client.statuses.list()
    assert (status.failures, status.last_error) == (1, str(caught.value))
    [ended] = site.client.statuses.history(PATH)
    assert (ended.outcome, ended.lake_snapshot_id) == ("failed", registered.snapshot_id)
    assert ended.rows_written == sum(registered.offsets.values())
    assert tier(site).rows == 300 - sum(registered.offsets.values())
    seen = site.rows("SELECT count(*), count(DISTINCT id) FROM lake.shop.orders")
    assert tuple(seen[0]) == (300, 300)


def test_a_round_that_is_cut_is_queued_again_at_once_until_all_is_tiered(site: Site) -> None:
    site.create(PATH, {"id": t.BIGINT, "note": t.STRING}, bucket_count=2, bucket_keys=("id",))
    claim = site.claim(PATH)
    site.client.admin.set_options(PATH, {"table.datalake.freshness": "1h"})
    site.client.tiering.finished(claim, forced=True)
    for step in range(4):  # a batch in each bucket every time
        site.append(PATH, orders(step * 100, 100))
    site.config = replace(site.config, tiering=replace(site.config.tiering, max_round_ms=1))
    results = [tier(site)]
    while results[-1].forced:
        assert site.client.statuses.list(PATH)[0].status == "Pending"
        results.append(tier(site))
    assert site.client.statuses.list(PATH)[0].status == "Scheduled"
    assert [bool(result.forced) for result in results] == [True, True, True, False]
    assert results[0].forced.startswith("ended early after 0.001 s (tiering.max_round_ms): 3")
    assert sum(result.rows for result in results) == 400
    seen = site.rows("SELECT count(*), count(DISTINCT id) FROM lake.shop.orders")
    assert tuple(seen[0]) == (400, 400)


@pytest.mark.parametrize("layout", ["legacy"])
def test_the_bucket_of_a_file_is_the_bucket_of_its_rows(site: Site) -> None:
    """Fluss buckets as Iceberg does, so that Spark prunes by the key and still finds the row."""
    site.create(PATH, {"id": t.BIGINT, "note": t.STRING}, bucket_count=4, bucket_keys=("id",))
    site.append(PATH, orders(0, 1000))
    tier(site)
    pairs = site.rows(
        "SELECT DISTINCT f.partition.id_bucket, o.__bucket FROM lake.shop.orders o"
        " JOIN lake.shop.orders.files f ON f.file_path = o._file"
    )
    assert sorted(map(tuple, pairs)) == [(n, n) for n in range(4)]
    for key in (0, 17, 999):
        found = site.rows(f"SELECT count(*) FROM lake.shop.orders WHERE id = {key}")
        assert found[0][0] == 1, key


@pytest.mark.parametrize("layout", ["legacy", "clean"])
def test_partitions_and_a_partition_created_again(site: Site) -> None:
    site.create(PATH, {"id": t.BIGINT, "day": t.STRING}, partition_keys=("day",), bucket_count=1)

    def day(name: str, count: int) -> None:
        site.client.admin.create_partition(PATH, {"day": name}, ignore_if_exists=True)
        ids = pa.array(range(count), pa.int64())
        site.append(PATH, pa.table({"id": ids, "day": pa.array([name] * count)}))

    day("2026-01-01", 10)
    day("2026-01-02", 20)
    assert tier(site).rows == 30
    site.client.admin.drop_partition(PATH, {"day": "2026-01-01"})
    day("2026-01-01", 3)
    result = tier(site)
    assert result.rows == 3
    assert any("2026-01-01 was dropped and created again" in note for note in result.notes)
    counts = site.rows("SELECT day, count(*) FROM lake.shop.orders GROUP BY day ORDER BY day")
    assert [tuple(row) for row in counts] == [("2026-01-01", 3), ("2026-01-02", 20)]


@pytest.mark.parametrize("layout", ["legacy", "clean"])
def test_a_column_added_in_fluss_is_added_in_the_lake(site: Site, layout: str) -> None:
    site.create(PATH, {"id": t.BIGINT})
    site.append(PATH, pa.table({"id": pa.array([1, 2], pa.int64())}))
    tier(site)
    site.client.admin.add_columns(PATH, [Column("note", t.STRING, 1)])
    site.append(PATH, pa.table({"id": pa.array([3], pa.int64()), "note": pa.array(["new"])}))
    tier(site)
    rows = site.rows("SELECT * FROM lake.shop.orders ORDER BY id")
    assert [row.note for row in rows] == [None, None, "new"]
    system = ["__bucket", "__offset", "__timestamp"] if layout == "legacy" else []
    assert [*rows[0].asDict()] == ["id", "note", *system]


def test_progress_tells_phases_and_rows(site: Site) -> None:
    site.create(PATH, {"id": t.BIGINT, "note": t.STRING})
    site.append(PATH, orders(0, 100))
    seen: list[object] = []

    class Watcher(NoProgress):
        def phase(self, name: str) -> None:
            seen.append(name)

        def planned(self, splits: int, offsets: int) -> None:
            seen.append((splits, offsets))

        def copied(self, rows: int) -> None:
            seen.append(rows)

    deadline = time.monotonic() + 120
    while not seen:
        try:
            tier_once(site.config, PATH, progress=Watcher(), jvm=site.jvm)
        except TableNotDue:
            assert time.monotonic() < deadline
    assert seen == [
        "recover", "plan", (1, 100), "copy", 100, "prepare", "lake_commit", "fluss_commit",
    ]  # fmt: skip


CATALOGS = {
    "hadoop": (
        {"warehouse": "FILE/lake"},
        r"create lake table shop\.orders: ParentNotDirectoryException: .*FILE; write to the lake,"
        r" FILE/lake: let this user write there, or correct datalake\.iceberg\.warehouse",
    ),
    "rest": (
        {"uri": "http://127.0.0.1:PORT/"},
        r"open Iceberg catalog fluss-iceberg-catalog \(http://127\.0\.0\.1:PORT/\): .*refused; lake"
        r" catalog: start it, or correct datalake\.iceberg\.uri \(127\.0\.0\.1:PORT\)",
    ),
    "hive": (
        {"uri": "thrift://127.0.0.1:PORT"},
        r"load lake table shop\.orders: MetaException: Could not connect .*: .*refused; lake"
        r" catalog: start it, or correct datalake\.iceberg\.uri \(127\.0\.0\.1:PORT\)",
    ),
    "jdbc": (
        {"uri": "jdbc:nobody:", "warehouse": "FILE-lake"},
        r"open Iceberg catalog fluss-iceberg-catalog \(FILE-lake\): SQLException: No suitable"
        r" driver found for jdbc:nobody:; add the JDBC driver of this database to tiering\.jars, or"
        r" packages or jars of Airflow's section sluice",
    ),
}


@pytest.mark.parametrize("kind", CATALOGS)
def test_a_lake_that_cannot_be_used_is_the_reason_of_a_failed_round(
    kind: str, site: Site, tmp_path: Path
) -> None:
    site.create(PATH, {"id": t.BIGINT, "note": t.STRING})
    site.append(PATH, orders(0, 10))
    (tmp_path / "file").write_text("in the way")
    options, message = CATALOGS[kind]

    site.client.tiering.failed(site.claim(PATH), Reason.from_text("an earlier error"))
    with kept_port() as port:

        def filled(text: str) -> str:
            return text.replace("FILE", str(tmp_path / "file")).replace("PORT", str(port))

        lake = {"type": kind, **{name: filled(value) for name, value in options.items()}}
        config = replace(site.config, datalake=DatalakeConfig("iceberg", lake))
        with pytest.raises(LakeNotWritable) as refused:
            tier_once(config, PATH, now=True, jvm=site.jvm)
    end = "; `sluice doctor` with the same options checks the lake"
    assert re.fullmatch(filled(message) + end, str(refused.value))
    [status] = site.client.statuses.list(PATH)
    assert (status.failures, status.last_error) == (2, str(refused.value))
    newest = site.client.statuses.history(PATH)[0]
    assert (newest.outcome, newest.reason) == ("failed", str(refused.value))
    assert tier(site).rows == 10


def test_a_lake_table_with_another_schema_is_refused_by_name(site: Site) -> None:
    site.create(PATH, {"id": t.BIGINT, "note": t.STRING})
    site.rows("SELECT 1")  # makes the catalog known
    site.rows("CREATE TABLE lake.shop.orders (id STRING) USING iceberg")
    site.append(PATH, orders(0, 10))
    with pytest.raises(LakeTableMismatch, match=r"shop\.orders"):
        tier(site)
    [status] = site.client.statuses.list(PATH)
    assert status.failures >= 1
    assert "shop.orders" in str(status.last_error)


def test_why_a_table_cannot_be_claimed(site: Site) -> None:
    with pytest.raises(TableNotExist, match=r"shop\.orders"):
        tier_once(site.config, PATH, jvm=site.jvm)
    site.create(PATH, {"id": t.BIGINT}, properties={"table.datalake.enabled": "false"})
    with pytest.raises(TableNotDue, match=r"is not tiered.*table\.datalake\.enabled"):
        tier_once(site.config, PATH, jvm=site.jvm)
    other = TablePath("shop", "busy")
    site.create(other, {"id": t.BIGINT})
    site.claim(other)
    with pytest.raises(TableNotDue, match="is being tiered"):
        tier_once(site.config, other, jvm=site.jvm)


def test_a_missing_lake_setting_is_named(site: Site) -> None:
    bare = replace(site.config, datalake=DatalakeConfig())
    with pytest.raises(ConfigurationError, match=r"datalake\.iceberg\.warehouse"):
        tier_once(bare, PATH)
