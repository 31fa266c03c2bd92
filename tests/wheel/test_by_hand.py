"""The wheel in a fresh environment: a server, a table, rows, a round, a status."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import claimed
from tests.support.programs.built_wheel import Environment
from tests.support.programs.installed import JARS, Installed, InstalledServer

pytestmark = [pytest.mark.slow, pytest.mark.spark]


@pytest.fixture
def address(one_machine: Environment, tmp_path: Path) -> Iterator[str]:
    server = InstalledServer(one_machine, tmp_path / "data")
    yield server.start()
    server.kill()


def test_the_lines_of_the_package_index_do_what_they_say(
    one_machine: Environment, address: str, tmp_path: Path
) -> None:
    """A table is due at once, so no line waits."""
    commands = [command.text for command in claimed("docs/package-index.md", __file__)]
    install, serve, *lines = commands
    assert install == "pip install 'fluss-sluice[server,spark]'"
    assert serve == "sluice serve --data-dir ./data &", "the fixture stands for it"
    more = {"SLUICE_CLIENT_BOOTSTRAP": address, "SLUICE_TIERING_JARS": JARS}
    done = subprocess.run(
        ["bash", "-euc", "\n".join(lines)],
        cwd=tmp_path,
        env={**one_machine.variables, **more},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "shop.orders: committed to the lake" in done.stdout
    assert list((tmp_path / "lake/shop/orders").rglob("*.parquet"))


def test_a_table_with_a_primary_key_reaches_the_lake(
    one_machine: Environment, address: str, tmp_path: Path
) -> None:
    schema = "id BIGINT NOT NULL, item STRING, PRIMARY KEY (id)"
    Installed(one_machine, address, tmp_path).tier_a_table("shop.stock", schema)
