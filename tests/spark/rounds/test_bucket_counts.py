"""A table that was rescaled before its tiering was enabled: embedded server, rounds, Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sluice.model import TablePath
from sluice.model import types as t
from tests.spark.conftest import Site
from tests.spark.tier.test_tier_local import tier

pytestmark = pytest.mark.spark
PATH = TablePath("shop", "orders")


def days(day: str, first: int) -> pa.Table:
    ids = pa.array(range(first, first + 100), pa.int64())
    return pa.table({"id": ids, "day": pa.array([day] * 100)})


@pytest.mark.parametrize("layout", ["legacy", "clean"])
def test_every_row_of_a_rescaled_log_table_is_tiered_once(site: Site, layout: str) -> None:
    admin = site.client.admin
    site.create(
        PATH,
        {"id": t.BIGINT, "day": t.STRING},
        partition_keys=("day",),
        bucket_count=2,
        properties={"table.datalake.enabled": "false"},
    )
    admin.create_partition(PATH, {"day": "d1"})
    site.append(PATH, days("d1", 0))
    admin.set_bucket_count(PATH, 4)
    admin.create_partition(PATH, {"day": "d2"})
    with site.client.log_writer(PATH) as writer:
        for at in range(0, 100, 10):  # one batch after the other, in turn to all buckets
            writer.write(days("d2", 100).slice(at, 10))
            writer.flush()
    admin.set_options(PATH, {"table.datalake.enabled": "true"})
    first = tier(site)
    assert (first.outcome, first.rows) == ("committed", 200)
    assert tier(site).outcome == "nothing_new"
    for day, first_id in (("d1", 200), ("d2", 300)):
        site.append(PATH, days(day, first_id))
    assert tier(site).rows == 200
    seen = site.rows("SELECT count(*), count(DISTINCT id), sum(id) FROM lake.shop.orders")
    assert tuple(seen[0]) == (400, 400, sum(range(400)))
    buckets = {one.name: one.bucket_count for one in admin.partitions(PATH)}
    assert buckets == {"d1": 2, "d2": 4}
    registered = admin.lake_snapshot(PATH)
    assert registered is not None
    ends = admin.table_offsets(admin.table_info(PATH))
    assert registered.offsets == {bucket: end for bucket, end in ends.items() if end}
    if layout == "legacy":
        most = site.rows("SELECT day, max(__bucket) FROM lake.shop.orders GROUP BY 1")
        found = dict(map(tuple, most))
        assert found["d1"] <= 1 < found["d2"]
