"""kill -9 of the process that runs an Airflow task, at each step that reaches out of Airflow.

A claim may be held by nobody, a round may be committed and reported by nobody: the coordinator
takes the table back, and the next run leaves every offset in the lake exactly once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sluice.client import connect
from sluice.rounds.records.plan_file import claim_of
from sluice_airflow.claims.claimed_again import newest_claim
from tests.airflow.acquire.test_keeper import JOB, TEN_MINUTES_MS, Shop
from tests.airflow.acquire.test_keeper import shop as shop
from tests.airflow.claims.test_claimed_again import lose, work
from tests.airflow.place import AirflowProcess, airflow_home, only, results_of
from tests.faults.scenes.scene import Scene
from tests.support.programs.processes import ROOT, wait_for

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment of an Airflow whose spark-submit runs rounds without Spark."""
    folder = tmp_path_factory.mktemp("airflow")
    return airflow_home(folder, ROOT / "tests/faults/scenes/round_driver.py") | {
        "AIRFLOW__SLUICE__TIER_RETRIES": "0",
        "SLUICE_TIERING_JARS": str(ROOT / ".cache/jars"),
    }


class Runs:
    """Runs of the DAG on a scene's cluster, each in an Airflow process of its own."""

    def __init__(self, scene: Scene, home: dict[str, str]) -> None:
        host, port = scene.server.address.removeprefix("grpc://").rsplit(":", 1)
        lake = {"iceberg.type": "hadoop", "iceberg.warehouse": str(scene.warehouse)}
        extra = {"work_uri": (scene.home / "work").as_uri(), "datalake": lake}
        fluss = {"conn_type": "fluss", "host": host, "port": int(port), "extra": extra}
        self.home = {**home, "AIRFLOW_CONN_FLUSS_DEFAULT": json.dumps(fluss)}
        self.scene = scene
        self.conf = {"tables": [str(scene.path)]}

    def start(self, **environment: str) -> AirflowProcess:
        return AirflowProcess(Path(self.home["AIRFLOW_HOME"]), {**self.home, **environment})

    def killed(self, step: str) -> int:
        """A run that meets the failpoint; how its process ended."""
        return self.start(SLUICE_FAILPOINTS=f"{step}=kill").ask_and_wait("run", conf=self.conf)

    def run(self, **environment: str) -> dict[str, Any]:
        process = self.start(**environment)
        try:
            return process.ask("run", conf=self.conf)
        finally:
            process.close()

    def wait(self, status: str) -> None:
        scene = self.scene
        wait_for(f"{scene.path} to be {status}", lambda: scene.status().status == status, 120)


@pytest.mark.parametrize(
    ("step", "committed"),
    [
        pytest.param("airflow.acquire.after_claim", False, marks=pytest.mark.long),
        pytest.param("airflow.acquire.after_plan", False, marks=pytest.mark.long),
        pytest.param("airflow.tier.before_submit", False, marks=pytest.mark.long),
        pytest.param("airflow.tier.after_submit", True, marks=pytest.mark.long),
        pytest.param("airflow.settle.before_report", True, marks=pytest.mark.long),
    ],
)
def test_killed_task(
    patient_scene: Scene, home: dict[str, str], step: str, committed: bool
) -> None:
    scene = patient_scene
    runs = Runs(scene, home)
    scene.append(300)
    runs.wait("Pending")
    assert runs.killed(step) == -signal.SIGKILL
    held, next_epoch = scene.status(), scene.status().tiering_epoch + 1
    if step == "airflow.settle.before_report":
        assert held.status == "Pending", "the tier task has reported its success itself"
        next_epoch -= 1  # a table that waits for its next round has that round's epoch
    elif step == "airflow.tier.after_submit" and held.status == "Pending":
        next_epoch -= 1  # the task saw the result before the driver had ended, and reported it
    else:
        assert held.status == "Tiering", "nobody could report it"
    with connect(scene.server.address) as client:
        assert (client.admin.lake_snapshot(scene.path) is not None) == committed
    scene.append(200)
    runs.wait("Pending")
    run = runs.run()
    assert run["state"] == "success", run["tasks"]
    [result] = results_of(run).values()
    assert result["tiering_epoch"] == next_epoch
    assert (result["outcome"], result["rows"]) == ("committed", 200 if committed else 500)
    assert scene.status().status != "Tiering"
    assert scene.status().last_error is None
    scene.check_whole()


KEEPER = """
import sys
from sluice.client import connect
from sluice_airflow.acquire.keeper import ClaimKeeper

address, work_uri, lease_id = sys.argv[1:]
with connect(address) as client:
    keeper = ClaimKeeper(client, work_uri, lease_id)
    assert keeper.beat()
    keeper.claim_again()
"""
"""What the trigger of keep_claims does about a lost claim, in place of a triggerer."""


@pytest.mark.parametrize("step", ["airflow.keep.after_claim", "airflow.keep.after_plan"])
def test_killed_keeper(shop: Shop, step: str) -> None:
    """The next triggerer continues with the claim: nobody else may take it, no failure counts."""
    [path] = shop.tables(1)
    [entry] = shop.acquire()
    lose(shop, entry)
    folders = os.pathsep.join((str(ROOT), str(ROOT / "plugins")))
    killed = subprocess.run(
        [sys.executable, "-c", KEEPER, shop.address, shop.work_uri, JOB],
        env={**os.environ, "SLUICE_FAILPOINTS": f"{step}=kill", "PYTHONPATH": folders},
        timeout=300,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    [held] = shop.client.tiering.claims_of(JOB)
    assert (claim_of(newest_claim(entry)) == held) == step.endswith("after_plan")
    work(shop, shop.keeper(), TEN_MINUTES_MS)
    assert claim_of(newest_claim(entry)) == held
    assert shop.client.tiering.still_claimed(held)
    assert shop.failures(path) == [("Tiering", 0)]


@pytest.mark.parametrize(
    ("step", "state", "outcome"),
    [
        ("round.lake_commit.after", "success", "already_landed"),
        pytest.param("round.prepare.after", "failed", "", marks=pytest.mark.long),
    ],
)
def test_a_driver_killed_below_a_task_that_tries_twice(
    scene: Scene, home: dict[str, str], step: str, state: str, outcome: str
) -> None:
    """Both tries are armed: the second meets the step only if nothing has landed."""
    runs = Runs(scene, {**home, "AIRFLOW__SLUICE__TIER_RETRIES": "1"})
    scene.append(300)
    runs.wait("Pending")
    run = runs.run(SLUICE_FAILPOINTS=f"{step}=kill")
    assert run["state"] == state, run["tasks"]
    assert run["tries"]["per_application.tier"] == 2
    if outcome:
        assert only(results_of(run))["outcome"] == outcome
    else:
        assert scene.status().last_error is not None
    scene.append(200)
    runs.wait("Pending")
    following = runs.run()
    assert following["state"] == "success", following["tasks"]
    scene.check_whole()
