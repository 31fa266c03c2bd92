"""kill -9 of ``sluice tier`` on a real Fluss, at the main steps of a round."""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sluice.model import Claim, Reason, TablePath
from tests.faults.scenes.real_scene import RealScene
from tests.faults.scenes.scene import DUE_S
from tests.support.fluss.real_fluss import RealFluss
from tests.support.harness.findings import finding
from tests.support.harness.meanwhile import Meanwhile

pytestmark = [
    pytest.mark.spark,
    pytest.mark.real_fluss,
    pytest.mark.slow,
    pytest.mark.timeout(600),
]


@pytest.fixture
def scene(
    tmp_path: Path,
    real_fluss: RealFluss,
    spark_jvm: Any,
    lake_sql: Callable[[Path, str], list[Any]],
) -> Iterator[RealScene]:
    path = TablePath(f"db_{uuid.uuid4().hex[:10]}", "events")
    made = RealScene(tmp_path, real_fluss, path, spark_jvm, lake_sql)  # type: ignore[arg-type]
    made.create()
    yield made
    made.close()
    with made.client() as client:
        client.admin.drop_database(path.database, cascade=True)


@pytest.mark.parametrize(
    "step",
    [
        pytest.param("round.prepare.after", marks=pytest.mark.long),
        "round.lake_commit.after",
        pytest.param("round.fluss_commit.after", marks=pytest.mark.long),
        pytest.param("round.report.before", marks=pytest.mark.long),
    ],
)
def test_a_driver_killed_at_a_step_on_a_real_fluss(scene: RealScene, step: str) -> None:
    scene.append(300)
    scene.tier()
    scene.append(200)
    scene.kill_tier(step)
    scene.append(100)
    result = scene.tier()
    assert (result.recovered_snapshot_id is not None) == (step == "round.lake_commit.after")
    scene.check_whole()


@pytest.mark.parametrize(
    "fence",
    [
        pytest.param(True, id="fence"),
        pytest.param(False, id="without-fence", marks=pytest.mark.long),
    ],
)
def test_an_older_round_that_goes_on_after_a_newer_one_on_a_real_fluss(
    scene: RealScene, fence: bool
) -> None:
    """Fluss itself lets it through: only the base tells. Without the fence is the control."""
    scene.append(300)
    scene.tier()
    scene.append(200)
    with scene.client() as client:
        old = _claim(scene, client)
        words = () if fence else ("--without-fence",)
        late = scene.start_round(old, "late", "round.lake_commit.ready=stop", *words)
        late.wait_until_stopped()
        client.tiering.failed(old, Reason.from_text("taken back"))
    scene.append(100)
    assert scene.tier().rows == 300
    late.go_on()
    late.wait()
    if fence:
        assert scene.outcome(old, "late") == "LakeCommitRefused"
        scene.check_no_orphans()
    else:
        report = scene.report()
        with finding():
            assert (report.rows, report.doubled >= 200) == (800, True)


def _claim(scene: RealScene, client: Any) -> Claim:
    deadline = time.monotonic() + DUE_S
    while (claim := client.tiering.claim([scene.path])) is None:
        assert time.monotonic() < deadline, f"{scene.path} was not handed out"
        time.sleep(0.1)
    return claim


@pytest.mark.long
def test_a_killed_claim_ends_though_two_processes_ask_for_its_table(scene: RealScene) -> None:
    """Fluss takes their question for a heartbeat of the dead driver."""
    scene.append(300)
    scene.tier()
    scene.append(200)
    now = ("--bootstrap", scene.address, "--now")
    driver = scene.command("tier", *now, failpoints="round.fluss_commit.before=kill")
    assert driver.wait() == -signal.SIGKILL, driver.said
    killed_s = time.monotonic()
    ended: list[float] = []
    refused: list[str] = []

    def ask() -> None:
        while not ended:
            asking = scene.command("tier", *now)
            code = asking.wait()
            if code == 0:
                ended.append(time.monotonic() - killed_s)
                return
            refused.append(asking.said)
            assert "TableNotDue" in asking.said, asking.said
            assert time.monotonic() - killed_s < 300, asking.said

    with Meanwhile(ask), Meanwhile(ask):
        pass
    assert len(refused) > 20, "they asked all the time"
    with finding():
        # Two minutes, the 15 s at which Fluss looks, and the round.
        assert ended[0] < 165, (ended, refused[-2:])
    scene.check_whole()
