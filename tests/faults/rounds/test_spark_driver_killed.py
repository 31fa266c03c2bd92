"""kill -9 of the Spark driver around its lake commit; a clean round leaves every offset once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sluice.artifacts.iceberg import installed_iceberg
from sluice.artifacts.spark_files import driver_script
from sluice.client import Heartbeats
from sluice.client.client import Client
from sluice.model import Claim, Reason
from sluice.rounds.records.json_files import read_json, write_json
from sluice.rounds.records.packs import PackFile, pack_uri, running_uri
from sluice.rounds.records.plan_file import PlanFile, plan_uri
from sluice.rounds.records.result import failure_uri, result_uri
from tests.faults.scenes.scene import Scene
from tests.support.programs.processes import ROOT, environment

pytestmark = [pytest.mark.spark, pytest.mark.slow]

KILLED = 128 + 9
"""What spark-submit makes of its driver's SIGKILL."""


def spark_round(
    scene: Scene, client: Client, claim: Claim, failpoints: str, *conf: str
) -> tuple[int, str]:
    """A round by spark-submit, its claim kept alive meanwhile: exit code, and the plan's URI."""
    work_uri = (scene.home / "work").as_uri()
    uri = plan_uri(work_uri, "sluice-lease", claim)
    pack = pack_uri(work_uri, "sluice-lease", "a1", 0)
    write_json(pack, PackFile((uri,)).to_json())
    write_json(uri, PlanFile(claim, "sluice-lease", scene.server.address).to_json())
    jar = ROOT / ".cache/jars" / installed_iceberg().name
    command = [
        str(Path(sys.executable).with_name("spark-submit")),
        "--master", "local[2]",
        "--jars", str(jar),
        "--conf", "spark.ui.enabled=false",
        "--conf", "spark.sluice.datalake.iceberg.type=hadoop",
        "--conf", f"spark.sluice.datalake.iceberg.warehouse={scene.warehouse}",
        *(word for setting in conf for word in ("--conf", setting)),
        str(driver_script()), "--pack", pack, "--attempt", "a1",
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
    return len(list((scene.table_folder / "metadata").glob("snap-*.avro")))


@pytest.mark.parametrize(
    ("step", "landed"),
    [
        pytest.param("pack.table.running", False, marks=pytest.mark.long),
        # The driver's own threads copy so few rows.
        pytest.param("round.copy.file.after", False, marks=pytest.mark.long),
        pytest.param("round.lake_commit.ready", False, marks=pytest.mark.long),
        ("round.lake_commit.after", True),
        pytest.param("round.fluss_commit.after", True, marks=pytest.mark.long),
    ],
)
def test_a_spark_driver_killed_at_a_step(scene: Scene, step: str, landed: bool) -> None:
    scene.append(300)
    claim = scene.claim()
    with scene.client() as client:
        code, uri = spark_round(scene, client, claim, f"{step}=kill")
        said = (scene.home / "spark-submit.log").read_text()[-3000:]
        assert code == KILLED, said
        assert read_json(result_uri(uri, "a1")) is None
        assert read_json(running_uri(uri, "a1")) is not None, "the table is in flight"
        assert snapshots(scene) == landed, "killed at the step meant"
        registered = client.admin.lake_snapshot(scene.path)
        assert (registered is not None) == (step == "round.fluss_commit.after")
        # As settle reports a driver that was lost.
        client.tiering.failed(claim, Reason.from_text("killed"))
    scene.append(200)
    scene.tier()
    scene.check_whole()


def test_an_executor_killed_after_it_has_written_a_file(scene: Scene) -> None:
    """Spark's worker dies in the middle of a split, and with it the job: nothing is committed."""
    scene.append(300)
    claim = scene.claim()
    with scene.client() as client:
        executors_copy = "spark.sluice.tiering.driver_copy_rows=0"
        code, uri = spark_round(scene, client, claim, "round.copy.file.after=kill", executors_copy)
        said = (scene.home / "spark-submit.log").read_text()[-3000:]
        assert code == 1, said
        assert read_json(failure_uri(uri, "a1")) is not None
        assert snapshots(scene) == 0
        client.tiering.failed(claim, Reason.from_text("its executor was killed"))
    scene.append(200)
    scene.tier()
    scene.check_whole()
