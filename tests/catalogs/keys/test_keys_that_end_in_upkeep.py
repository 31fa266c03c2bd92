"""Keys of some seconds end during a compaction, a conversion of deletes, and a clean-up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from sluice.driver.cleaning import clean_tables
from sluice.driver.maintaining import maintain_tables
from tests.support.catalog_servers.iam_s3 import IamS3
from tests.support.catalogs.operations import check, files_of_a_killed_driver, fill, numbers_table
from tests.support.catalogs.rounds import RoundSite
from tests.support.catalogs.servers import LIFE_S
from tests.support.tables.keyed_stock import Stock, stock_table

pytestmark = pytest.mark.long


@contextmanager
def slow(store: IamS3, delay_s: float) -> Iterator[None]:
    """Delays each request of the block for files that are not metadata.

    The block must last so long that its first keys end, and several keys must have been used. One
    file must be read within a quarter of their life: its reader has the keys that it began with.
    """
    owner = store.owner.access_key
    before, began_s = len(store.requests()), time.monotonic()
    store.delay(delay_s)
    try:
        yield
    finally:
        store.delay(0)
    assert time.monotonic() - began_s > LIFE_S
    seen = store.requests()[before:]
    assert len({one["key"] for one in seen if "/metadata/" not in one["path"]} - {owner}) > 1


def test_a_compaction(vending: RoundSite, store: IamS3) -> None:
    path = numbers_table(vending)
    for start in range(0, 100, 10):
        fill(vending, path, start, 10)
        vending.tier(path)
    vending.client.statuses.request_compaction(path)
    fill(vending, path, 100, 10)
    with slow(store, 0.8):
        result = vending.tier(path)
    assert result.rows == 10
    assert result.files_compacted >= 9, "one of a bucket's own may stay"
    check(vending, path, 110)


def test_a_conversion_of_equality_deletes(vending: RoundSite, store: IamS3) -> None:
    path = vending.new_path("stock")
    vending.client.admin.create_table(path, stock_table())
    stock = Stock(vending.client, path, lambda query: [])
    stock.put({key: key for key in range(40)})
    vending.tier(path)
    for start in range(5):
        stock.put({key: -key for key in range(start, 40, 5)})
        vending.tier(path, position_lookup_bytes=0)
    config = replace(vending.config, tiering=replace(vending.config.tiering, parallelism=1))
    with slow(store, 0.4):
        [report] = maintain_tables(config, path, apply=True, jvm=vending.jvm)
    assert report.notes == []
    assert report.before.equality_files > 0
    assert report.after is not None
    assert report.after.equality_files == 0
    expected = sorted((*key, *row) for key, row in stock.held.items())
    assert vending.rows(path, "day", "id", "item", "n") == expected


def test_a_clean_up(vending: RoundSite, store: IamS3) -> None:
    path = files_of_a_killed_driver(vending)
    [left] = clean_tables(vending.config, path, apply=False, jvm=vending.jvm)
    [dead, *_] = [one.path.removeprefix("s3://") for one in left.dead]
    files = store.file_system()
    for number in range(2, 92):  # a file after the other, as one writer names them
        files.copy_file(dead, dead.replace("-00001.parquet", f"-{number:05}.parquet"))
    with slow(store, 0.2):
        [report] = clean_tables(vending.config, path, apply=True, jvm=vending.jvm)
    assert report.failed == {}
    assert len(report.removed) == len(left.dead) + 90
    check(vending, path, 10)
