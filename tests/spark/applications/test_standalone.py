"""Packs on a standalone Spark cluster: executors in other processes than the driver's."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sluice.artifacts.spark_files import driver_script, make_zip
from sluice.artifacts.spark_start import Application, start_here
from sluice.driver.lakes.jvm import iceberg_jar
from sluice.driver.spark.round import DRIVER_THREADS, EXECUTORS
from sluice.rounds.records.result import RoundResult, round_outcome
from tests.spark.applications.packs import pack, plan, table
from tests.spark.conftest import JARS, Site
from tests.support.clusters.spark_cluster import (
    EXECUTOR_MEMORY,
    QUICK,
    SparkCluster,
    executors_of,
    lost_tasks,
    tasks_by_executor,
)
from tests.support.programs.processes import ROOT, environment, wait_for

pytestmark = [pytest.mark.spark, pytest.mark.slow]
FOLDERS = os.pathsep.join(str(ROOT / name) for name in ("", "spark_jobs"))
SUBMIT = Path(sys.executable).with_name("spark-submit")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture
def cluster(running: SparkCluster) -> SparkCluster:
    running.complete()
    return running


class Submitted:
    """spark-submit of a pack in client mode, as Airflow starts it."""

    def __init__(self, site: Site, master: str, plans: list[str], home: Path, **more: Any) -> None:
        """:param more: ``conf``: Spark properties. ``py_files``: a zip for the executors."""
        uri = pack(site, *plans)
        self.events, self._log = home / "events", home / "spark-submit.log"
        self.events.mkdir()
        jar = str(iceberg_jar(JARS))
        env = environment({"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": FOLDERS})
        own = {
            "spark.scheduler.mode": "FAIR",
            "spark.executor.memory": EXECUTOR_MEMORY,
            "spark.executor.extraJavaOptions": QUICK,
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # no job before both are there
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": self.events.as_uri(),
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.compress": "false",
            "spark.sluice.datalake.iceberg.type": "hadoop",
            "spark.sluice.datalake.iceberg.warehouse": str(site.warehouse),
            "spark.sluice.tiering.driver_copy_rows": "1000",
            "spark.executorEnv.PYTHONPATH": FOLDERS,
            **more.get("conf", {}),
        }
        conf = {**own, **start_here(Application(own, "client", True), jar, SUBMIT, env)}
        files = ["--py-files", str(more["py_files"])] if "py_files" in more else []
        command = [str(SUBMIT), "--master", master, "--deploy-mode", "client", "--jars", jar]
        command += [word for k, v in conf.items() for word in ("--conf", f"{k}={v}")]
        command += [*files, str(driver_script()), "--pack", uri, "--attempt", "a1"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env
            )

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def said(self) -> str:
        return self.log[-4000:]

    def end(self, timeout_s: float = 240) -> int:
        try:
            return self._process.wait(timeout_s)
        finally:
            self._process.kill()

    @property
    def runs(self) -> bool:
        return self._process.poll() is None


def result(uri: str) -> RoundResult:
    found = round_outcome(uri)
    assert isinstance(found, RoundResult), found
    return found


def check_whole(site: Site, rows: int) -> None:
    """Each row is in the lake exactly once."""
    seen = site.rows("SELECT count(*), count(DISTINCT id), sum(id) FROM lake.shop.many")
    assert tuple(seen[0]) == (rows, rows, sum(range(rows)))


def test_a_pack_on_two_workers(site: Site, cluster: SparkCluster, tmp_path: Path) -> None:
    small, large = table(site, "small", 100), table(site, "large", 40_000, buckets=8)
    plans = {path: plan(site, path) for path in (small, large)}
    submitted = Submitted(site, cluster.address, list(plans.values()), tmp_path)
    assert submitted.end() == 0, submitted.said
    for path, rows, by in ((small, 100, DRIVER_THREADS), (large, 40_000, EXECUTORS)):
        found = result(plans[path])
        assert (found.outcome, found.rows, found.copied_by) == ("committed", rows, by)
        seen = site.rows(f"SELECT count(*), count(DISTINCT id), sum(id) FROM lake.{path}")
        assert tuple(seen[0]) == (rows, rows, sum(range(rows)))
    tasks = tasks_by_executor(submitted.events)
    assert tasks.total() == 8
    assert set(tasks) == {"0", "1"}


@pytest.mark.long
def test_two_hundred_splits_on_two_workers(
    site: Site, cluster: SparkCluster, tmp_path: Path
) -> None:
    rows = 400_000
    uri = plan(site, table(site, "many", rows, buckets=200))
    submitted = Submitted(site, cluster.address, [uri], tmp_path)
    assert submitted.end() == 0, submitted.said
    found = result(uri)
    assert (found.outcome, found.rows, found.files) == ("committed", rows, 200)
    check_whole(site, rows)
    tasks = tasks_by_executor(submitted.events)
    assert tasks.total() == 200
    assert min(tasks["0"], tasks["1"]) >= 50, tasks


@pytest.mark.long
@pytest.mark.parametrize("lost", [1, 2])
def test_workers_are_lost_in_the_middle(
    site: Site, cluster: SparkCluster, tmp_path: Path, lost: int
) -> None:
    """Tasks run again on the other worker, or on new ones. No snapshot has files of lost tasks."""
    rows = 1_000_000
    uri = plan(site, table(site, "many", rows, buckets=200))
    submitted = Submitted(site, cluster.address, [uri], tmp_path)

    def files() -> int:
        assert submitted.runs, submitted.said
        return len(list(site.warehouse.rglob("*.parquet")))

    wait_for("files of splits", lambda: files() >= 20, 240)
    for _ in range(lost):
        cluster.lose_a_worker()
    assert files() < 200, "they were lost after the copying"
    if lost == 2:
        wait_for("Spark to notice", lambda: submitted.log.count("Lost executor") == 2, 120)
        cluster.complete()
    assert submitted.end() == 0, submitted.said
    found = result(uri)
    assert (found.outcome, found.rows, found.files) == ("committed", rows, 200)
    check_whole(site, rows)
    assert lost_tasks(submitted.events) > 0, "they ran again"
    assert "Lost executor" in submitted.log


@pytest.mark.long
def test_small_tables_ask_for_no_executor(
    site: Site, cluster: SparkCluster, tmp_path: Path
) -> None:
    """With dynamic allocation, executors are for large tables alone."""
    conf = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.minExecutors": "0",
    }
    for name, rows, executors in (("small", 100, 0), ("many", 40_000, 2)):
        uri = plan(site, table(site, name, rows, buckets=8))
        home = tmp_path / name
        home.mkdir()
        submitted = Submitted(site, cluster.address, [uri], home, conf=conf)
        assert submitted.end() == 0, submitted.said
        assert result(uri).rows == rows
        assert executors_of(submitted.events) == executors
    check_whole(site, 40_000)


@pytest.mark.long
def test_executors_without_sluice_get_the_zip(
    site: Site, cluster: SparkCluster, tmp_path: Path
) -> None:
    """Executors have the packages that Sluice depends on, and no Sluice."""
    without = tmp_path / "python"
    without.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # no editable install
    without.chmod(0o755)
    packages = sysconfig.get_path("purelib")
    asked = [str(without), "-c", "import pyarrow, sluice"]
    bare = subprocess.run(
        asked, cwd=tmp_path, env={"PYTHONPATH": packages}, capture_output=True, check=False
    )
    assert b"No module named 'sluice'" in bare.stderr
    make_zip(tmp_path / "sluice.zip")
    conf = {
        "spark.pyspark.python": str(without),
        "spark.pyspark.driver.python": sys.executable,
        "spark.executorEnv.PYTHONPATH": packages,
    }
    rows = 40_000
    uri = plan(site, table(site, "many", rows, buckets=8))
    submitted = Submitted(
        site, cluster.address, [uri], tmp_path, conf=conf, py_files=tmp_path / "sluice.zip"
    )
    assert submitted.end() == 0, submitted.said
    assert (result(uri).rows, result(uri).copied_by) == (rows, EXECUTORS)
    check_whole(site, rows)
    assert tasks_by_executor(submitted.events).total() == 8
