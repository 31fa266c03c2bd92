"""kill -9 of the driver at each step of a round; the next one leaves every offset exactly once."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.faults.conftest import Scene

pytestmark = pytest.mark.spark  # the checker reads with Spark

STEPS = [
    "round.plan.before",
    "round.copy.file.before",
    "round.copy.file.after",
    "round.prepare.after",
    "round.lake_commit.before",
    "round.lake_commit.after",
    "round.fluss_commit.before",
    "round.fluss_commit.after",
]


@pytest.mark.parametrize("step", STEPS)
def test_killed_driver(scene: Scene, check: Callable[[Scene], None], step: str) -> None:
    scene.append(1000)
    scene.tier_until_done()
    scene.append(500)
    assert scene.tier(SLUICE_FAILPOINTS=f"{step}=kill") == -signal.SIGKILL, scene.said
    scene.append(250)
    scene.tier_until_done()
    check(scene)


def test_killed_in_its_first_round(scene: Scene, check: Callable[[Scene], None]) -> None:
    scene.append(1000)
    armed = "round.fluss_commit.before=kill"
    assert scene.tier(SLUICE_FAILPOINTS=armed) == -signal.SIGKILL, scene.said
    scene.tier_until_done()
    check(scene)


def test_the_checker_sees_a_double_row(scene: Scene, check: Callable[[Scene], None]) -> None:
    """The control: rows that no offset accounts for must not pass."""
    scene.append(100)
    scene.tier_until_done()
    check(scene)
    scene.acknowledged.pop()
    with pytest.raises(AssertionError):
        check(scene)
