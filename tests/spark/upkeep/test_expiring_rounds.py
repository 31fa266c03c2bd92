"""The setting ``tiering.auto_expire_snapshot``, in a round of each driver."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from sluice.config import Config
from sluice.driver.local import tier_once
from sluice.driver.spark.round import run
from sluice.errors import TableNotDue
from sluice.model import TablePath
from sluice.model import types as t
from sluice.rounds.records.json_files import read_json, write_json
from sluice.rounds.records.plan_file import PlanFile, plan_uri
from sluice.rounds.records.result import RoundResult, result_uri
from sluice.rounds.values.expiry import ROUND_MS_KEY
from tests.spark.conftest import Site
from tests.support.lake.aged_lake import age_snapshots

pytestmark = pytest.mark.spark
PATH = TablePath("shop", "orders")
ROUNDS = 6
WEEK_MS = 7 * 24 * 3_600_000


def append(site: Site, number: int) -> None:
    site.append(PATH, pa.table({"id": pa.array([number], pa.int64())}))


def in_process(site: Site, config: Config) -> RoundResult:
    while True:
        try:
            return tier_once(config, PATH, jvm=site.jvm)
        except TableNotDue:
            continue


def on_spark(site: Site, config: Config, spark: Any) -> RoundResult:
    claim = site.claim(PATH)
    uri = plan_uri(site.work_uri, "sluice-lease", claim)
    write_json(uri, PlanFile(claim, "sluice-lease", config.client.bootstrap).to_json())
    config = replace(config, tiering=replace(config.tiering, driver_copy_rows=100))
    assert run(spark.sparkContext, uri, "a1", config) == 0
    return RoundResult.from_json(read_json(result_uri(uri, "a1")) or {})


@pytest.mark.parametrize("by_spark", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_round_expires_what_is_old(site: Site, spark: Any, by_spark: bool) -> None:
    site.create(PATH, {"id": t.BIGINT}, bucket_count=1)
    for number in range(ROUNDS):
        append(site, number)
        in_process(site, site.config)
    age_snapshots(site.warehouse / "shop/orders", WEEK_MS)
    append(site, ROUNDS)
    config = replace(site.config, tiering=replace(site.config.tiering, auto_expire_snapshot=True))
    result = on_spark(site, config, spark) if by_spark else in_process(site, config)
    assert (result.outcome, result.notes) == ("committed", ())
    assert result.snapshots_expired == ROUNDS - 1
    assert result.files_expired == ROUNDS - 1  # manifest lists; the base has the manifests
    kept = site.rows("SELECT snapshot_id, summary FROM lake.shop.orders.snapshots")
    assert len(kept) == 2
    registered = site.client.admin.lake_snapshot(PATH)
    assert registered is not None
    assert registered.snapshot_id == result.lake_snapshot_id
    summaries = {row[0]: row[1] for row in kept}
    took_ms = int(summaries[registered.snapshot_id][ROUND_MS_KEY])
    assert 0 < took_ms <= 1000 * result.seconds["total"]
    assert site.rows("SELECT count(*), sum(id) FROM lake.shop.orders")[0][:] == (7, 21)
