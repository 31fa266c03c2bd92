"""Rounds that died, and a lake that Spark SQL has maintained, rolled back or expired meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable

import pyarrow as pa
import pytest

from sluice import failpoints
from sluice.driver.local import tier_once
from sluice.errors import TableNotDue
from sluice.model import TablePath
from sluice.model import types as t
from sluice.rounds.files import RoundResult

from .conftest import Site

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


@pytest.fixture
def arm(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Arms failpoints for the rest of the test."""

    def apply(text: str) -> None:
        monkeypatch.setattr(failpoints, "_armed", failpoints.parse(text))
        monkeypatch.setattr(failpoints, "_passages", {})

    return apply


def tier(site: Site) -> RoundResult:
    """One round, as soon as the table is due."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return tier_once(site.config, PATH, jvm=site.jvm)
        except TableNotDue:
            assert time.monotonic() < deadline
            time.sleep(0.05)


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
