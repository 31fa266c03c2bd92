"""Fluss's own Java client sees the same of the embedded server as of a real Fluss.

The program in tests/java_client makes databases, tables and partitions, writes and reads rows in
every way that the client has, and prints each answer. Answers that differ are listed with a reason
in tests/support/java_differences.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sluice.config import DatalakeConfig, ServerConfig
from sluice.server.cluster import EmbeddedCluster
from sluice.testing.real_fluss import RealFluss
from tests.support.java_client import (
    Answers,
    TableMissed,
    compiled,
    register_lake_snapshots,
    tour,
)
from tests.support.java_differences import wrong
from tests.support.users import TOKENS, write_users

pytestmark = [pytest.mark.real_fluss]
TRIES = 4
"""Clusters that may miss a table (docs/fluss/known-problems.md) before the test fails."""
ROWS = [f"+A {n} (1, n{n}, {n})" for n in range(40)]


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("classes"))


@contextmanager
def embedded(home: Path, *, lake: bool = True, users: Path | None = None) -> Iterator[str]:
    config = ServerConfig(
        data_dir=str(home / "data"),
        listen="fluss://127.0.0.1:0",
        kv_snapshot_interval_ms=200,
        default_bucket_count=4,  # as RealFluss has it
        users_file=str(users or ""),
    )
    warehouse = {"type": "hadoop", "warehouse": str(home / "warehouse")}
    datalake = DatalakeConfig("iceberg", warehouse) if lake else DatalakeConfig("none")
    with EmbeddedCluster(config, datalake=datalake) as cluster:
        yield cluster.address


def real(home: Path, see: Callable[[RealFluss], Answers], *, lake: bool = True) -> Answers:
    """The answers of a new cluster, and of another one if that one has missed a table."""
    for attempt in range(TRIES):
        folder = home / f"fluss{attempt}"
        with RealFluss(folder, lake=lake, conf={"kv.snapshot.interval": "1s"}) as fluss:
            try:
                return see(fluss)
            except TableMissed as error:
                missed = error
    raise missed


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_java_client_sees_the_same(classes: Path, tmp_path: Path) -> None:
    def see(fluss: RealFluss) -> Answers:
        register_lake_snapshots(fluss.bootstrap, fluss.warehouse)
        return tour(classes, fluss.bootstrap, tmp_path / "real.log")

    with embedded(tmp_path) as address:
        register_lake_snapshots(address)
        ours = tour(classes, address, tmp_path / "embedded.log")
    theirs = real(tmp_path, see)
    assert len(theirs) > 700
    assert wrong(theirs, ours) == []


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_java_client_sees_the_same_without_a_lake(classes: Path, tmp_path: Path) -> None:
    subjects = ["without_a_lake"]

    def see(fluss: RealFluss) -> Answers:
        return tour(classes, fluss.bootstrap, tmp_path / "real.log", subjects)

    with embedded(tmp_path, lake=False) as address:
        ours = tour(classes, address, tmp_path / "embedded.log", subjects)
    theirs = real(tmp_path, see, lake=False)
    assert len(theirs) > 50
    assert wrong(theirs, ours) == []


@pytest.mark.long
def test_a_client_that_logs_in_sees_the_same(classes: Path, tmp_path: Path) -> None:
    subjects = ["databases", "lookups", "kv_snapshots"]
    with embedded(tmp_path / "open") as address:
        plain = tour(classes, address, tmp_path / "plain.log", subjects)
    users = write_users(tmp_path / "users")
    with embedded(tmp_path / "secured", users=users) as address:
        ria = tour(classes, address, tmp_path / "ria.log", subjects, login("ria"))
        ada = tour(classes, address, tmp_path / "ada.log", subjects, login("ada"))
    assert ada == plain
    assert ria["databases", "listed"] == "false"
    assert ria["databases", "create"] == "AuthorizationException"
    assert ria["kv_snapshots", "ends early"] == "AuthorizationException"


def login(name: str) -> dict[str, str]:
    prefix = "client.security"
    return {
        f"{prefix}.protocol": "sasl",
        f"{prefix}.sasl.mechanism": "PLAIN",
        f"{prefix}.sasl.username": name,
        f"{prefix}.sasl.password": TOKENS[name][1],
    }


@pytest.mark.slow
def test_a_bucket_without_rows_keeps_no_other_one_from_being_read(
    classes: Path, tmp_path: Path
) -> None:
    with embedded(tmp_path) as address:
        seen = tour(classes, address, tmp_path / "log", ["log_scans"])
    busy = seen["log_scans", "the busy bucket"]
    rows = f"{{bucket {busy}=[{', '.join(ROWS)}]}}"
    assert seen["log_scans", "an idle bucket"] == "{}"
    assert seen["log_scans", "an idle and a busy bucket"] == rows
