"""The whole way: the DAG, spark-submit, the driver, and a lake that Spark reads back."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from sluice.artifacts.iceberg import installed_iceberg
from sluice_airflow.claims.task_runs import TaskRun
from tests.airflow.place import ROOT, Place, failures_of, only, results_of
from tests.docs.blocks import claimed_blocks
from tests.support.clusters.spark_cluster import EXECUTOR_MEMORY, SparkCluster

pytestmark = [pytest.mark.airflow, pytest.mark.spark]

SPARK = {
    # spark-submit is found beside Airflow's own Python, and finds that Python from there.
    "AIRFLOW__SLUICE__SPARK_BINARY": "",
    "PATH": "/usr/bin:/bin",
    "AIRFLOW__SLUICE__JARS": str(ROOT / ".cache/jars" / installed_iceberg().name),
    "AIRFLOW__SLUICE__TIER_RETRIES": "0",
    "SPARK_LOCAL_IP": "127.0.0.1",
}
CONF = {"spark.ui.enabled": False}
ROWS = 1000
[LOG] = (block.content for block in claimed_blocks("docs/airflow.md", __file__))


def lake_at(folder: Path) -> dict[str, str]:
    return {"format": "iceberg", "iceberg.type": "hadoop", "iceberg.warehouse": str(folder)}


def test_a_table_reaches_iceberg(
    place: Place, tmp_path: Path, lake_sql: Callable[[Path, str], list[Any]]
) -> None:
    path = place.table("events", rows=ROWS)
    place.wait(path)
    lake = tmp_path / "lake"
    run = place.run(
        {"tables": ["shop.events"], "spark_conf": CONF},
        **{**place.connection(datalake=lake_at(lake)), **SPARK},
    )
    assert run["state"] == "success", place.airflow.log.read_text()[-6000:]
    [result] = results_of(run).values()
    assert (result["outcome"], result["rows"]) == ("committed", ROWS)
    [row] = lake_sql(lake, "SELECT count(*), sum(id), max(id) FROM lake.shop.events")
    assert tuple(row) == (ROWS, ROWS * (ROWS - 1) // 2, ROWS - 1)
    snapshot = place.client.admin.lake_snapshot(path)
    assert snapshot is not None
    assert str(snapshot.snapshot_id) == result["lake_snapshot_id"]
    status = place.status(path)
    assert status.last_error is None
    assert (status.lake_rows, status.lake_files) == (ROWS, 1)
    [stored] = (lake / "shop/events/data").rglob("*.parquet")
    assert status.lake_bytes == stored.stat().st_size
    [ended] = place.client.statuses.history(path)
    assert (ended.lake_rows, ended.lake_bytes) == (ROWS, status.lake_bytes)
    assert (ended.spark_application or "").startswith("local-")
    assert TaskRun.parse(ended.airflow_task) == TaskRun(
        "sluice_lake_tiering", run["run_id"], "per_application.tier", 0, 1
    )
    links = place.airflow.ask(
        "round_links",
        ended={
            "airflow_task": ended.airflow_task,
            "spark_application": ended.spark_application,
            "lake_snapshot_id": ended.lake_snapshot_id,
        },
        addresses={
            "spark_history_url": "https://spark.example/",
            "lake_table_url": "https://lake.example/{database}/{table}?at={snapshot_id}",
            "health_url": "",
        },
    )
    task = urlsplit(run["urls"]["per_application.tier[0]"])  # as Airflow itself names it
    assert links == {
        "Task instance": f"{task.path}?{task.query}",
        "Run": task.path.partition("/tasks/")[0],
        "Spark application": f"https://spark.example/history/{ended.spark_application}/jobs/",
        "Lake table": f"https://lake.example/shop/events?at={snapshot.snapshot_id}",
    }
    log = place.airflow.log.read_text()
    log = log[log.rindex("Spark-Submit cmd:") :]
    for line in LOG.splitlines():
        assert re.search(as_pattern(line), log), f"the page shows {line}; the log is\n{log[-6000:]}"
    assert "SparkEnv" not in log, "Spark logs warnings only"


def as_pattern(line: str) -> str:
    """The line of the page with any numbers, of this test's table.

    A copy of less than 50 ms has no rate.
    """
    escaped = re.escape(line).replace("orders", "events").replace("splits", "splits?")
    numbers = re.sub(r"\d(?:(?:\\\.|,)?\d)*", lambda _: r"[\d.,]+", escaped)
    numbers = numbers.replace("files", "files?").replace("MB", "[kM]B")
    return re.sub(r",\\ \[\\d\.,\]\+\\ a\\ second", lambda rate: f"(?:{rate[0]})?", numbers)


@pytest.mark.slow
@pytest.mark.long
def test_a_table_reaches_iceberg_by_workers_of_a_cluster(
    place: Place, tmp_path: Path, lake_sql: Callable[[Path, str], list[Any]]
) -> None:
    path = place.table("events", rows=1000)
    place.wait(path)
    lake = tmp_path / "lake"
    conf = {
        **CONF,
        "spark.executor.memory": EXECUTOR_MEMORY,
        "spark.executorEnv.PYTHONPATH": f"{ROOT}:{ROOT}/spark_jobs",
        "spark.sluice.tiering.driver_copy_rows": "0",
    }
    with SparkCluster(tmp_path / "cluster") as cluster:
        spark = json.dumps({"conn_type": "spark", "host": cluster.address})
        run = place.run(
            {"tables": ["shop.events"], "spark_conf": conf},
            **{**place.connection(datalake=lake_at(lake)), **SPARK},
            AIRFLOW_CONN_SPARK_DEFAULT=spark,
        )
    assert run["state"] == "success", place.airflow.log.read_text()[-6000:]
    [result] = results_of(run).values()
    assert (result["outcome"], result["rows"]) == ("committed", 1000)
    [row] = lake_sql(lake, "SELECT count(*), sum(id), max(id) FROM lake.shop.events")
    assert tuple(row) == (1000, 499_500, 999)


@pytest.mark.slow
def test_a_lake_that_cannot_be_written(place: Place, tmp_path: Path) -> None:
    """The reason is the driver's own, not the command line of spark-submit."""
    path = place.table("events")
    place.wait(path)
    (tmp_path / "lake").mkdir()  # what is looked at before the run is well
    (tmp_path / "lake/shop").write_text("in the way")
    connection = place.connection(datalake=lake_at(tmp_path / "lake"))
    run = place.run({"spark_conf": CONF}, **{**connection, **SPARK})
    assert run["state"] == "failed"
    assert only(failures_of(run))["kind"] == "LakeNotWritable"
    error = place.status(path).last_error
    assert error is not None
    assert error.startswith("LakeNotWritable: ")
    assert "spark-submit" not in error
