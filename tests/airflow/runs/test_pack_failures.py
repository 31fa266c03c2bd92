"""What may go wrong while one Spark application tiers several tables. One test for each case."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from sluice.model import TablePath
from tests.airflow.place import HERE, Place, settled_of, wait_until
from tests.airflow.runs.test_spark_run import CONF, SPARK, lake_at

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow]
ROWS = 1000
LakeSql = Callable[[Path, str], list[Any]]


def drivers(place: Place) -> list[psutil.Process]:
    """The processes of the drivers of this place."""
    found = psutil.process_iter(["cmdline"])
    return [one for one in found if str(place.work) in " ".join(one.info["cmdline"] or ())]


def all_tiered_once(place: Place, paths: list[TablePath], lake: Path, lake_sql: LakeSql) -> None:
    """Every row is in the lake once, nothing counts as a failure, and nothing is held."""
    for path in paths:
        [row] = lake_sql(lake, f"SELECT count(*), count(DISTINCT id) FROM lake.{path}")
        assert tuple(row) == (ROWS, ROWS), path
        snapshot = place.client.admin.lake_snapshot(path)
        assert snapshot is not None
        assert sum(snapshot.offsets.values()) == ROWS
        status = place.status(path)
        assert (status.status, status.failures) == ("Scheduled", 0), status
    place.nothing_is_held()


@pytest.mark.long
def test_a_memory_that_spark_refuses(place: Place, tmp_path: Path) -> None:
    """With the real spark-submit: nothing is tried again, and no table has failed."""
    paths = [place.table(f"table_{n}", rows=1) for n in range(2)]
    place.wait(*paths)
    run = place.run(
        {"spark_conf": {**CONF, "spark.driver.memory": "100m"}},
        **{
            **place.connection(datalake=lake_at(tmp_path / "lake")),
            **SPARK,
            "AIRFLOW__SLUICE__TIER_RETRIES": "2",
        },
    )
    assert run["state"] == "failed"
    assert run["tries"]["per_application.tier"] == 1
    for path in paths:
        status = place.status(path)
        assert (status.status, status.failures) == ("Pending", 0), status
        assert "SparkSettingsWrong: Spark cannot start" in (status.stopped or "")
        assert "[INVALID_DRIVER_MEMORY] System memory" in (status.stopped or "")
    place.nothing_is_held()


@pytest.mark.long
@pytest.mark.parametrize("how", ["heap", "killed"])
def test_a_driver_whose_jvm_is_out_of_memory(
    place: Place, tmp_path: Path, lake_sql: LakeSql, how: str
) -> None:
    """In the middle of two tables, before a third one: a retry tiers all of them."""
    paths = [place.table(f"table_{n}", rows=ROWS) for n in range(3)]
    place.wait(*paths)
    lake = tmp_path / "lake"
    run = place.run(
        {"spark_conf": {**CONF, "spark.test.memory": how, "spark.driver.memory": "512m"}},
        **{
            **place.connection(datalake=lake_at(lake)),
            **SPARK,
            "AIRFLOW__SLUICE__TIER_RETRIES": "1",
            "AIRFLOW__SLUICE__APPLICATION": str(HERE / "oom_driver.py"),
            "AIRFLOW__SLUICE__TIER_TIMEOUT_SECONDS": "120",
        },
    )
    assert run["state"] == "success", place.airflow.log.read_text()[-6000:]
    assert run["tries"]["per_application.tier"] == 2
    assert {one["reported"] for one in settled_of(run).values()} == {"finished"}
    wait_until(lambda: not drivers(place), 60, "the Python processes of the drivers to end")
    all_tiered_once(place, paths, lake, lake_sql)


def test_an_executor_killed_in_the_split_of_one_table(
    place: Place, tmp_path: Path, lake_sql: LakeSql
) -> None:
    """A worker is killed at the second file that it has written, which is another table's."""
    paths = [place.table(f"table_{n}", rows=ROWS) for n in range(3)]
    place.wait(*paths)
    lake = tmp_path / "lake"
    conf = {
        **CONF,
        "spark.sluice.tiering.driver_copy_rows": "0",
        "spark.executorEnv.SLUICE_FAILPOINTS": "round.copy.file.after=kill@2",
    }
    environment = {**place.connection(datalake=lake_at(lake)), **SPARK}
    run = place.run({"spark_conf": conf}, **{**environment, "AIRFLOW__SLUICE__TIER_RETRIES": "1"})
    log = place.airflow.log.read_text()
    assert run["state"] == "success", log[-6000:]
    assert "1 of 3 tables was not tiered" in log, "the first try"
    assert "SparkJobFailed: Spark gave up the job of this round; caused by SparkException" in log
    assert "Python worker exited unexpectedly" in log
    assert [place.status(path).failures for path in paths] == [0, 0, 0], "the retry tiered it"
    all_tiered_once(place, paths, lake, lake_sql)
