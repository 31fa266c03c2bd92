"""Rounds of tables whose lake other engines have altered, by Spark SQL on the lake itself."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from sluice.driver.local import tier_once
from sluice.driver.repairing import diagnose_table, repair
from sluice.errors import LakeTableMismatch
from sluice.model import TablePath
from sluice.model import types as t
from sluice.rounds.records.result import RoundResult
from tests.spark.conftest import LocalStock, Site

pytestmark = pytest.mark.spark
PATH = TablePath("shop", "events")
COMPACTED = {"table.datalake.auto-compaction": "true"}
BOTH = pytest.mark.parametrize("layout", ["legacy", "clean"])


def made(site: Site) -> None:
    columns = {"id": t.INT.not_null(), "name": t.STRING, "rate": t.FLOAT, "price": t.decimal(9, 2)}
    site.create(PATH, columns, bucket_count=1, properties=COMPACTED)


def tier(site: Site, first: int, count: int = 2) -> RoundResult:
    ids = range(first, first + count)
    rows = {
        "id": pa.array(ids, pa.int32()),
        "name": pa.array([f"n{i}" for i in ids]),
        "rate": pa.array([i / 2 for i in ids], pa.float32()),
        "price": pa.array([None for _ in ids], pa.decimal128(9, 2)),
    }
    site.append(PATH, pa.table(rows))
    return tier_once(site.config, PATH, now=True, jvm=site.jvm)


@BOTH
def test_a_log_table_goes_on_after_legal_changes(site: Site, layout: str) -> None:
    made(site)
    tier(site, 0)
    lake = f"lake.{PATH}"
    site.rows(f"ALTER TABLE {lake} RENAME COLUMN name TO label")
    site.rows(f"ALTER TABLE {lake} ALTER COLUMN id TYPE BIGINT")
    site.rows(f"ALTER TABLE {lake} ALTER COLUMN rate TYPE DOUBLE")
    site.rows(f"ALTER TABLE {lake} ALTER COLUMN price TYPE DECIMAL(18, 2)")
    site.rows(f"ALTER TABLE {lake} ALTER COLUMN id DROP NOT NULL")
    site.rows(f"ALTER TABLE {lake} ALTER COLUMN price FIRST")
    site.rows(f"ALTER TABLE {lake} ADD COLUMN extra STRING")
    told = tier(site, 2)
    assert [note for note in told.notes if "column" in note] == [
        "column id is long in the lake and int in Fluss: its values fit",
        "column name is named label in the lake, and written there",
        "column rate is double in the lake and float in Fluss: its values fit",
        "column price is decimal(18,2) in the lake and decimal(9,2) in Fluss: its values fit",
        "column extra, which another engine has added, is null in new rows",
    ]
    assert told.lake_layout == layout
    assert not any("column" in note for note in tier(site, 4).notes), "it was said"
    site.rows(f"UPDATE {lake} SET extra = concat('x', id) WHERE id < 3")
    compacted = sum(tier(site, first).files_compacted for first in (6, 8, 10, 12))
    assert compacted > 0
    rows = site.rows(f"SELECT id, label, rate, extra FROM {lake} ORDER BY id")
    assert [tuple(row) for row in rows] == [
        (i, f"n{i}", i / 2, f"x{i}" if i < 3 else None) for i in range(14)
    ]


@BOTH
def test_a_dropped_column_stops_rounds_until_it_is_added_by_the_statement(site: Site) -> None:
    made(site)
    tier(site, 0)
    lake = f"lake.{PATH}"
    site.rows(f"ALTER TABLE {lake} DROP COLUMN rate")
    with pytest.raises(LakeTableMismatch) as caught:
        tier(site, 2)
    said = str(caught.value)
    assert said.startswith(f"lake table {PATH} has no column rate: another engine has dropped it.")
    diagnosis = diagnose_table(site.config, PATH, site.jvm)
    assert (diagnosis.healthy, diagnosis.state, diagnosis.actions) == (False, said, ())
    assert "`sluice retry shop.events`" in diagnosis.advice[0]
    with pytest.raises(LakeTableMismatch, match="has no column rate"):
        repair(site.config, PATH, jvm=site.jvm)
    found = re.search(r"ALTER TABLE CATALOG\.(.*)", said)
    assert found is not None
    site.rows(f"ALTER TABLE lake.{found[1]}")
    assert diagnose_table(site.config, PATH, site.jvm).healthy
    told = tier_once(site.config, PATH, now=True, jvm=site.jvm)
    assert "column rate was dropped in the lake and added again" in "; ".join(told.notes)
    rows = site.rows(f"SELECT id, rate FROM {lake} ORDER BY id")
    assert [tuple(row) for row in rows] == [(0, None), (1, None), (2, 1.0), (3, 1.5)]


def test_a_lake_that_is_behind_and_has_lost_a_column_is_told_both(site: Site) -> None:
    made(site)
    first = tier(site, 0).lake_snapshot_id
    tier(site, 2)
    site.rows(f"CALL lake.system.rollback_to_snapshot('{PATH}', {first})")
    site.rows(f"ALTER TABLE lake.{PATH} DROP COLUMN rate")
    diagnosis = diagnose_table(site.config, PATH, site.jvm)
    assert "restore" in [action.name for action in diagnosis.actions]
    assert diagnosis.advice[-1].startswith(f"lake table {PATH} has no column rate")


@pytest.mark.parametrize("layout", ["clean", pytest.param("legacy", marks=pytest.mark.long)])
def test_keys_are_found_under_their_new_name_and_width(stock: LocalStock) -> None:
    stock.create(COMPACTED)
    stock.put({key: key for key in range(20)})
    stock.tier()
    stock.rows("ALTER TABLE {lake} RENAME COLUMN id TO number")
    stock.rows("ALTER TABLE {lake} ALTER COLUMN n TYPE BIGINT")
    stock.rows("ALTER TABLE {lake} ALTER COLUMN item AFTER n")
    stock.put({key: -key for key in range(5)})
    stock.delete(7, 8)
    assert stock.tier().deletes_as == "positions"
    for number in range(3):
        stock.put({number: 100})
        stock.tier()
    rows = stock.rows("SELECT day, number, item, n FROM {lake}")
    assert {(row.day, row.number): (row.item, row.n) for row in rows} == stock.held
    assert len(rows) == len(stock.held)
