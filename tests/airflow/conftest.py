"""Airflow in a process and a home folder of its own, beside a real embedded cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sluice.client import connect
from sluice.config import ServerConfig
from sluice.server.cluster import EmbeddedCluster
from tests.airflow.live import SQLITE
from tests.airflow.place import HERE, LONG_MS, AirflowProcess, Place, airflow_home

if TYPE_CHECKING:
    from tests.airflow.page_process import PagePlace


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A long test of a live Airflow has PostgreSQL alone; the slow ones have SQLite, too."""
    left = [item for item in items if item.get_closest_marker("long") and _has_sqlite(item)]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in left]


def _has_sqlite(item: pytest.Item) -> bool:
    call = getattr(item, "callspec", None)
    return call is not None and call.params.get("live") == SQLITE


@pytest.fixture(scope="session")
def airflow_environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment of an Airflow whose home folder is ours, with its database made."""
    return airflow_home(tmp_path_factory.mktemp("airflow"), HERE / "driver.py")


@pytest.fixture(scope="session")
def airflow(airflow_environment: dict[str, str]) -> Iterator[AirflowProcess]:
    process = AirflowProcess(Path(airflow_environment["AIRFLOW_HOME"]), airflow_environment)
    yield process
    process.close()


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[str]:
    config = ServerConfig(
        data_dir=str(tmp_path / "data"),
        listen="grpc://127.0.0.1:0",
        tiering_backoff_ms=0,
        tiering_timeout_ms=LONG_MS,
    )
    with EmbeddedCluster(config) as cluster:
        yield cluster.address


@pytest.fixture
def place(airflow: AirflowProcess, embedded: str, tmp_path: Path) -> Iterator[Place]:
    with connect(embedded) as client:
        client.admin.create_database("shop")
        yield Place(airflow, client, embedded, tmp_path / "work")


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PagePlace]:
    """The page in a running API server, and the cluster that it shows."""
    from tests.airflow.page_process import running_page  # loads much of Airflow

    with running_page(tmp_path_factory.mktemp("page")) as place:
        yield place
