"""What ``dag.test()`` cannot show: scheduler, API server and task processes that are killed.

A real Airflow, SQLite and LocalExecutor, as the demo starts it; driver.py stands for spark-submit.
"""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from demo.airflow import Airflow
from demo.processes import Processes
from sluice.client import Client, connect
from sluice.config import ServerConfig
from sluice.server.cluster import EmbeddedCluster
from tests.airflow.place import LONG_MS, AirflowProcess, Place, wait_until
from tests.docs.blocks import claimed_blocks
from tests.support.findings import finding
from tests.support.living import lives

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.timeout(1200)]
TIMEOUT_S = 400


class Live:
    """The running Airflow and the cluster that it tiers; one for the whole module."""

    def __init__(self, airflow: Airflow, place: Place, processes: Processes) -> None:
        self.airflow, self.place, self.processes = airflow, place, processes

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
        tiering_timeout_ms=LONG_MS,  # Airflow is to say what became of a task, not the server
    )
    with EmbeddedCluster(config) as cluster, connect(cluster.address) as client:
        place = _place(client, cluster.address, folder / "work")
        settings = {
            **place.connection(),
            **{k: v for k, v in airflow_environment.items() if k.startswith("AIRFLOW__SLUICE__")},
            "AIRFLOW__SLUICE__SCHEDULE": "none",
            "AIRFLOW__SLUICE__TIER_RETRIES": "0",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "60",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "2",
            "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "2",
            "AIRFLOW_CONN_SPARK_DEFAULT": airflow_environment["AIRFLOW_CONN_SPARK_DEFAULT"],
            "PYTHONPATH": airflow_environment["PYTHONPATH"],
        }
        airflow = Airflow(folder / "home", processes, settings)
        try:
            airflow.prepare()
            airflow.start()
            airflow.wait_until_ready(TIMEOUT_S, lambda _: None)
            yield Live(airflow, place, processes)
        finally:
            processes.stop_all()


def _place(client: Client, address: str, work: Path) -> Place:
    client.admin.create_database("shop")
    none: AirflowProcess = None  # type: ignore[assignment]
    return Place(none, client, address, work)


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
