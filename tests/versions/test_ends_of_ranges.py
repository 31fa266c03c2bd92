"""The wheel with the oldest and with the newest packages that its metadata allows.

Each in a fresh environment outside the checkout. Two small ones run in CI; Spark, Airflow and other
Pythons take longer.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from sluice.artifacts.java import pyspark_jars
from tests.support.harness.versions import End, constraints, interpreter, version_in, wheel_at
from tests.support.page.ui_process import look_at, ui_process
from tests.support.programs.built_wheel import ROOT, Environment
from tests.support.programs.installed import installed

LOG = "id BIGINT NOT NULL, item STRING"
KEYED = f"{LOG}, PRIMARY KEY (id)"
PACKAGES = ("protobuf", "grpcio", "pyarrow", "pyroaring")
"""Their newest versions are above their lower bounds."""
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def floor_of(package: str) -> str:
    """The lower bound in pyproject.toml, of the line for this Python."""
    extras = PROJECT["optional-dependencies"]
    every = [*PROJECT["dependencies"], *extras["server"], *extras["ui"]]
    [first, *_] = [line for line in every if re.match(rf"{package}[><=!;\[ ]", line)]
    found = re.search(r">=([\d.]+)", first)
    assert found
    return found[1]


PAGE_PACKAGES = ("fastapi", "pydantic", "starlette", "uvicorn")
LOGIN_TESTS = ROOT / "tests/unit/page/local/test_local_access.py"
TOOLS = ("httpx", "hypothesis", "pytest", "pytest-timeout", "pytest-xdist")
"""What those tests need besides the page's packages."""


def tier_by_hand(environment: Environment, folder: Path, **more: str) -> None:
    """Server, tables with and without a key, rows, rounds and statuses."""
    with installed(environment, folder, **more) as commands:
        commands.tier_a_table("shop.orders", LOG)
        commands.tier_a_table("shop.stock", KEYED)


@pytest.mark.spark
@pytest.mark.parametrize(
    "end",
    [
        pytest.param("lowest-direct", marks=pytest.mark.slow),
        # what was released since may break it: not CI of a change
        pytest.param("highest", marks=pytest.mark.long),
    ],
)
def test_client_and_server(end: End, tmp_path: Path) -> None:
    """Without Spark's packages, which are large: its jars are those of this environment."""
    environment = wheel_at(tmp_path, end, "server")
    found = {name: version_in(environment, name) for name in PACKAGES}
    at_floor = {name: found[name].startswith(floor_of(name)) for name in found}
    assert set(at_floor.values()) == {end == "lowest-direct"}, found
    assert found["protobuf"].startswith("6." if end == "lowest-direct" else "7."), found
    tier_by_hand(environment, tmp_path, SPARK_HOME=str(pyspark_jars().parent))


@pytest.mark.parametrize(
    "end",
    [
        pytest.param("lowest-direct", marks=pytest.mark.slow),
        pytest.param("highest", marks=pytest.mark.long),
    ],
)
def test_the_page(end: End, tmp_path: Path) -> None:
    environment = wheel_at(tmp_path, end, "ui")
    found = {name: version_in(environment, name) for name in PAGE_PACKAGES}
    at_floor = {name: found[name].startswith(floor_of(name)) for name in found}
    assert set(at_floor.values()) == {end == "lowest-direct"}, found
    sluice, env = [str(environment.home / "bin/sluice")], environment.variables
    away = ("--bootstrap", "grpc://127.0.0.1:1")
    with ui_process(*away, program=sluice, env=env, cwd=tmp_path) as (_, link):
        look_at(link)


@pytest.mark.long
def test_the_login_of_the_page_with_the_oldest_packages(tmp_path: Path) -> None:
    """An older Starlette takes the path of a request from its Host, which a stranger chooses."""
    environment = wheel_at(tmp_path, "lowest-direct", "ui")
    assert version_in(environment, "starlette").startswith(floor_of("starlette"))
    environment.install(*TOOLS, options=["--constraints", str(tmp_path / "constraints.txt")])
    alone = ["-p", "no:cacheprovider", "--basetemp", str(tmp_path / "scratch")]
    command = ("python", "-m", "pytest", "-q", *alone, str(LOGIN_TESTS))
    # the tests' set-up looks for Spark's jars
    done = environment.run(*command, cwd=ROOT, SPARK_HOME=str(pyspark_jars().parent))
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


@pytest.mark.long
@pytest.mark.spark
def test_the_last_protobuf_of_the_older_major_version(tmp_path: Path) -> None:
    environment = wheel_at(tmp_path, "highest", "server", also="protobuf<7")
    assert version_in(environment, "protobuf").startswith("6.")
    tier_by_hand(environment, tmp_path, SPARK_HOME=str(pyspark_jars().parent))


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("python", ["3.12", "3.13"])
def test_the_oldest_packages_on_other_pythons(python: str, tmp_path: Path) -> None:
    environment = wheel_at(tmp_path, "lowest-direct", "server", python=interpreter(python))
    tier_by_hand(environment, tmp_path, SPARK_HOME=str(pyspark_jars().parent))


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize(("end", "spark"), [("lowest-direct", "4.0."), ("highest", "4.1.")])
def test_everything(end: End, spark: str, tmp_path: Path) -> None:
    """All extras: pyspark and its client are of one version, and Spark answers with them."""
    environment = wheel_at(tmp_path, end, "all")
    version = version_in(environment, "pyspark")
    assert version.startswith(spark)
    assert version_in(environment, "pyspark-client") == version
    jars = tmp_path / "jars"
    with installed(environment, tmp_path, SLUICE_TIERING_JARS=str(jars)) as commands:
        commands.sluice("jars", "fetch", str(jars))
        commands.tier_a_table("shop.orders", LOG)
        commands.tier_a_table("shop.stock", KEYED)
        commands.change_with_vectors("shop.vectors")  # Iceberg 1.11 names them wrongly
        query = "SELECT table_name FROM sys.lake_tiering_status WHERE database_name = 'shop'"
        assert "stock" in commands.sluice("sql", query)
        assert "orders" in commands.sluice("sql", query)
        left = {path.name for path in tmp_path.iterdir()}
        assert "artifacts" not in left, "Spark leaves nothing where a command is run"


@pytest.mark.long
@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_extras_resolve_on_each_python(python: str, tmp_path: Path) -> None:
    """Without installing: the oldest and the newest of everything, and both Sparks of one pair."""
    for end in ("lowest-direct", "highest"):
        pins = constraints(tmp_path, end, "all", python=interpreter(python)).read_text()
        found = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", pins, re.MULTILINE))
        assert found["pyspark"] == found["pyspark-client"], (end, found)
        assert "apache-airflow" in found
