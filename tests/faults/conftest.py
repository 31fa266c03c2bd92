"""A server process that all tests share, a table for each, and rounds that need no JVM's start."""

from __future__ import annotations

import itertools
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, Protocol

import pytest

from sluice.model import TablePath
from tests.faults.scenes.keyed_world import KeyedScene, KeyedTable
from tests.faults.scenes.scene import Scene
from tests.support.programs.processes import ServerProcess, served

_numbers = itertools.count()


@pytest.fixture(scope="session")
def spark_jvm(spark: Any) -> Any:
    """The JVM of the one Spark session, for rounds in this process."""
    return SimpleNamespace(gateway=spark.sparkContext._gateway)


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server; a claim lives for an hour without heartbeats: some drivers stand still here."""
    folder = tmp_path_factory.mktemp("faults") / "fluss"
    settings = {
        "SLUICE_SERVER_TIERING_TIMEOUT_MS": "3600000",
        "SLUICE_SERVER_TIERING_CHECK_INTERVAL_MS": "100",
    }
    with served(folder, **settings) as server:
        yield server


def new_scene(
    home: Path,
    server: ServerProcess,
    jvm: Any,
    sql: Callable[[Path, str], list[Any]],
    keys: tuple[str, ...] = (),
    *,
    auto_compaction: bool = False,
    layout: str = "clean",
) -> Scene:
    """A scene with a table of its own."""
    if not server.runs:  # a test that failed has left it dead
        server.start()
    path = TablePath("db", f"events_{next(_numbers)}")
    scene = Scene(home, server, path, jvm, sql, keys, layout)
    scene.auto_compaction = auto_compaction
    scene.create()
    return scene


@pytest.fixture
def layout(request: pytest.FixtureRequest) -> str:
    """The layout of the lake table: one of the two for each test, always the same."""
    return ("clean", "legacy")[zlib.crc32(request.node.nodeid.encode()) % 2]


@pytest.fixture
def scene(
    tmp_path: Path,
    shared_server: ServerProcess,
    spark_jvm: Any,
    lake_sql: Callable[[Path, str], list[Any]],
    layout: str,
) -> Iterator[Scene]:
    made = new_scene(tmp_path, shared_server, spark_jvm, lake_sql, layout=layout)
    yield made
    made.close()


@pytest.fixture
def compacted_scene(
    tmp_path: Path,
    shared_server: ServerProcess,
    spark_jvm: Any,
    lake_sql: Callable[[Path, str], list[Any]],
    layout: str,
) -> Iterator[Scene]:
    """Its rounds compact the table."""
    made = new_scene(
        tmp_path, shared_server, spark_jvm, lake_sql, auto_compaction=True, layout=layout
    )
    yield made
    made.close()


class BeginKeyed(Protocol):
    """Makes a table with a primary key whose second round has deleted rows by position."""

    def __call__(self, version: int, *, auto_compaction: bool = False) -> KeyedTable:
        """:param version: the format version of its lake table."""


@pytest.fixture
def begin_keyed(
    tmp_path: Path,
    shared_server: ServerProcess,
    spark_jvm: Any,
    lake_sql: Callable[[Path, str], list[Any]],
    layout: str,
) -> Iterator[BeginKeyed]:
    made = []

    def begin(version: int, *, auto_compaction: bool = False) -> KeyedTable:
        if not shared_server.runs:
            shared_server.start()
        path = TablePath("db", f"keyed_{next(_numbers)}")
        scene = KeyedScene(tmp_path, shared_server, path, spark_jvm, lake_sql, layout=layout)
        made.append(scene)
        scene.version, scene.auto_compaction = version, auto_compaction
        scene.create()
        table = KeyedTable(scene, Random(version), Counter())
        for deletes_as in ("", "positions"):
            table.write(6)
            result = scene.tier()
            assert result.deletes_as == deletes_as
            table.check(result)
        return table

    yield begin
    for scene in made:
        scene.close()


OwnScene = Callable[[int], AbstractContextManager[Scene]]
"""On a server of its own, which takes a silent driver's table back after so many seconds."""


@pytest.fixture
def own_scene(
    tmp_path: Path, spark_jvm: Any, lake_sql: Callable[[Path, str], list[Any]], layout: str
) -> OwnScene:
    @contextmanager
    def make(timeout_s: int) -> Iterator[Scene]:
        settings = {
            "SLUICE_SERVER_TIERING_TIMEOUT_MS": f"{timeout_s}000",
            "SLUICE_SERVER_TIERING_CHECK_INTERVAL_MS": "100",
        }
        with served(tmp_path / "fluss", **settings) as server:
            made = new_scene(tmp_path, server, spark_jvm, lake_sql, layout=layout)
            yield made
            made.close()

    return make


@pytest.fixture
def quick_scene(own_scene: OwnScene) -> Iterator[Scene]:
    """Where a test waits until the claim of a driver that stands still is taken back."""
    with own_scene(15) as made:
        yield made


@pytest.fixture
def patient_scene(own_scene: OwnScene) -> Iterator[Scene]:
    """Where nobody beats between two tasks of Airflow, which a busy machine starts slowly."""
    with own_scene(45) as made:
        yield made


@pytest.fixture
def scene_of_own(own_scene: OwnScene) -> Iterator[Scene]:
    """With the usual two minutes."""
    with own_scene(120) as made:
        yield made
