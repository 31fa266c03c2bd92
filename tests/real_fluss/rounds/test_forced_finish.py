"""A round that is cut on a real Fluss: its coordinator queues the table again at once."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from tests.real_fluss.conftest import RealSite

pytestmark = [pytest.mark.real_fluss, pytest.mark.spark, pytest.mark.slow]


def test_rounds_that_are_cut_follow_each_other_until_all_is_tiered(site: RealSite) -> None:
    rows = pa.table({"id": pa.array(range(100), pa.int64())})
    path = site.create("orders", rows, bucket_count=2, bucket_keys=("id",))
    for _ in range(4):  # a batch in each bucket every time
        site.append(path, rows)
    claim = site.claim(path)
    # From here on only a forced finish makes it due within this test.
    site.client.admin.set_options(path, {"table.datalake.freshness": "1h"})
    site.client.tiering.finished(claim, forced=True)
    site.config = replace(site.config, tiering=replace(site.config.tiering, max_round_bytes=1))
    results = [site.tier(path)]
    while results[-1].forced:
        results.append(site.tier(path))
    assert [bool(result.forced) for result in results] == [True, True, True, False]
    assert [result.rows for result in results] == [100] * 4
    seen = site.rows(
        "SELECT count(*), sum(id), count(DISTINCT __bucket, __offset) FROM lake.{db}.orders"
    )
    assert tuple(seen[0]) == (400, 4 * sum(range(100)), 400)
    found = site.client.admin.lake_snapshot(path)
    assert found is not None
    assert sum(found.offsets.values()) == 400
