"""kill -9 of the server while a writer appends; the same writer goes on when it is back."""

from __future__ import annotations

import threading

import pytest

from tests.faults.scenes.scene import Scene

pytestmark = pytest.mark.spark  # the checker reads with Spark


@pytest.mark.parametrize(
    "step",
    [
        pytest.param("server.append.before_write", marks=pytest.mark.slow),
        "server.append.after_write",
    ],
)
def test_a_server_killed_during_appends(scene: Scene, step: str) -> None:
    """Before the write nothing is stored, after it nothing was said: the resend is stored once."""
    scene.append(400)
    scene.server.stop()
    scene.server.start(SLUICE_FAILPOINTS=f"{step}=kill@3")
    writer = threading.Thread(target=scene.append, args=(600,))
    writer.start()
    assert scene.server.wait_until_dead() == -9
    scene.server.start()
    writer.join(120)
    assert not writer.is_alive()
    assert scene.written == 1000
    scene.tier_until_done()
    scene.check_whole()


@pytest.mark.parametrize(
    "step",
    [pytest.param("server.commit_lake.before", marks=pytest.mark.slow), "server.commit_lake.after"],
)
def test_a_server_killed_while_a_round_commits(scene: Scene, step: str) -> None:
    """The lake has the snapshot; whether Fluss has heard of it, the next round finds out."""
    scene.append(400)
    scene.tier_until_done()
    scene.append(200)
    scene.server.stop()
    scene.server.start(SLUICE_FAILPOINTS=f"{step}=kill")
    tiering = threading.Thread(target=scene.tier_until_done)
    tiering.start()
    assert scene.server.wait_until_dead() == -9
    scene.server.start()
    tiering.join(120)
    assert not tiering.is_alive()
    scene.check()
    scene.append(100)
    scene.tier_until_done()
    scene.check_whole()
