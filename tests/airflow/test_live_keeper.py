"""A real triggerer keeps the claims of a run, on a server that soon takes a worker for lost."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.airflow import Airflow
from demo.processes import Processes
from sluice.client import connect
from sluice.config import ServerConfig
from sluice.model import TablePath
from sluice.server.cluster import EmbeddedCluster
from tests.airflow.place import AirflowProcess, Place
from tests.airflow.test_live import TIMEOUT_S, Live

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.timeout(1200)]
LOST_MS = 15_000


class LiveWithTriggerer(Live):
    """A running Airflow, and the process of its triggerer."""

    def __init__(
        self,
        airflow: Airflow,
        place: Place,
        processes: Processes,
        triggerer: subprocess.Popen[bytes],
    ) -> None:
        super().__init__(airflow, place, processes)
        self.triggerer = triggerer

    def triggerer_is_alive(self) -> bool:
        return self.airflow._get("/api/v2/monitor/health")["triggerer"]["status"] == "healthy"


@pytest.fixture(scope="module")
def live(
    airflow_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveWithTriggerer]:
    folder = tmp_path_factory.mktemp("keeper")
    (folder / "logs").mkdir()
    usual = {k: v for k, v in os.environ.items() if not k.startswith(("AIRFLOW", "SLUICE_"))}
    processes = Processes(folder / "logs", usual)
    config = ServerConfig(
        data_dir=str(folder / "data"),
        listen="grpc://127.0.0.1:0",
        tiering_timeout_ms=LOST_MS,
        tiering_check_interval_ms=200,
        tiering_backoff_ms=0,
    )
    with EmbeddedCluster(config) as cluster, connect(cluster.address) as client:
        client.admin.create_database("shop")
        none: AirflowProcess = None  # type: ignore[assignment]
        place = Place(none, client, cluster.address, folder / "work")
        settings = {
            **place.connection(),
            **{k: v for k, v in airflow_environment.items() if k.startswith("AIRFLOW__SLUICE__")},
            "AIRFLOW__SLUICE__SCHEDULE": "none",
            "AIRFLOW__SLUICE__POOL": "lake",
            "AIRFLOW__SLUICE__POOL_SLOTS": "4",
            "AIRFLOW_CONN_SPARK_DEFAULT": airflow_environment["AIRFLOW_CONN_SPARK_DEFAULT"],
            "PYTHONPATH": airflow_environment["PYTHONPATH"],
        }
        airflow = Airflow(folder / "home", processes, settings)
        try:
            airflow.prepare()
            airflow.start()
            command = [sys.executable, "-m", "airflow", "triggerer", "--skip-serve-logs"]
            triggerer = processes.start("airflow-triggerer", command, airflow.environment)
            airflow.wait_until_ready(TIMEOUT_S, lambda _: None)
            yield LiveWithTriggerer(airflow, place, processes, triggerer)
        finally:
            processes.stop_all()


def pool(live: LiveWithTriggerer, slots: int) -> None:
    """Sets the slots of the pool in which the tier tasks run."""
    command = [sys.executable, "-m", "airflow", "pools", "set", "lake", str(slots), "of a test"]
    done = subprocess.run(
        command,
        env={**os.environ, **live.airflow.environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def stays_claimed(live: LiveWithTriggerer, path: TablePath) -> None:
    """For longer than the time after which a worker is taken for lost."""
    until = time.monotonic() + 1.4 * LOST_MS / 1000
    while time.monotonic() < until:
        status = live.place.status(path)
        assert (status.status, status.failures) == ("Tiering", 0), status.last_error
        time.sleep(0.5)


def logs(live: LiveWithTriggerer, task: str) -> str:
    root = Path(live.airflow.environment["AIRFLOW__LOGGING__BASE_LOG_FOLDER"])
    return "\n".join(p.read_text() for p in root.rglob(f"*task_id={task}/**/*") if p.is_file())


def test_a_full_pool_and_a_paused_dag(live: LiveWithTriggerer) -> None:
    path = live.place.table("ok")
    live.place.wait(path)
    pool(live, 0)
    live.wait(live.triggerer_is_alive, "the triggerer")
    run_id = live.trigger("shop.ok")
    live.wait(lambda: live.tasks(run_id).get("keep_claims[-1]") == "deferred", "the keeper")
    live.wait(lambda: live.tasks(run_id).get("acquire_lease[-1]") == "success", "the claim")
    stays_claimed(live, path)
    live.airflow.pause(True)
    pool(live, 4)
    stays_claimed(live, path)
    live.airflow.pause(False)
    assert live.ended(run_id) == "success"
    assert live.tasks(run_id)["keep_claims[-1]"] == "success"
    assert live.place.client.admin.lake_snapshot(path) is not None
    [round_] = live.place.client.statuses.history(path)
    assert (round_.outcome, live.place.status(path).failures) == ("committed", 0)
    said = logs(live, "keep_claims")
    assert said.count("keeping the claims of the run") == 1
    assert said.count("1 claims kept, 0 lost before their tier task") == 1


def test_a_triggerer_that_stops_holds_no_run_up(live: LiveWithTriggerer) -> None:
    """Neither the run that it kept, nor the next one."""
    paths = [live.place.table(name) for name in ("ok_2", "ok_3")]
    live.place.wait(*paths)
    pool(live, 0)
    run_id = live.trigger("shop.ok_2")
    live.wait(lambda: live.tasks(run_id).get("acquire_lease[-1]") == "success", "the claim")
    live.wait(lambda: live.tasks(run_id).get("keep_claims[-1]") == "deferred", "the keeper")
    live.triggerer.terminate()
    pool(live, 4)
    assert live.ended(run_id) == "success"
    assert live.tasks(run_id)["keep_claims[-1]"] == "skipped"
    assert "the triggerer did not end keep_claims; it is skipped" in logs(live, "drop_lease")

    live.wait(lambda: not live.triggerer_is_alive(), "the triggerer to end")
    run_id = live.trigger("shop.ok_3")
    assert live.ended(run_id) == "success"
    assert live.tasks(run_id)["keep_claims[-1]"] == "success"
    assert "no triggerer runs; the claims of this run are kept only while" in logs(
        live, "keep_claims"
    )
