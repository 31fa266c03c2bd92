"""Fluss's own tiering job on Flink, on lake tables whose rows our rounds delete by position.

The job is the one of Fluss 0.9.1, with Iceberg 1.10.1. It deletes earlier rows by equality deletes.
The row of a key that changes twice in one of its rounds it deletes by position.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from bench.flink.flink_job import FlinkJob
from sluice.driver.local import tier_once
from sluice.model import TablePath
from tests.real_fluss.conftest import RealSite
from tests.support.clients.flink_rounds import Turns, fetched_flink_jars
from tests.support.fluss.table_creation import create_table
from tests.support.programs.processes import wait_for
from tests.support.tables.keyed_stock import Stock, stock_table

pytestmark = [pytest.mark.real_fluss, pytest.mark.spark, pytest.mark.long]

ROUNDS = 10
FLINKS_ICEBERG = "Apache Iceberg 1.10.1 "
REFUSED = "IllegalArgumentException: Must use DVs for position deletes in V3: "
POSITIONS, EQUALITY = 1, 2
"""The kinds of delete files in Iceberg's metadata."""


@pytest.fixture(scope="module")
def flink_jars() -> list[Path]:
    return fetched_flink_jars()


@pytest.fixture
def new_turns(site: RealSite) -> Callable[..., Turns]:
    def make(name: str, *days: str, version: int | None = None) -> Turns:
        """A table of this name; with several days, one with partitions."""
        path = TablePath(site.database, name)
        table = stock_table(
            {"table.datalake.freshness": "1s"}, partitioned=len(days) > 1, version=version
        )
        create_table(site.client, path, table, site.fluss.warehouse)
        # From here on nothing is due unless the test says so.
        site.client.admin.set_options(path, {"table.datalake.freshness": "1d"})
        if len(days) > 1:
            for day in days:
                site.client.admin.create_partition(path, {"day": day})
        stock = Stock(site.client, path, site.rows)
        tier = partial(tier_once, site.config, path, now=True, jvm=site.jvm)
        return Turns(stock, days, tier, random.Random(name))

    return make


def our_rounds(turns: Turns, count: int) -> None:
    """Rounds of changes, which delete by position only."""
    for _ in range(count):
        turns.change()
        result = turns.ours()
        assert result.deletes_as == "positions"
        assert result.deletes > 0


def assert_equal(turns: Turns) -> None:
    turns.stock.assert_equal()
    turns.assert_registered()


def delete_files(turns: Turns) -> set[tuple[int, str]]:
    """Kind and format of the live delete files."""
    rows = turns.stock.rows("SELECT DISTINCT content, file_format FROM {lake}.delete_files")
    return {(row.content, row.file_format) for row in rows}


def position_files_of_flink(turns: Turns) -> int:
    query = "SELECT count(*) FROM {lake}.delete_files WHERE content = 1"
    [[count]] = turns.stock.rows(f"{query} AND file_path NOT LIKE '%-positions.parquet'")
    return int(count)


def format_version(turns: Turns) -> str:
    [row] = turns.stock.rows("SHOW TBLPROPERTIES {lake} ('format-version')")
    return str(row.value)


def assert_flinks_round(turns: Turns) -> None:
    """The newest snapshot is Flink's, has deletes of both kinds, and makes the lake the table."""
    summary = turns.summary()
    assert summary["iceberg-version"].startswith(FLINKS_ICEBERG)
    assert int(summary["added-equality-deletes"]) > 0
    assert int(summary["added-position-deletes"]) > 0
    assert_equal(turns)


def test_flink_and_our_rounds_take_turns(
    site: RealSite, new_turns: Callable[..., Turns], flink_jars: list[Path], tmp_path: Path
) -> None:
    tables = [new_turns("plain", "mon"), new_turns("by_day", "mon", "tue")]
    for turns in tables:
        turns.fill()
        turns.ours()
        our_rounds(turns, ROUNDS)
        assert delete_files(turns) == {(POSITIONS, "PARQUET")}
        assert format_version(turns) == "2", "Fluss creates tables of version 2"
        assert_equal(turns)

    for turn in range(2):
        with FlinkJob(site.fluss, flink_jars, tmp_path / f"flink-{turn}.log") as job:
            for turns in tables:
                turns.change_twice()
                turns.request()
            for turns in tables:
                turns.wait_for_flink(job)
        for turns in tables:
            assert_flinks_round(turns)
            before = position_files_of_flink(turns)
            our_rounds(turns, 1)
            assert delete_files(turns) == {(POSITIONS, "PARQUET"), (EQUALITY, "PARQUET")}
            assert_equal(turns)
            our_rounds(turns, 1 + 2 * turn)
            assert_equal(turns)
            if turn:  # a bucket has had its eighth file
                assert position_files_of_flink(turns) < before, "ours have taken in none of Flink's"

    [plain, _] = tables  # on version 3 vectors also take in what Flink's files mark
    plain.stock.rows("ALTER TABLE {lake} SET TBLPROPERTIES ('format-version' = '3')")
    our_rounds(plain, 1)
    assert (POSITIONS, "PUFFIN") in delete_files(plain)
    assert_equal(plain)


def test_on_version_3_flink_stops_at_a_key_that_changes_twice(
    site: RealSite, new_turns: Callable[..., Turns], flink_jars: list[Path], tmp_path: Path
) -> None:
    turns = new_turns("vectors", "mon", version=3)
    turns.fill()
    turns.ours()
    our_rounds(turns, ROUNDS)
    assert delete_files(turns) == {(POSITIONS, "PUFFIN")}
    assert_equal(turns)

    with FlinkJob(site.fluss, flink_jars, tmp_path / "flink.log") as job:
        turns.change()
        turns.request()
        turns.wait_for_flink(job)
        assert turns.summary()["iceberg-version"].startswith(FLINKS_ICEBERG)
        assert delete_files(turns) == {(POSITIONS, "PUFFIN"), (EQUALITY, "PARQUET")}
        assert_equal(turns)
        before = turns.stock.in_lake()
        registered = site.client.admin.lake_snapshot(turns.stock.path)
        turns.change_twice()
        turns.request()
        wait_for("Iceberg's refusals", lambda: job.said().count(REFUSED) >= 3, 180)
    turns.end_claim()
    assert turns.stock.in_lake() == before
    assert site.client.admin.lake_snapshot(turns.stock.path) == registered

    assert turns.ours().deletes_as == "positions"
    assert_equal(turns)
    our_rounds(turns, 2)
    assert_equal(turns)
