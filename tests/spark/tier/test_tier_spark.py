"""A round on Spark: executors copy, the session's JVM commits, results travel as files."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluice.artifacts.spark_files import driver_script, make_zip
from sluice.driver.lakes.jvm import Jvm, iceberg_jar
from sluice.driver.spark.round import SparkRunner, config_of, run
from sluice.errors import SparkJobFailed
from sluice.lake.iceberg.catalog.java import JavaThrew
from sluice.lake.iceberg.lake import IcebergLake
from sluice.model import Claim, Reason, TableBucket, TableInfo, TablePath
from sluice.model import types as t
from sluice.rounds.records.json_files import read_json, write_json
from sluice.rounds.records.plan_file import PlanFile, plan_uri
from sluice.rounds.records.result import RoundFailure, RoundResult, failure_uri, result_uri
from sluice.rounds.round.round import run_round
from sluice.rounds.values.attempt import RoundPorts
from sluice.rounds.values.ports import SplitRunner, SplitWriterFactory
from sluice.rounds.values.types import LogRecords, Split
from tests.spark.conftest import Site
from tests.support.models.memory_cluster import MemoryCluster
from tests.support.models.tables import table_info

pytestmark = pytest.mark.spark
PATH = TablePath("shop", "orders")
ROOT = Path(__file__).resolve().parents[3]


def write_plan(site: Site, claim: Claim) -> str:
    uri = plan_uri(site.work_uri, "sluice-lease", claim)
    write_json(uri, PlanFile(claim, "sluice-lease", site.config.client.bootstrap).to_json())
    return uri


def filled(site: Site, rows: int = 1000) -> None:
    site.create(PATH, {"id": t.BIGINT}, bucket_count=3, bucket_keys=("id",))
    site.append(PATH, pa.table({"id": pa.array(range(rows), pa.int64())}))


def result_of(uri: str, attempt: str) -> RoundResult:
    content = read_json(result_uri(uri, attempt))
    assert content is not None
    return RoundResult.from_json(content)


def reason_at(uri: str, attempt: str) -> Reason:
    content = read_json(failure_uri(uri, attempt))
    assert content is not None
    return RoundFailure.from_json(content).reason


def test_a_round_on_the_sessions_executors(site: Site, spark: Any) -> None:
    from pyspark import TaskContext

    filled(site)
    claim = site.claim(PATH)
    uri = write_plan(site, claim)
    task_id = lambda: TaskContext.get().taskAttemptId()  # noqa: E731  (pickled by value)
    assert run(spark.sparkContext, uri, "a1", site.config, task_id) == 0
    result = result_of(uri, "a1")
    assert (result.outcome, result.rows, result.files) == ("committed", 1000, 3)
    # A second try of the same round finds it landed, whatever the first one reported.
    assert run(spark.sparkContext, uri, "a2", site.config, task_id) == 0
    again = result_of(uri, "a2")
    assert (again.outcome, again.lake_snapshot_id, again.offsets) == (
        "already_landed",
        result.lake_snapshot_id,
        result.offsets,
    )
    seen = site.rows("SELECT count(*), count(DISTINCT id), sum(id) FROM lake.shop.orders")
    assert tuple(seen[0]) == (1000, 1000, sum(range(1000)))
    names = site.rows("SELECT file_path FROM lake.shop.orders.files")
    tasks = {Path(row[0]).name.split("-")[1] for row in names}
    assert len(tasks) == 3  # every task execution has names of its own


def test_executors_share_the_window_of_one_bucket(site: Site, spark: Any) -> None:
    site.create(PATH, {"id": t.BIGINT}, bucket_count=1)
    with site.client.log_writer(PATH) as writer:
        for first in range(0, 1000, 70):  # batches across the ends of parts
            writer.write(
                pa.table({"id": pa.array(range(first, min(first + 70, 1000)), pa.int64())})
            )
            writer.flush()
    config = replace(site.config, tiering=replace(site.config.tiering, part_offsets=100))
    uri = write_plan(site, site.claim(PATH))
    assert run(spark.sparkContext, uri, "a1", config) == 0
    result = result_of(uri, "a1")
    assert (result.outcome, result.rows, result.files) == ("committed", 1000, 4)
    assert result.offsets == {"0": 1000}
    seen = site.rows("SELECT count(*), count(DISTINCT id), sum(id) FROM lake.shop.orders")
    assert tuple(seen[0]) == (1000, 1000, sum(range(1000)))


def test_executors_heed_the_limits_of_a_round(site: Site, spark: Any) -> None:
    filled(site)
    site.append(PATH, pa.table({"id": pa.array(range(1000, 2000), pa.int64())}))
    rows = []
    for attempt, setting in (("a1", "max_round_ms"), ("a2", "")):
        config = site.config
        if setting:  # every bucket still gives one batch
            config = replace(config, tiering=replace(config.tiering, **{setting: 1}))
        claim = site.claim(PATH)
        uri = write_plan(site, claim)
        assert run(spark.sparkContext, uri, attempt, config) == 0
        result = result_of(uri, attempt)
        assert bool(result.forced) == bool(setting)
        assert not setting or f"(tiering.{setting}): " in result.forced
        rows.append(result.rows)
        site.client.tiering.finished(claim, forced=bool(result.forced))
    assert rows == [1000, 1000]
    seen = site.rows("SELECT count(*), count(DISTINCT id), sum(id) FROM lake.shop.orders")
    assert tuple(seen[0]) == (2000, 2000, sum(range(2000)))


def test_a_lost_claim_is_a_result_and_no_failure(site: Site, spark: Any) -> None:
    filled(site)
    claim = site.claim(PATH)
    uri = write_plan(site, claim)
    site.client.tiering.failed(claim, Reason.from_text("given up"))
    assert run(spark.sparkContext, uri, "a1", site.config) == 0
    assert result_of(uri, "a1").outcome == "claim_lost"
    assert site.rows("SELECT count(*) FROM lake.shop.orders")[0][0] == 0


def test_a_failure_is_written_beside_the_plan(site: Site, spark: Any, tmp_path: Path) -> None:
    filled(site)
    uri = write_plan(site, site.claim(PATH))
    (tmp_path / "file").write_text("in the way")
    lake = replace(
        site.config.datalake,
        iceberg={"type": "hadoop", "warehouse": str(tmp_path / "file"), "s3.secret": "x"},
    )
    assert run(spark.sparkContext, uri, "a1", replace(site.config, datalake=lake)) == 1
    reason = reason_at(uri, "a1")
    assert reason.kind == "LakeNotWritable"
    assert "lake table shop.orders" in reason.text
    assert "\tat " not in reason.text
    assert read_json(result_uri(uri, "a1")) is None


def test_a_missing_plan_is_named(site: Site, spark: Any) -> None:
    uri = f"{site.work_uri}/nowhere/plan.json"
    assert run(spark.sparkContext, uri, "a1", site.config) == 1
    assert uri in reason_at(uri, "a1").text


def test_executors_that_cannot_reach_the_cluster_fail_the_round(site: Site, spark: Any) -> None:
    """The driver reaches it; executors are given another address by a wrong plan."""
    filled(site)
    claim = site.claim(PATH)
    uri = plan_uri(site.work_uri, "sluice-lease", claim)
    write_json(uri, PlanFile(claim, "sluice-lease", "grpc://127.0.0.1:1").to_json())
    client = replace(site.config.client, request_timeout_ms=10_000, retry_timeout_ms=500)
    assert run(spark.sparkContext, uri, "a1", replace(site.config, client=client)) == 1
    reason = reason_at(uri, "a1")
    assert reason.kind in ("NetworkError", "RequestTimeOut")
    assert "127.0.0.1:1" in reason.text


def test_a_job_that_fails_leaves_no_file_of_its_finished_tasks(
    spark: Any, jvm: Jvm, tmp_path: Path
) -> None:
    class Deadly:
        """Bucket 1's worker dies, once the driver has heard of bucket 0."""

        def __init__(self, logs: dict[TableBucket, list[LogRecords]], marker: Path) -> None:
            self._logs, self._marker = logs, marker

        def read(self, split: Split) -> Iterator[LogRecords]:
            if split.bucket.bucket == 1:
                deadline = time.monotonic() + 120
                while not self._marker.exists() and time.monotonic() < deadline:
                    time.sleep(0.01)
                os._exit(1)
            yield from self._logs[split.bucket]

    info = table_info({"a": t.BIGINT}, buckets=2)
    cluster = MemoryCluster(info)
    batch = pa.RecordBatch.from_pydict({"a": pa.array(range(5), pa.int64())})
    for bucket in (0, 1):
        cluster.append(TableBucket(info.table_id, None, bucket), batch)
    warehouse, marker = tmp_path / "lake", tmp_path / "heard"
    files: list[Path] = []

    def make_runner(_: TableInfo, writers: SplitWriterFactory) -> SplitRunner:
        source = Deadly(cluster.logs, marker)
        runner = SparkRunner(spark.sparkContext, source, writers, lambda: 0)

        def listen() -> None:
            while not runner._finished.value:
                time.sleep(0.01)
            files.extend(warehouse.rglob("*.parquet"))
            marker.touch()

        threading.Thread(target=listen, daemon=True).start()
        return runner

    lake = IcebergLake(jvm.gateway, {"type": "hadoop", "warehouse": str(warehouse)})
    with pytest.raises(SparkJobFailed) as given_up:
        run_round(cluster.begin_round(), RoundPorts(cluster, lake, make_runner), "1")
    assert given_up.value.retryable
    assert isinstance(given_up.value.__cause__, JavaThrew)
    assert len(files) == 1
    assert list(warehouse.rglob("*.parquet")) == []


def test_a_job_that_spark_refuses_fails_the_round(
    site: Site, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java throws an IllegalArgumentException, of which the session makes its own exception."""
    filled(site)
    uri = write_plan(site, site.claim(PATH))
    monkeypatch.setattr("sluice.driver.spark.round._TASKS_MAX", -1)
    assert run(spark.sparkContext, uri, "a1", site.config) == 1
    reason = reason_at(uri, "a1")
    assert (reason.kind, reason.retryable) == ("SparkJobFailed", True)
    assert reason.deepest_cause == (
        "IllegalArgumentException: Positive number of partitions required"
    )


def test_spark_conf_overrides_the_configuration(spark: Any, tmp_path: Path) -> None:
    file = tmp_path / "sluice.toml"
    file.write_text('[tiering]\nparallelism = 7\n[datalake]\niceberg = { type = "hadoop" }\n')
    conf = spark.sparkContext._conf
    conf.set("spark.sluice.datalake.iceberg.warehouse", "/lake")
    try:
        config = config_of(spark.sparkContext, str(file), {"SLUICE_TIERING_PARALLELISM": "9"})
    finally:
        conf._jconf.remove("spark.sluice.datalake.iceberg.warehouse")
    assert config.datalake.iceberg == {"type": "hadoop", "warehouse": "/lake"}
    assert config.tiering.parallelism == 9


@pytest.mark.slow
def test_spark_submit_with_the_package_as_a_zip(site: Site, tmp_path: Path) -> None:
    package = tmp_path / "sluice.zip"
    make_zip(package)
    filled(site)
    uri = write_plan(site, site.claim(PATH))
    command = [
        str(Path(sys.executable).parent / "spark-submit"),
        "--master", "local[2]",
        "--jars", str(iceberg_jar(os.environ.get("SLUICE_TIERING_JARS", ""))),
        "--conf", "spark.ui.enabled=false",
        "--conf", f"spark.sluice.datalake.iceberg.warehouse={site.warehouse}",
        "--conf", "spark.sluice.datalake.iceberg.type=hadoop",
        "--py-files", str(package),
        str(driver_script()), "--plan", uri, "--attempt", "a1",
    ]  # fmt: skip
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    output = tmp_path / "spark-submit.log"
    with output.open("wb") as log:  # a file: a pipe would be held open by a child that hangs
        done = subprocess.run(
            command, stdout=log, stderr=log, env=environment, timeout=240, check=False
        )
    assert done.returncode == 0, output.read_text()[-3000:]
    assert result_of(uri, "a1").rows == 1000
    assert site.rows("SELECT count(DISTINCT id) FROM lake.shop.orders")[0][0] == 1000


def test_the_zip_is_whole_and_the_same_each_time(tmp_path: Path) -> None:
    paths = [tmp_path / "a.zip", tmp_path / "b.zip"]
    for path in paths:
        make_zip(path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    code = (
        f"import sys; sys.path.insert(0, {str(paths[0])!r})\n"
        "import sluice.driver.spark.round, sluice.lake.iceberg.write.split_writer\n"
        "import sluice.rounds.copy.split, sluice.client\n"
        f"assert sluice.__file__.startswith({str(paths[0])!r}), sluice.__file__\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
