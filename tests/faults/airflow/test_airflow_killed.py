"""kill -9 of the Airflow task while its driver works: the orphan and the next run do not clash."""

from __future__ import annotations

import json
import shutil
import signal
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from demo.airflow import Airflow, AirflowFailed, spark_environment
from demo.processes import Processes
from sluice.artifacts.iceberg import installed_iceberg
from sluice.client import connect
from tests.airflow.place import new_database
from tests.faults.conftest import new_scene
from tests.faults.scenes.scene import Scene
from tests.support.harness.findings import finding
from tests.support.programs.processes import ROOT, environment, wait_for

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]

PATIENCE_S = 400


def settings(scene: Scene) -> dict[str, str]:
    """Airflow's: our cluster, our lake, and tasks that are missed after forty seconds."""
    host, port = scene.server.address.removeprefix("grpc://").rsplit(":", 1)
    lake = {"iceberg.type": "hadoop", "iceberg.warehouse": str(scene.warehouse)}
    extra = {"work_uri": (scene.home / "work").as_uri(), "datalake": lake}
    fluss = {"conn_type": "fluss", "host": host, "port": int(port), "extra": extra}
    jar = ROOT / ".cache/jars" / installed_iceberg().name
    return {
        **spark_environment(),
        "AIRFLOW_CONN_FLUSS_DEFAULT": json.dumps(fluss),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
        "AIRFLOW__SLUICE__SCHEDULE": "none",
        "AIRFLOW__SLUICE__TIER_RETRIES": "0",
        "AIRFLOW__SLUICE__HEARTBEAT_INTERVAL_SECONDS": "1",
        "AIRFLOW__SLUICE__JARS": str(jar),
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "40",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "2",
    }


def drivers(processes: Processes) -> list[psutil.Process]:
    """spark-submit's processes that run our job."""
    return [p for p in processes.alive() if "tier_tables.py" in " ".join(_words(p))]


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def task_of_a_driver(processes: Processes) -> list[psutil.Process]:
    """The Airflow task that started one and that task's supervisor, which the scheduler started.

    None while there is no driver, or only one that ends now: spark-submit starts some that do not
    last.
    """
    for driver in drivers(processes):
        found = []
        with suppress(psutil.NoSuchProcess):
            for parent in driver.parents():
                if "scheduler" in _words(parent):
                    return found
                if "tier_tables.py" not in " ".join(_words(parent)):
                    found.append(parent)
    return []


def test_a_task_killed_while_its_driver_works(scene_of_own: Scene, tmp_path: Path) -> None:
    """Two tables share the driver, which is killed in neither, one or both of them."""
    scene = scene_of_own
    other = new_scene(scene.home, scene.server, scene.jvm, scene._sql)
    scenes = (scene, other)
    conf = {
        "tables": [str(one.path) for one in scenes],
        "spark_conf": {"spark.ui.enabled": "false"},
    }
    logs = tmp_path / "logs"
    logs.mkdir()
    processes = Processes(logs, environment())
    airflow = Airflow(tmp_path / "airflow", processes, settings(scene))
    try:
        airflow.home.mkdir()
        shutil.copyfile(new_database(environment()), airflow.home / "airflow.db")
        airflow.prepare(has_database=True)
        for one in scenes:
            one.append(1000)
        airflow.start()
        airflow.wait_until_ready(PATIENCE_S, print)
        run = airflow.trigger(conf)
        killed: list[psutil.Process] = []

        def looked_up() -> bool:
            killed[:] = task_of_a_driver(processes)
            return bool(killed)

        wait_for("the driver and its task", looked_up, PATIENCE_S)
        for process in killed:
            process.send_signal(signal.SIGKILL)
        with pytest.raises(AirflowFailed, match="per_application.tier"):
            airflow.follow(run, PATIENCE_S, print)
        with connect(scene.server.address) as client:
            held = [s.path for s in client.statuses.list() if s.status == "Tiering"]
            assert held == [], "the teardowns let go of the tables"
            assert client.leases.all() == []
        for one in scenes:
            one.append(500)
        airflow.follow(airflow.trigger(conf), PATIENCE_S, print)
        with finding():
            wait_for("the orphaned driver to end", lambda: not drivers(processes), PATIENCE_S)
        for one in scenes:
            one.check_whole()
    finally:
        processes.stop_all()
