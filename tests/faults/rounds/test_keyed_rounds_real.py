"""The random check of tables with a primary key, shorter, on a real Fluss."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from sluice.model import TablePath
from tests.faults.scenes.keyed_run import Run
from tests.faults.scenes.keyed_world import REGIONS, KeyedScene
from tests.faults.scenes.real_scene import RealScene
from tests.support.fluss.real_fluss import RealFluss
from tests.support.fluss.table_creation import create_table

pytestmark = [
    pytest.mark.spark,
    pytest.mark.real_fluss,
    pytest.mark.long,
    pytest.mark.timeout(900),
]
ROUNDS = 16


class RealRun(Run):
    """Fluss 0.9.1 refuses new columns of a table that is tiered to Iceberg."""

    columns_added = False


class RealKeyedScene(KeyedScene, RealScene):
    """A table with a primary key of a real Fluss."""

    def create(self) -> None:
        with self.client() as client:
            client.admin.create_database(self.path.database, ignore_if_exists=True)
            create_table(client, self.path, self.described("1s"), self.warehouse)
            for region in REGIONS:
                client.admin.create_partition(self.path, {"region": region})


def test_the_lake_of_a_real_fluss_equals_what_was_acknowledged(
    tmp_path: Path,
    real_fluss: RealFluss,
    spark_jvm: Any,
    lake_sql: Callable[[Path, str], list[Any]],
) -> None:
    database = f"db_{uuid.uuid4().hex[:10]}"
    scenes = []
    for image in ("FULL", "WAL"):
        path = TablePath(database, image.lower())
        made = (tmp_path, real_fluss, path, spark_jvm, lake_sql)
        scene = RealKeyedScene(*made, layout="legacy")  # type: ignore[arg-type]
        scene.image = image
        scene.create()
        scenes.append(scene)
    run = RealRun(scenes, Random(7))
    events = [run.kill_driver] * 2 + [run.create_again] * 3 + [run.compact_meanwhile]
    events += [run.begin_beside_changes]
    events += [run.cut, run.only_deletes, run.spill, run.write_meanwhile] * 2
    try:
        run.play(events, ROUNDS)
    finally:
        run.close()
    run.assert_occurred()
    with scenes[0].client() as client:
        client.admin.drop_database(database, cascade=True)
