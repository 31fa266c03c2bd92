"""A real cluster on a free port for each test, and a client of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from sluice.client import Client, connect
from sluice.config import ClientConfig, ServerConfig
from sluice.server.cluster import EmbeddedCluster
from sluice.server.tablet.buckets.files import LogFiles, Part
from tests.support.network.own_ports import OwnPorts


class WallClock:
    """The cluster's clock: wall time stands until the test moves it."""

    def __init__(self) -> None:
        self.ms = 1_750_000_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return time.monotonic() + self.ms / 1000

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class Files(LogFiles):
    """Plain files; a test may do something before each append."""

    before_append: Callable[[], None] = staticmethod(lambda: None)

    def append(self, path: Path, position: int, parts: Sequence[Part]) -> None:
        self.before_append()
        super().append(path, position, parts)


class Cluster:
    """An embedded cluster that can be stopped and started again on its port and data.

    Over Fluss's own protocol its tablet server comes back on another port.
    """

    def __init__(self, data_dir: Path, scheme: str) -> None:
        self.clock = WallClock()
        self.files = Files()
        self._settings: dict[str, Any] = {"data_dir": str(data_dir), "max_workers": 8}
        self._ports = OwnPorts(scheme)
        self.address = self._ports.address
        self.start()

    def stop(self, grace_s: float = 0) -> None:
        self._cluster.stop(grace_s)

    def close(self) -> None:
        self.stop()
        self._ports.close()

    def start(self, **settings: Any) -> None:
        config = ServerConfig(listen=self._ports.listen(), **{**self._settings, **settings})
        self._cluster = EmbeddedCluster(config, self.clock, files=self.files)
        assert self._cluster.start() == self.address


@pytest.fixture(params=["grpc", "fluss"])
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path / "data", request.param)
    yield cluster
    cluster.close()


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    with connect(ClientConfig(bootstrap=cluster.address)) as client:
        client.admin.create_database("shop")
        yield client
