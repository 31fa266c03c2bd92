"""kill -9 of the Spark driver around its lake commit; a clean round leaves every offset once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sluice.client import Heartbeats, connect
from sluice.client.client import Client
from sluice.model import Claim
from sluice.rounds.files import PlanFile, plan_uri, read_json, result_uri, write_json
from tests.faults.conftest import EVENTS, Scene
from tests.support.processes import ROOT, environment, wait_for

pytestmark = pytest.mark.spark

KILLED = 128 + 9
"""What spark-submit makes of its driver's SIGKILL."""


def claimed(client: Client) -> Claim:
    found: list[Claim] = []

    def look() -> bool:
        claim = client.tiering.claim([EVENTS])
        found.extend([] if claim is None else [claim])
        return bool(found)

    wait_for(f"{EVENTS} to be due", look, 30)
    return found[0]


def spark_round(scene: Scene, client: Client, claim: Claim, failpoints: str) -> tuple[int, str]:
    """A round by spark-submit, its claim kept alive meanwhile: exit code, and the plan's URI."""
    uri = plan_uri((scene.home / "work").as_uri(), "sluice-lease", claim)
    write_json(uri, PlanFile(claim, "sluice-lease", scene.server.address).to_json())
    [jar] = (ROOT / ".cache/jars").glob("iceberg-spark-runtime*.jar")
    command = [
        str(Path(sys.executable).with_name("spark-submit")),
        "--master", "local[2]",
        "--jars", str(jar),
        "--conf", "spark.ui.enabled=false",
        "--conf", "spark.sluice.datalake.iceberg.type=hadoop",
        "--conf", f"spark.sluice.datalake.iceberg.warehouse={scene.warehouse}",
        str(ROOT / "spark_jobs/tier_table.py"), "--plan", uri, "--attempt", "a1",
    ]  # fmt: skip
    env = environment({"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(ROOT)})
    with (
        (scene.home / "spark-submit.log").open("ab") as log,
        Heartbeats(client.tiering, interval_s=1) as heartbeats,
    ):
        heartbeats.add(claim)
        done = subprocess.run(
            command,
            stdout=log,
            stderr=log,
            env={**env, "SLUICE_FAILPOINTS": failpoints},
            timeout=240,
            check=False,
        )
    return done.returncode, uri


def snapshots(scene: Scene) -> int:
    """Snapshots of the lake table, by the files that name them."""
    return len(list((scene.warehouse / "db/events/metadata").glob("snap-*.avro")))


@pytest.mark.parametrize("step", ["before", "after"])
def test_killed_spark_driver(scene: Scene, check: Callable[[Scene], None], step: str) -> None:
    scene.append(1000)
    with connect(scene.server.address) as client:
        claim = claimed(client)
        code, uri = spark_round(scene, client, claim, f"round.lake_commit.{step}=kill")
        said = (scene.home / "spark-submit.log").read_text()[-3000:]
        assert code == KILLED, said
        assert read_json(result_uri(uri, "a1")) is None
        assert snapshots(scene) == (1 if step == "after" else 0), "killed at the step meant"
        assert client.admin.lake_snapshot(EVENTS) is None
        client.tiering.failed(claim, "killed")  # as settle reports a driver that was lost
    scene.append(500)
    scene.tier_until_done()
    check(scene)
