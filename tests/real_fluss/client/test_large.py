"""Five million rows of a real Fluss, tiered by Spark, compared row by row with what was written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from bench import data
from sluice.driver.spark.round import run
from sluice.model import TablePath
from sluice.rounds.records.json_files import read_json, write_json
from sluice.rounds.records.plan_file import PlanFile, plan_uri
from sluice.rounds.records.result import RoundResult, result_uri
from tests.real_fluss.conftest import RealSite
from tests.support.fluss.table_creation import create_table

pytestmark = [pytest.mark.real_fluss, pytest.mark.spark, pytest.mark.long]
ROWS = 5_000_000
BUCKETS = 4


@pytest.mark.timeout(900)
def test_five_million_rows_tiered_by_spark(site: RealSite, spark: Any, tmp_path: Path) -> None:
    path = TablePath(site.database, "events")
    create_table(site.client, path, data.descriptor(BUCKETS), site.fluss.warehouse)
    source = tmp_path / "source.parquet"
    with (
        pq.ParquetWriter(source, data.ARROW_SCHEMA) as file,
        site.client.log_writer(path) as writer,
    ):
        for batch in data.batches(ROWS):
            file.write_batch(batch)
            writer.write(batch)
    claim = site.claim(path)
    uri = plan_uri(tmp_path.as_uri(), "sluice-lease", claim)
    write_json(uri, PlanFile(claim, "sluice-lease", site.config.client.bootstrap).to_json())
    assert run(spark.sparkContext, uri, "a1", site.config) == 0
    content = read_json(result_uri(uri, "a1"))
    assert content is not None
    result = RoundResult.from_json(content)
    site.client.tiering.finished(claim)
    assert (result.outcome, result.rows, len(result.offsets)) == ("committed", ROWS, BUCKETS)
    found = site.client.admin.lake_snapshot(path)
    assert found is not None
    assert found.snapshot_id == result.lake_snapshot_id
    assert sum(found.offsets.values()) == ROWS

    spark.read.parquet(str(source)).createOrReplaceTempView("written")
    equal = " AND ".join(f"w.{name} <=> l.{name}" for name in data.ARROW_SCHEMA.names)
    [same] = site.rows(
        f"SELECT count(*) FROM written w JOIN lake.{{db}}.events l ON w.id = l.id WHERE {equal}"
    )
    [lake] = site.rows("SELECT count(*), count(DISTINCT id) FROM lake.{db}.events")
    assert (same[0], tuple(lake)) == (ROWS, (ROWS, ROWS))
    ends = site.rows(
        "SELECT __bucket, count(DISTINCT __offset), min(__offset), max(__offset) + 1"
        " FROM lake.{db}.events GROUP BY 1"
    )
    assert {bucket: (n, low, high) for bucket, n, low, high in ends} == {
        bucket.bucket: (end, 0, end) for bucket, end in found.offsets.items()
    }
