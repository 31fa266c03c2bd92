"""Tables with a primary key of a real Fluss in its own lake: leased snapshots and changelogs."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from sluice.model import TablePath
from sluice.rounds.records.result import RoundResult
from tests.real_fluss.conftest import RealSite
from tests.support.fluss.table_creation import create_table
from tests.support.programs.processes import wait_for
from tests.support.tables.keyed_stock import Stock, stock_table

pytestmark = [pytest.mark.real_fluss, pytest.mark.spark, pytest.mark.slow]

NewStock = Callable[..., Stock]


@pytest.fixture
def new_stock(site: RealSite) -> NewStock:
    def make(properties: dict[str, str] | None = None, *, partitioned: bool = False) -> Stock:
        path = TablePath(site.database, "stock")
        table = stock_table(
            {"table.datalake.freshness": "1s", **(properties or {})}, partitioned=partitioned
        )
        create_table(site.client, path, table, site.fluss.warehouse)
        return Stock(site.client, path, site.rows)

    return make


def wait_for_snapshots(stock: Stock) -> None:
    """Until the tablet server has taken a KV snapshot of all that was written."""
    ends = stock.client.admin.list_offsets(stock.path)
    written = {bucket for bucket, end in ends.items() if end}

    def taken() -> bool:
        found = stock.client.leases.latest(stock.path).snapshots.values()
        held = {s.bucket.bucket for s in found if s.log_offset >= ends[s.bucket.bucket]}
        return held >= written

    wait_for("KV snapshots of all that was written", taken, 60)


@pytest.mark.parametrize("image", ["FULL", pytest.param("WAL", marks=pytest.mark.long)])
def test_a_leased_snapshot_its_log_and_changes_make_the_lake_the_table(
    site: RealSite, new_stock: NewStock, image: str
) -> None:
    stock = new_stock({"table.changelog.image": image})
    stock.put({key: key for key in range(100)})
    wait_for_snapshots(stock)
    stock.put({key: -key for key in range(50, 120)})
    stock.delete(0, 1, 99, 500)
    first = site.tier(stock.path)
    assert (first.outcome, first.rows, first.deletes) == ("committed", 117, 0)
    stock.assert_equal()
    assert stock.rows("SELECT count(*) FROM {lake} WHERE __offset = -1")[0][0] >= 48

    stock.put({5: None, 7: 70, 200: 200})
    stock.delete(8)
    stock.put({8: 88}, item=None)
    site.tier(stock.path)
    stock.assert_equal()
    stock.delete(*range(60))
    third = site.tier(stock.path)
    assert (third.outcome, third.rows) == ("committed", 0)
    stock.assert_equal()


def test_partitions_dropped_and_created_again_while_others_change(
    site: RealSite, new_stock: NewStock
) -> None:
    stock = new_stock(partitioned=True)
    admin = site.client.admin
    for day in ("mon", "tue"):
        admin.create_partition(stock.path, {"day": day})
        stock.put({1: 1, 2: 2, 3: 3}, day)
    site.tier(stock.path)
    stock.assert_equal()
    admin.drop_partition(stock.path, {"day": "mon"})
    stock.forget("mon")
    admin.create_partition(stock.path, {"day": "mon"})
    stock.put({3: 33, 4: 4}, "mon")
    stock.delete(2, day="tue")
    result = site.tier(stock.path)
    assert any("mon was dropped and created again" in note for note in result.notes)
    stock.assert_equal()


@pytest.mark.parametrize("engine", [pytest.param("first_row", marks=pytest.mark.long), "versioned"])
def test_merge_engines(site: RealSite, new_stock: NewStock, engine: str) -> None:
    version = {"table.merge-engine.versioned.ver-column": "n"} if engine == "versioned" else {}
    stock = new_stock({"table.merge-engine": engine, **version})
    stock.put({1: 5, 2: 2})
    site.tier(stock.path)
    stock.put({1: 4, 2: 3, 3: 3})
    site.tier(stock.path)
    kept = {1: 5, 2: 2, 3: 3} if engine == "first_row" else {1: 5, 2: 3, 3: 3}
    assert {key[1]: row[1] for key, row in stock.in_lake().items()} == kept


@pytest.mark.long
@pytest.mark.parametrize("image", ["FULL", "WAL"])
def test_random_operations_and_rounds(site: RealSite, new_stock: NewStock, image: str) -> None:
    rng = random.Random(f"real {image}")
    stock = new_stock({"table.changelog.image": image})
    rounds: list[RoundResult] = []
    counted = 0
    for step in range(6):
        for _ in range(rng.randrange(1, 6)):
            keys = rng.sample(range(50), rng.randrange(1, 12))
            if rng.random() < 0.4:
                stock.delete(*keys)
                continue
            counted += 1
            stock.put(dict.fromkeys(keys, counted), item=rng.choice(["pen", "ink", None]))
        if step == 0:
            wait_for_snapshots(stock)
            stock.put(dict.fromkeys(range(0, 50, 7), -1))
        rounds.append(site.tier(stock.path))
        stock.assert_equal()
    assert any(each.deletes for each in rounds)
