"""kill -9 of ``sluice tier`` while it replaces the rows of a partition that was dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.conftest import new_scene
from tests.faults.scenes.scene import Scene
from tests.support.programs.processes import ServerProcess

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def scene(
    tmp_path: Path,
    shared_server: ServerProcess,
    spark_jvm: Any,
    lake_sql: Callable[[Path, str], list[Any]],
    layout: str,
) -> Iterator[Scene]:
    made = new_scene(tmp_path, shared_server, spark_jvm, lake_sql, keys=("text",), layout=layout)
    yield made
    made.close()


@pytest.mark.parametrize(
    "step",
    [
        pytest.param("round.lake_commit.ready", marks=pytest.mark.long),
        "round.lake_commit.after",
        pytest.param("round.fluss_commit.after", marks=pytest.mark.long),
    ],
)
def test_a_driver_killed_in_the_round_of_a_partition_created_again(scene: Scene, step: str) -> None:
    """Its old rows go and its new rows come by one commit, whichever round makes it."""
    scene.append(100, text="a")
    scene.append(100, text="b")
    scene.tier()
    with scene.client() as client:
        client.admin.drop_partition(scene.path, {"text": "a"})
    scene.written -= 100
    scene.append(50, text="a")
    scene.append(50, text="b")
    scene.kill_tier(step)
    scene.append(30, text="a")
    scene.tier()
    scene.check_whole()
    [counts] = scene.sql("SELECT count_if(text = 'a') AS a, count_if(text = 'b') AS b FROM {t}")
    assert (counts.a, counts.b) == (80, 150)
