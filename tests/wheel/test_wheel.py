"""What is in the wheel, what its metadata says, and what a base without extras answers."""

from __future__ import annotations

import re
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.support.built_wheel import ROOT, Environment, built_sdist, built_wheel

pytestmark = pytest.mark.slow

NEVER_IN_BASE = ("airflow", "pyspark", "numba", "llvmlite", "rocksdict", "grpc_tools", "pytest")


def contents() -> list[str]:
    with zipfile.ZipFile(built_wheel()) as wheel:
        return wheel.namelist()


def metadata() -> str:
    with zipfile.ZipFile(built_wheel()) as wheel:
        [name] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
        return wheel.read(name).decode()


def test_it_holds_what_a_cluster_needs_and_no_tests() -> None:
    names = contents()
    for needed in (
        "sluice_spark/tier_table.py",
        "pyspark_sluice/lake_tiering_status.py",
        "sluice_airflow/dag.py",
        "sluice/server/cluster.py",
        "sluice/py.typed",
        "sluice_airflow/py.typed",
    ):
        assert needed in names
    assert {name.split("/")[0].partition("-")[0] for name in names} == {
        "sluice",
        "sluice_airflow",
        "sluice_spark",
        "pyspark_sluice",
        "fluss_sluice",
    }
    assert not [name for name in names if "testing" in name]


def test_its_description_has_no_relative_link() -> None:
    head, _, description = metadata().partition("\n\n")
    assert "Classifier: Typing :: Typed" in head
    assert "\nKeywords: " in head
    assert "sluice serve" in description
    links = re.findall(r"\]\(([^)]*)\)", description)
    assert links
    assert [link for link in links if not link.startswith("https://")] == []


def test_the_sdist_is_the_repository() -> None:
    """The wheel was built from it; here, that whoever unpacks it can run the tests."""
    with tarfile.open(built_sdist()) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    wanted = {
        str(path.relative_to(ROOT))
        for folder in ("sluice", "tests", "scripts", "protos", "docs", "dags", "demo", "bench")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    wanted |= {"Makefile", "requirements.lock", ".ci/run", "docker-compose.yaml", "README.md"}
    assert sorted(wanted - names) == []


def test_the_base_is_light(base: Environment, tmp_path: Path) -> None:
    [folder] = (base.home / "lib").glob("python*/site-packages")
    installed = {path.name.partition("-")[0].lower() for path in folder.glob("*.dist-info")}
    assert not installed & {*NEVER_IN_BASE, "apache_airflow"}
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    # pyarrow 160, numpy 70 and grpcio 15 of them
    assert size < 350e6, f"{size / 1e6:.0f} MB in {len(installed)} packages"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["serve", "--data-dir", "d"], "pip install 'fluss-sluice[server]'"),
        (["sql", "SELECT 1"], "pip install 'fluss-sluice[spark]'"),
        (["jars", "fetch", "jars"], "pip install 'fluss-sluice[spark]'"),
    ],
)
def test_a_missing_extra_is_one_line(
    base: Environment, tmp_path: Path, words: list[str], said: str
) -> None:
    done = base.run("sluice", *words, cwd=tmp_path)
    assert done.returncode != 0
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert said in done.stderr


def test_every_command_has_its_help_in_the_base(base: Environment, tmp_path: Path) -> None:
    said = base.run("sluice", "--help", cwd=tmp_path)
    assert said.returncode == 0, said.stderr
    commands = re.findall(r"^  ([a-z][a-z-]+)  ", said.stdout.partition("Commands:")[2], re.M)
    assert {"serve", "tier", "spark-files", "airflow-dag"} <= {*commands}
    done = base.run("sluice", "tier", "--help", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
