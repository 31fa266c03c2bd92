"""The wheel in a fresh environment: a server, a table, rows, a round, a status."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.built_wheel import ROOT, Environment
from tests.support.processes import ServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.spark]

JARS = os.environ.get("SLUICE_TIERING_JARS") or str(ROOT / ".cache/jars")


class InstalledServer(ServerProcess):
    """``sluice serve`` of another environment."""

    def __init__(self, environment: Environment, data_dir: Path) -> None:
        super().__init__(data_dir, environment.variables)
        self.command = (str(environment.home / "bin/sluice"), "serve")


@pytest.fixture
def address(one_machine: Environment, tmp_path: Path) -> Iterator[str]:
    server = InstalledServer(one_machine, tmp_path / "data")
    yield server.start()
    server.kill()


@pytest.fixture
def sluice(one_machine: Environment, address: str, tmp_path: Path) -> Callable[..., str]:
    def run(*words: str) -> str:
        more = {"SLUICE_CLIENT_BOOTSTRAP": address, "SLUICE_TIERING_JARS": JARS}
        done = one_machine.run("sluice", *words, cwd=tmp_path, **more)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_two_tables_reach_the_lake(sluice: Callable[..., str], tmp_path: Path) -> None:
    schema = "id BIGINT NOT NULL, item STRING"
    sluice("create-table", "shop.orders", "--schema", schema, "--freshness", "1s")
    keyed = f"{schema}, PRIMARY KEY (id)"
    sluice("create-table", "shop.stock", "--schema", keyed, "--freshness", "1s")
    (tmp_path / "rows.csv").write_text("id,item\n1,pen\n2,ink\n")
    for table in ("shop.orders", "shop.stock"):
        sluice("append", table, "rows.csv")
        said = sluice("tier", table, "--warehouse", "lake", "--wait", "1min")
        assert "committed to the lake" in said
    found = json.loads(sluice("status", "--format", "json"))
    assert {s["path"]: (s["lag_rows"], s["failures"]) for s in found} == {
        "shop.orders": (0, 0),
        "shop.stock": (0, 0),
    }
    assert {s["status"] for s in found} <= {"Scheduled", "Pending"}
    assert list((tmp_path / "lake/shop/orders").rglob("*.parquet"))
