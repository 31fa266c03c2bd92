"""Several tables in one Spark application: each has its own job, outcome and end."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from sluice.config import Config
from sluice.driver.spark import pack as pack_driver
from sluice.driver.spark.pack import fail_pack, run_pack, tables_at_once
from sluice.driver.spark.round import DRIVER_THREADS, EXECUTORS, driver_cores
from sluice.errors import ConfigurationError, UnknownFileVersion
from sluice.rounds.records.json_files import read_json, write_json
from sluice.rounds.records.packs import running_uri, write_stops
from sluice.rounds.records.plan_file import PlanFile
from sluice.rounds.records.result import RoundFailure, RoundResult, round_outcome
from tests.spark.applications.packs import pack, plan, table
from tests.spark.conftest import Site

pytestmark = pytest.mark.spark


def with_driver_copy_rows(config: Config, rows: int) -> Config:
    return replace(config, tiering=replace(config.tiering, driver_copy_rows=rows))


def result(uri: str) -> RoundResult:
    found = round_outcome(uri)
    assert isinstance(found, RoundResult), found
    return found


def test_every_table_has_its_own_job_and_outcome(site: Site, spark: Any) -> None:
    small = [table(site, f"small_{n}", 100) for n in range(3)]
    large, broken = table(site, "large", 2000), table(site, "broken", 100)
    # A file where the lake's folder of the table should be.
    (site.warehouse / "shop").mkdir(parents=True)
    (site.warehouse / "shop/broken").write_text("in the way")
    plans = {path: plan(site, path) for path in (large, *small, broken)}
    config = with_driver_copy_rows(site.config, 100)  # 1,000, because the master is local
    assert run_pack(spark.sparkContext, pack(site, *plans.values()), "a1", config) == 1
    for path in small:
        found = result(plans[path])
        assert (found.outcome, found.rows, found.copied_by) == ("committed", 100, DRIVER_THREADS)
        assert site.rows(f"SELECT count(*), sum(id) FROM lake.{path}")[0] == (100, 4950)
    found = result(plans[large])
    assert (found.outcome, found.rows, found.copied_by) == ("committed", 2000, EXECUTORS)
    failed = round_outcome(plans[broken])
    assert isinstance(failed, RoundFailure)
    assert failed.reason.kind == "LakeNotWritable"
    jobs = spark.sparkContext.statusTracker()
    assert len(jobs.getJobIdsForGroup("shop.large")) == 1
    assert list(jobs.getJobIdsForGroup("shop.small_0")) == [], "the driver copied it"
    for uri in plans.values():
        assert read_json(running_uri(uri, "a1")) is not None


def test_jobs_of_one_thread_have_the_labels_of_their_tables(site: Site, spark: Any) -> None:
    """One thread tiers all tables, one after the other."""
    names = ("a", "b", "c")
    plans = [plan(site, table(site, f"labelled_{name}", 50)) for name in names]
    one_thread = replace(site.config, tiering=replace(site.config.tiering, tables_at_once=1))
    assert run_pack(spark.sparkContext, pack(site, *plans), "a1", one_thread) == 0
    store = spark.sparkContext._jsc.sc().statusStore()
    jobs = store.jobsList(None)
    for name in names:
        group = f"shop.labelled_{name}"
        [number] = spark.sparkContext.statusTracker().getJobIdsForGroup(group)
        job = next(job for at in range(jobs.size()) if (job := jobs.apply(at)).jobId() == number)
        assert job.description().get() == f"tier {group}, tiering epoch 1: 2 splits"
        stage = store.lastStageAttempt(job.stageIds().apply(0))
        assert stage.schedulingPool() == group


@pytest.mark.parametrize("copied_by", [EXECUTORS, DRIVER_THREADS])
def test_a_stopped_table_ends_its_copy_and_no_other(
    site: Site, spark: Any, monkeypatch: pytest.MonkeyPatch, copied_by: str
) -> None:
    """Both are copied at that time."""
    monkeypatch.setattr(pack_driver, "STOPS_POLL_S", 0.05)
    paths = [table(site, f"{name}_{copied_by[0]}", 1_500_000) for name in ("stopped", "other")]
    plans = [plan(site, path) for path in paths]
    uri = pack(site, *plans)
    jobs = spark.sparkContext.statusTracker()

    def are_copied() -> bool:
        if copied_by == EXECUTORS:
            return all(jobs.getJobIdsForGroup(str(path)) for path in paths)
        return all(read_json(running_uri(one, "a1")) is not None for one in plans)

    def stop() -> None:
        while not are_copied():
            time.sleep(0.01)
        write_stops(uri, [plans[0]])

    stopping = threading.Thread(target=stop)
    stopping.start()
    rows = 10_000 if copied_by == EXECUTORS else 10_000_000
    run_pack(spark.sparkContext, uri, "a1", with_driver_copy_rows(site.config, rows))
    stopping.join()
    assert getattr(round_outcome(plans[0]), "outcome", "failed") in ("failed", "claim_lost")
    assert site.client.admin.lake_snapshot(paths[0]) is None
    found = result(plans[1])
    assert (found.outcome, found.rows, found.copied_by) == ("committed", 1_500_000, copied_by)


def test_a_pack_that_is_not_here(site: Site, spark: Any) -> None:
    with pytest.raises(UnknownFileVersion, match="must share work_uri"):
        run_pack(spark.sparkContext, f"{site.work_uri}/nowhere.json", "a1", site.config)


def test_an_error_of_the_application_is_the_failure_of_each_table(site: Site) -> None:
    done, left = (plan(site, table(site, name, 10)) for name in ("done", "left"))
    claim = PlanFile.from_json(read_json(done) or {}).claim
    write_json(
        done.replace("plan.json", "result-a1.json"), RoundResult.of(claim, "committed").to_json()
    )
    error = ConfigurationError("no lake is configured; password=planted")
    fail_pack(pack(site, done, left), "a1", error)
    assert result(done).outcome == "committed"
    failed = round_outcome(left)
    assert isinstance(failed, RoundFailure)
    assert failed.reason.kind == "ConfigurationError"
    assert "planted" not in str(failed.reason)
    assert not failed.reason.retryable
    fail_pack(f"{site.work_uri}/nowhere.json", "a1", error)  # nobody to tell
    passing = plan(site, table(site, "passing", 10))
    fail_pack(pack(site, passing), "a1", OSError("S3: 503 Slow Down"))
    failed = round_outcome(passing)
    assert isinstance(failed, RoundFailure)
    assert failed.reason.retryable, "of the work folder, not of the table"


def test_how_many_tables_are_tiered_at_once(site: Site, spark: Any) -> None:
    context = spark.sparkContext
    assert tables_at_once(site.config, context) == 2, "local[2]"
    config = replace(site.config, tiering=replace(site.config.tiering, tables_at_once=7))
    assert tables_at_once(config, context) == 7


@pytest.mark.parametrize(
    ("master", "cores"),
    [
        ("local", 1),
        ("local[3]", 3),
        ("local[3, 2]", 3),
        ("local[64]", 8),
        ("local[*]", 8),
        ("spark://spark.example:7077", 8),
    ],
)
def test_a_local_master_may_name_fewer_cores_than_its_machine_has(
    spark: Any, master: str, cores: int
) -> None:
    runtime = SimpleNamespace(availableProcessors=lambda: 8)
    machine = SimpleNamespace(getRuntime=lambda: runtime)
    context = SimpleNamespace(
        master=master,
        getConf=spark.sparkContext.getConf,
        _jvm=SimpleNamespace(Runtime=machine),
    )
    assert driver_cores(context) == cores


@pytest.mark.parametrize(
    "in_container",
    [("spark.submit.deployMode", "cluster"), ("spark.kubernetes.submitInDriver", "true")],
)
def test_a_driver_on_the_cluster_uses_the_cores_that_it_asked_for(
    site: Site, spark: Any, in_container: tuple[str, str]
) -> None:
    """Its machine may have many more."""
    conf = spark.sparkContext._conf
    before = conf.get(in_container[0])
    conf.set(*in_container)
    try:
        assert driver_cores(spark.sparkContext) == 1, "Spark's default"
        conf.set("spark.driver.cores", "3")
        assert driver_cores(spark.sparkContext) == 3
        assert tables_at_once(site.config, spark.sparkContext) == 3
    finally:
        conf._jconf.remove("spark.driver.cores")
        conf._jconf.remove(in_container[0])
        if before is not None:
            conf.set(in_container[0], before)
