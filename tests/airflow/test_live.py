"""What ``dag.test()`` cannot show: scheduler, API server, triggerer, tasks that are killed.

A real Airflow, SQLite and LocalExecutor, as the demo starts it; driver.py stands for spark-submit.
Its triggerer starts for the last tests: without one, runs end some seconds earlier.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from demo.airflow import Airflow
from demo.processes import Processes
from sluice.client import connect
from sluice.clock import SystemClock
from sluice.config import ServerConfig
from sluice.model import TablePath
from sluice.server.cluster import EmbeddedCluster
from tests.airflow.place import LONG_MS, AirflowProcess, Place, new_database, wait_until
from tests.docs.blocks import claimed_blocks
from tests.support.findings import finding
from tests.support.living import lives

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.timeout(1200)]
TIMEOUT_S = 400
POOL = "lake"
KEEPING = "keeping the claims of the run"
NO_TRIGGERER = "no triggerer runs; the claims of this run are kept only while"
SLOTS = 4


class HurriedClock(SystemClock):
    """The time of day, of which a test lets some pass at once."""

    passed_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.passed_ms


class Live:
    """The running Airflow and the cluster that it tiers; one for the whole module."""

    def __init__(
        self, airflow: Airflow, place: Place, processes: Processes, clock: HurriedClock
    ) -> None:
        self.airflow, self.place, self.processes = airflow, place, processes
        self.clock = clock

    def trigger(self, *tables: str) -> str:
        return self.airflow.trigger({"tables": list(tables)})

    def state(self, run_id: str) -> str:
        return self.airflow.run_state(run_id)[0]

    def tasks(self, run_id: str) -> dict[str, str]:
        instances = self.airflow.run_state(run_id)[1]
        return {f"{t['task_id']}[{t['map_index']}]": str(t["state"]) for t in instances}

    def tiers(self, run_id: str) -> list[str]:
        """The states of the tier tasks."""
        tasks = self.tasks(run_id).items()
        return [state for name, state in tasks if name.startswith("per_table.tier")]

    def wait(self, done: Callable[[], bool], what: str) -> None:
        wait_until(done, TIMEOUT_S, what)

    def ended(self, run_id: str) -> str:
        """Waits until the run and all of its tasks have ended."""
        ends = {"success", "failed", "skipped", "upstream_failed", "removed"}
        self.wait(lambda: self.state(run_id) in ("success", "failed"), f"{run_id} to end")
        self.wait(lambda: set(self.tasks(run_id).values()) <= ends, "its tasks to end")
        return self.state(run_id)

    def task(self, run_id: str, name: str, state: str) -> None:
        """Waits until that task of the run has the state."""
        self.wait(lambda: self.tasks(run_id).get(f"{name}[-1]") == state, f"{name} to be {state}")

    def pool(self, slots: int) -> None:
        """Sets the slots of the pool in which the tier tasks run."""
        pool = {"pool": POOL, "slots": slots, "include_deferred": False}
        self.airflow._send("PATCH", f"/api/v2/pools/{POOL}", pool)

    def stays_claimed(self, path: TablePath) -> None:
        """For longer than the time after which a worker is taken for lost.

        That time passes in steps, in each of which the heartbeats of three seconds come.
        """
        for _ in range(5):
            self.clock.passed_ms += LONG_MS * 3 // 10
            time.sleep(3)
            status = self.place.status(path)
            assert (status.status, status.failures) == ("Tiering", 0), status.last_error

    def logs(self, task: str) -> str:
        root = Path(self.airflow.environment["AIRFLOW__LOGGING__BASE_LOG_FOLDER"])
        files = root.rglob(f"*task_id={task}/**/*")
        return "\n".join(path.read_text() for path in files if path.is_file())

    def triggerer_is_alive(self) -> bool:
        return self.airflow._get("/api/v2/monitor/health")["triggerer"]["status"] == "healthy"

    def driver(self, marker: str) -> psutil.Process:
        """The driver that has written its process id into that file."""
        found: list[Path] = []

        def look() -> bool:
            found[:] = [p for p in self.place.work.rglob(marker) if p.read_text()]
            return bool(found)

        self.wait(look, f"a driver to write {marker}")
        return psutil.Process(int(found[0].read_text()))


@pytest.fixture(scope="module")
def live(
    airflow_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("live")
    (folder / "logs").mkdir()
    usual = {k: v for k, v in os.environ.items() if not k.startswith(("AIRFLOW", "SLUICE_"))}
    processes = Processes(folder / "logs", usual)
    config = ServerConfig(
        data_dir=str(folder / "data"),
        listen="grpc://127.0.0.1:0",
        tiering_backoff_ms=0,
        tiering_check_interval_ms=200,
        tiering_timeout_ms=LONG_MS,  # Airflow is to say what became of a task, not the server
    )
    clock = HurriedClock()
    with EmbeddedCluster(config, clock) as cluster, connect(cluster.address) as client:
        client.admin.create_database("shop")
        none: AirflowProcess = None  # type: ignore[assignment]
        place = Place(none, client, cluster.address, folder / "work")
        settings = {
            **place.connection(),
            **{k: v for k, v in airflow_environment.items() if k.startswith("AIRFLOW__SLUICE__")},
            "AIRFLOW__SLUICE__SCHEDULE": "none",
            "AIRFLOW__SLUICE__TIER_RETRIES": "0",
            "AIRFLOW__SLUICE__POOL": POOL,
            "AIRFLOW__SLUICE__POOL_SLOTS": str(SLOTS),
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "30",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "2",
            "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "2",
            "AIRFLOW_CONN_SPARK_DEFAULT": airflow_environment["AIRFLOW_CONN_SPARK_DEFAULT"],
            "PYTHONPATH": airflow_environment["PYTHONPATH"],
        }
        airflow = Airflow(folder / "home", processes, settings)
        try:
            (folder / "home").mkdir()
            shutil.copyfile(new_database(airflow_environment), folder / "home/airflow.db")
            airflow.prepare()
            airflow.start()
            airflow.wait_until_ready(TIMEOUT_S, lambda _: None)
            airflow._send("POST", "/api/v2/pools", {"name": POOL, "slots": SLOTS})
            yield Live(airflow, place, processes, clock)
        finally:
            processes.stop_all()


@pytest.fixture(scope="module")
def triggerer(live: Live) -> subprocess.Popen[bytes]:
    """The process of a triggerer that is alive, which a test may end."""
    command = [sys.executable, "-m", "airflow", "triggerer", "--skip-serve-logs"]
    process = live.processes.start("airflow-triggerer", command, live.airflow.environment)
    live.wait(live.triggerer_is_alive, "the triggerer")
    return process


def test_a_run_is_triggered_as_the_page_says(live: Live) -> None:
    [shown] = claimed_blocks("docs/airflow.md", __file__)
    table = live.place.table("by_curl")
    live.place.wait(table)
    command = (
        shown.content.replace("http://127.0.0.1:8080", live.airflow.url)
        .replace('"..."', f'"{live.airflow.password}"')
        .replace("sales.*", "shop.by_*")
    )
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert live.ended(json.loads(done.stdout)["dag_run_id"]) == "success"
    assert live.place.client.admin.lake_snapshot(table) is not None


def test_a_run_that_a_user_marks_failed(live: Live) -> None:
    """The driver is ended, the teardowns run, the other table is finished."""
    slow, ok = live.place.table("slow"), live.place.table("ok")
    live.place.wait(slow, ok)
    run_id = live.trigger("shop.slow", "shop.ok")
    driver = live.driver("started")
    live.wait(lambda: "success" in live.tiers(run_id), "the tier of shop.ok to end")
    assert live.place.client.admin.lake_snapshot(ok) is not None
    live.airflow.mark(run_id, "failed")
    with finding():
        live.wait(lambda: not lives(driver), "the driver to end")
    assert live.ended(run_id) == "failed"
    assert live.place.client.admin.lake_snapshot(ok) is not None
    tasks = live.tasks(run_id)
    settled = [state for name, state in tasks.items() if name.startswith("per_table.settle")]
    assert settled == ["success", "success"]
    assert tasks["drop_lease[-1]"] == "failed"
    stopped = live.place.status(slow)
    assert stopped.stopped == ("StoppedByUser: a user marked the task tier or its run as failed")
    assert (stopped.last_error, stopped.failures) == (None, 0)
    assert live.place.status(ok).last_error is None
    assert live.place.status(slow).status == "Pending"


def test_a_killed_task_and_its_supervisor(live: Live) -> None:
    """Nobody is left to say why: settle does, and the next run tiers the table."""
    once = live.place.table("once")
    live.place.wait(once)
    run_id = live.trigger("shop.once")
    driver = live.driver("shop.once-slept")
    task = driver.parents()[0]
    supervisor = task.parents()[0]
    for process in (supervisor, task):
        os.kill(process.pid, signal.SIGKILL)
    assert live.ended(run_id) == "failed"
    error = live.place.status(once).last_error
    assert error is not None
    assert error.startswith("the task that ran the Spark driver was lost")
    assert live.place.status(once).status == "Pending"
    driver.kill()  # it outlived its task; its epoch is over
    again = live.trigger("shop.once")
    assert live.ended(again) == "success"
    assert live.place.client.admin.lake_snapshot(once) is not None


def test_the_failure_callback_runs_where_the_dag_is_processed(live: Live) -> None:
    run_id = live.trigger("shop.nowhere")
    assert live.ended(run_id) == "failed"

    def said() -> str:
        logs = (live.airflow.home / "logs/dag_processor").rglob("*.log")
        texts = (log.read_text(errors="replace") for log in logs)
        return next((text for text in texts if f"run {run_id}" in text), "")

    live.wait(lambda: bool(said()), "the failure callback")
    assert "Callback failed" not in said()


@pytest.mark.usefixtures("triggerer")
def test_a_full_pool_and_a_paused_dag(live: Live) -> None:
    path = live.place.table("ok_1")
    live.place.wait(path)
    live.pool(0)
    run_id = live.trigger("shop.ok_1")
    live.task(run_id, "keep_claims", "deferred")
    live.task(run_id, "acquire_lease", "success")
    live.wait(lambda: KEEPING in live.logs("keep_claims"), "the keeper's first heartbeat")
    live.stays_claimed(path)
    live.airflow.pause(True)
    live.pool(SLOTS)
    live.stays_claimed(path)
    live.airflow.pause(False)
    assert live.ended(run_id) == "success"
    assert live.tasks(run_id)["keep_claims[-1]"] == "success"
    assert live.place.client.admin.lake_snapshot(path) is not None
    [round_] = live.place.client.statuses.history(path)
    assert (round_.outcome, live.place.status(path).failures) == ("committed", 0)
    # The triggerer may set the task to success before it writes the trigger's last line.
    kept = "1 claims kept, 0 lost before their tier task"
    live.wait(lambda: kept in live.logs("keep_claims"), "the keeper's summary")
    said = live.logs("keep_claims")
    assert (said.count(KEEPING), said.count(kept)) == (1, 1)


def test_a_triggerer_that_stops_holds_no_run_up(
    live: Live, triggerer: subprocess.Popen[bytes]
) -> None:
    """Neither the run that it kept, nor the next one."""
    paths = [live.place.table(name) for name in ("ok_2", "ok_3")]
    live.place.wait(*paths)
    live.pool(0)
    run_id = live.trigger("shop.ok_2")
    live.task(run_id, "acquire_lease", "success")
    live.task(run_id, "keep_claims", "deferred")
    triggerer.terminate()
    live.pool(SLOTS)
    assert live.ended(run_id) == "success"
    assert live.tasks(run_id)["keep_claims[-1]"] == "skipped"
    assert "the triggerer did not end keep_claims; it is skipped" in live.logs("drop_lease")

    live.wait(lambda: not live.triggerer_is_alive(), "the triggerer to end")
    seen = live.logs("keep_claims").count(NO_TRIGGERER)
    run_id = live.trigger("shop.ok_3")
    assert live.ended(run_id) == "success"
    assert live.tasks(run_id)["keep_claims[-1]"] == "success"
    assert live.logs("keep_claims").count(NO_TRIGGERER) == seen + 1
