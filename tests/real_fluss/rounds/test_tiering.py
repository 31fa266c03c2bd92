"""Log tables of a real Fluss, tiered by our rounds into the lake table that Fluss itself made."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from sluice.driver.local import tier_once
from sluice.errors import LakeTableAlreadyExist, TableNotDue, TableNotExist, UnknownServerError
from sluice.model import Claim, Column, Reason, TablePath
from sluice.model import types as t
from sluice.rounds.records.plan_file import claim_of
from sluice.rounds.records.result import RoundResult
from sluice_airflow.acquire.acquire import acquire
from sluice_airflow.config.connection import FlussConnection
from tests.conformance.every_type import every_value
from tests.real_fluss.conftest import RealSite
from tests.real_fluss.place import DUE_S

pytestmark = [pytest.mark.real_fluss, pytest.mark.spark]


def orders(first: int, count: int) -> pa.Table:
    ids = pa.array(range(first, first + count), pa.int64())
    return pa.table({"id": ids, "note": [f"n{i % 7}" for i in range(count)]})


def of_days(*days: str) -> pa.Table:
    """Ten rows of each day."""
    return pa.table({"id": pa.array(range(10 * len(days)), pa.int64()), "day": list(days) * 10})


def agrees(site: RealSite, path: TablePath, result: RoundResult) -> None:
    """The real server knows the round's snapshot and offsets; the lake has each offset once."""
    found = site.client.admin.lake_snapshot(path)
    assert found is not None
    assert found.snapshot_id == result.lake_snapshot_id
    offsets = {
        str(b.bucket) if b.partition_id is None else f"{b.partition_id}/{b.bucket}": end
        for b, end in found.offsets.items()
    }
    assert offsets == result.offsets
    rows, positions = "count(*)", "count(DISTINCT f.partition, __bucket, __offset)"
    [row] = site.rows(
        f"SELECT {rows}, {positions} FROM lake.{{db}}.{path.table} o"
        f" JOIN lake.{{db}}.{path.table}.files f ON f.file_path = o._file"
    )
    assert tuple(row) == (sum(offsets.values()),) * 2


def test_rounds_bring_every_row_once(site: RealSite) -> None:
    path = site.create("orders", orders(0, 1), bucket_count=3, bucket_keys=("id",))
    site.append(path, orders(0, 5000))
    first = site.tier(path)
    assert (first.outcome, first.rows, first.files) == ("committed", 5000, 3)
    agrees(site, path, first)
    site.append(path, orders(5000, 300))
    second = site.tier(path)
    assert (second.outcome, second.rows) == ("committed", 300)
    agrees(site, path, second)
    assert site.tier(path).outcome == "nothing_new"
    seen = site.rows("SELECT count(*), count(DISTINCT id), sum(id) FROM lake.{db}.orders")
    assert tuple(seen[0]) == (5300, 5300, sum(range(5300)))
    ends = site.rows("SELECT __bucket, max(__offset) + 1 FROM lake.{db}.orders GROUP BY 1")
    assert {str(bucket): end for bucket, end in ends} == second.offsets


def test_a_long_window_of_one_bucket_is_copied_in_parts(site: RealSite) -> None:
    """Of 750 offsets, but batches have 300 rows: fetches begin inside batches."""
    path = site.create("long", orders(0, 1), bucket_count=1)
    with site.client.log_writer(path) as writer:
        for first in range(0, 3000, 300):
            writer.write(orders(first, 300))
            writer.flush()
    tiering = replace(site.config.tiering, parallelism=2, part_offsets=500)
    result = replace(site, config=replace(site.config, tiering=tiering)).tier(path)
    assert (result.outcome, result.rows, result.files) == ("committed", 3000, 4)
    agrees(site, path, result)


@pytest.mark.slow
def test_partitions(site: RealSite) -> None:
    path = site.create("days", of_days("2026-01-01"), partition_keys=("day",))
    site.append(path, of_days("2026-01-01", "2026-01-02"), dynamic_partitions=True)
    first = site.tier(path)
    assert first.rows == 20
    agrees(site, path, first)
    site.append(path, of_days("2026-01-02", "2026-01-03"), dynamic_partitions=True)
    second = site.tier(path)
    assert second.rows == 20
    agrees(site, path, second)
    counts = site.rows("SELECT day, count(*) FROM lake.{db}.days GROUP BY day ORDER BY day")
    assert list(map(tuple, counts)) == [("2026-01-01", 10), ("2026-01-02", 20), ("2026-01-03", 10)]


@pytest.mark.slow
def test_a_column_added_between_rounds(site: RealSite) -> None:
    """Fluss 0.9.1 cannot add one while it tiers to Iceberg, and then finds the lake table there.

    So the lake table stands aside while tiering is turned on again; the next round adds the column.
    """
    path = site.create("orders", orders(0, 1))
    site.append(path, orders(0, 100))
    site.tier(path)
    admin = site.client.admin
    more = [Column("more", t.STRING, -1)]
    with pytest.raises(UnknownServerError, match="Unsupported table change"):
        admin.add_columns(path, more)
    admin.set_options(path, {"table.datalake.enabled": "false"})
    admin.add_columns(path, more)
    with pytest.raises(LakeTableAlreadyExist):
        admin.set_options(path, {"table.datalake.enabled": "true"})
    lake_table = site.fluss.warehouse / path.database / path.table
    aside = lake_table.rename(lake_table.with_name("aside"))
    admin.set_options(path, {"table.datalake.enabled": "true"})
    shutil.rmtree(lake_table)
    aside.rename(lake_table)
    site.append(path, orders(100, 50).append_column("more", pa.array(["x"] * 50)))
    result = site.tier(path)
    assert result.rows == 50
    agrees(site, path, result)
    columns = site.rows("DESCRIBE lake.{db}.orders")
    assert [row.col_name for row in columns][:4] == ["id", "note", "more", "__bucket"]
    seen = site.rows("SELECT count(*), sum(id), count(more) FROM lake.{db}.orders")
    assert tuple(seen[0]) == (150, sum(range(150)), 50)


def enabled_again(site: RealSite, path: TablePath, freshness: str) -> Claim:
    """Disables and enables tiering while the table waits in the coordinator's queue.

    :returns: its claim before, with the tiering epoch that its next one has, too.
    """
    claim = site.claim(path)
    site.client.tiering.finished(claim, forced=True)
    site.client.admin.set_options(path, {"table.datalake.enabled": "false"})
    shutil.rmtree(site.fluss.warehouse / path.database / path.table)
    site.client.admin.set_options(path, {"table.datalake.freshness": freshness})
    site.client.admin.set_options(path, {"table.datalake.enabled": "true"})
    return claim


@pytest.mark.slow
def test_an_old_queue_entry_of_a_table_that_is_not_due(site: RealSite) -> None:
    path = site.create("orders", orders(0, 1))
    enabled_again(site, path, freshness="1h")
    assert site.client.tiering.claim([path]) is None
    result = tier_once(site.config, path, now=True, jvm=site.jvm)
    assert (result.outcome, result.rows) == ("nothing_new", 0)


@pytest.mark.slow
def test_an_old_queue_entry_of_a_due_table_gives_its_claim_to_one_worker(site: RealSite) -> None:
    path = site.create("orders", orders(0, 1))
    expected = enabled_again(site, path, freshness="1s")
    deadline = time.monotonic() + DUE_S
    with pytest.raises(UnknownServerError, match="Pending state"):  # it is in the queue twice
        while not site.client.tiering.still_claimed(expected):
            assert time.monotonic() < deadline
            time.sleep(0.1)
    claim = site.claim(path)
    assert site.client.tiering.claim([path]) is None
    assert site.client.tiering.still_claimed(claim)


@pytest.mark.slow
def test_every_type(site: RealSite) -> None:
    rows = every_value().drop_columns(["f_time"])  # which Spark cannot read
    path = site.create("types", rows, bucket_count=1)
    site.append(path, rows)
    agrees(site, path, site.tier(path))
    found = site.rows("SELECT * FROM lake.{db}.types ORDER BY __offset")
    for name in rows.column_names:
        assert [row[name] for row in found] == rows[name].to_pylist(), name


@pytest.mark.slow
def test_a_partition_that_was_dropped_and_created_again(site: RealSite) -> None:
    path = site.create("days", of_days("a"), partition_keys=("day",))
    site.append(path, of_days("a", "b"), dynamic_partitions=True)
    site.tier(path)
    site.client.admin.drop_partition(path, {"day": "a"})
    site.append(path, of_days("a").slice(0, 3), dynamic_partitions=True)
    result = site.tier(path)
    assert result.rows == 3
    assert any("was dropped and created again" in note for note in result.notes)
    counts = site.rows("SELECT day, count(*) FROM lake.{db}.days GROUP BY day ORDER BY day")
    assert list(map(tuple, counts)) == [("a", 3), ("b", 10)]


@pytest.mark.slow
def test_a_table_that_cannot_be_claimed(site: RealSite) -> None:
    with pytest.raises(TableNotExist):
        tier_once(site.config, TablePath(site.database, "gone"), jvm=site.jvm)
    plain = site.create("plain", orders(0, 1), properties={"table.datalake.enabled": "false"})
    with pytest.raises(TableNotDue, match=r"'table\.datalake\.enabled' = 'true'"):
        tier_once(site.config, plain, jvm=site.jvm)
    busy = site.create("busy", orders(0, 1))
    site.claim(busy)
    with pytest.raises(TableNotDue, match="is being tiered"):
        tier_once(site.config, busy, jvm=site.jvm)


def test_acquire_takes_what_a_run_asked_for(site: RealSite, tmp_path: Path) -> None:
    """The real heartbeat hands out any table: those of others wait on for who wants them."""
    wanted = [site.create(name, orders(0, 1)) for name in ("wanted_a", "wanted_b")]
    other = site.create("other", orders(0, 1))
    site.create("plain", orders(0, 1), properties={"table.datalake.enabled": "false"})
    for path in (*wanted, other):
        site.client.tiering.release(
            site.claim(path), Reason.from_text("only looked whether it is due")
        )
    connection = FlussConnection.parse(
        "fluss_default", "127.0.0.1", 1, {"transport": "fluss", "work_uri": tmp_path.as_uri()}
    )
    pattern = f"{site.database}.wanted_*"
    entries = acquire(site.client, connection, "sluice-lease", [pattern], tables_max=5)
    assert sorted(entry["table"] for entry in entries) == sorted(map(str, wanted))
    again = acquire(site.client, connection, "sluice-lease", [pattern], tables_max=5)
    assert sorted(entry["table"] for entry in again) == sorted(map(str, wanted)), "taken over"
    assert site.client.tiering.claim([other]) is not None
    with pytest.raises(TableNotExist, match="does not exist; correct the name"):
        acquire(site.client, connection, "sluice-lease", [f"{site.database}.plain"], tables_max=5)
    for entry in again:
        site.client.tiering.finished(claim_of(entry))
