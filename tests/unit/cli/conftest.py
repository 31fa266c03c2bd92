"""What the tests of `sluice append` share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sluice import failpoints
from sluice.client import connect
from sluice.config import ServerConfig
from sluice.server.cluster import EmbeddedCluster
from tests.support.tables.append_shop import Shop


@pytest.fixture(scope="module")
def append_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    config = ServerConfig(str(tmp_path_factory.mktemp("data")), listen="grpc://127.0.0.1:0")
    with EmbeddedCluster(config) as cluster, connect(cluster.address) as client:
        client.admin.create_database("shop")
        yield cluster


@pytest.fixture
def shop(append_cluster: EmbeddedCluster, tmp_path: Path) -> Shop:
    return Shop(append_cluster.address, tmp_path)


@pytest.fixture
def breaks(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Has the writer break off at a batch, once; 0 lets it go."""

    def arm(batch: int) -> None:
        monkeypatch.setattr(failpoints, "_passages", {})
        armed = {"client.write.answered": ("raise", batch)} if batch else {}
        monkeypatch.setattr(failpoints, "_armed", armed)

    return arm
