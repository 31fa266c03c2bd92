"""The script of docs/airflow-assets.md that reads each new lake snapshot once."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from sluice.model import TablePath
from sluice.model import types as t
from tests.docs.blocks import claimed_blocks
from tests.spark.conftest import Site
from tests.spark.tier.test_tier_local import tier

pytestmark = [pytest.mark.spark, pytest.mark.slow]
ORDERS = TablePath("shop", "orders")
[SCRIPT] = (block.content for block in claimed_blocks("docs/airflow-assets.md", __file__))


def test_each_row_is_copied_once(site: Site, spark: Any) -> None:
    catalog = "lake_of_the_page"
    for name, value in (
        ("", "org.apache.iceberg.spark.SparkCatalog"),
        (".type", "hadoop"),
        (".warehouse", str(site.warehouse)),
        (".cache-enabled", "false"),
    ):
        spark.conf.set(f"spark.sql.catalog.{catalog}{name}", value)
    script = compile(SCRIPT.replace("lake.", f"{catalog}."), "read_new_orders.py", "exec")

    def read() -> list[int]:
        """Runs the script, and returns the ids that were copied so far."""
        exec(script, {})
        rows = spark.sql(f"SELECT id FROM {catalog}.report.orders").collect()
        return sorted(row.id for row in rows)

    site.create(ORDERS, {"id": t.BIGINT, "note": t.STRING}, bucket_count=2, bucket_keys=("id",))
    for first in (0, 100):
        site.append(ORDERS, orders(first, 100))
        tier(site)
    assert read() == list(range(200)), "both snapshots at once"
    with pytest.raises(SystemExit, match="nothing new"):
        read()
    site.append(ORDERS, orders(200, 50))
    tier(site)
    spark.sql(
        f"CALL {catalog}.system.rewrite_data_files(table => 'shop.orders',"
        " options => map('rewrite-all', 'true'))"
    )
    assert read() == list(range(250)), "a compaction in between has no new rows"
    with pytest.raises(SystemExit, match="nothing new"):
        read()


def orders(first: int, count: int) -> pa.Table:
    ids = pa.array(range(first, first + count), pa.int64())
    return pa.table({"id": ids, "note": pa.array(["n"] * count)})
