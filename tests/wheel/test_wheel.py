"""What is in the wheel, what its metadata says, and what a base without extras answers."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from sluice.page.app import STATIC
from tests.support.page.ui_process import look_at, ui_process
from tests.support.programs.built_wheel import ROOT, Environment, built_wheel, new_sdist

pytestmark = pytest.mark.slow

NEVER_IN_BASE = ("airflow", "pyspark", "numba", "llvmlite", "rocksdict", "grpcio_tools", "pytest")


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
        "sluice_spark/tier_tables.py",
        "sluice_spark/maintain_tables.py",
        "pyspark_sluice/lake_tiering_status.py",
        "sluice_airflow/dag.py",
        "fluss_sluice/__init__.py",
        "sluice/server/cluster.py",
        "sluice/page/app.py",
        "sluice/page/static/index.html",
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
    assert not [name for name in names if name.startswith("tests")]
    built = {f"sluice/page/static/{path.relative_to(STATIC)}" for path in STATIC.rglob("*.*")}
    assert built == {name for name in names if name.startswith("sluice/page/static/")}
    assert not [name for name in names if "node_modules" in name or name.endswith(".tsx")]


def test_its_description_has_no_relative_link() -> None:
    head, _, description = metadata().partition("\n\n")
    assert "Classifier: Typing :: Typed" in head
    assert "\nKeywords: " in head
    assert "sluice serve" in description
    links = re.findall(r"\]\(([^)]*)\)", description)
    assert links
    assert [link for link in links if not link.startswith("https://")] == []


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, as somebody has it who downloads it."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(new_sdist(folder)) as sdist:
        sdist.extractall(folder, filter="data")
    [tree] = (path for path in folder.iterdir() if path.is_dir())
    return tree


def test_the_sdist_is_the_repository(unpacked: Path) -> None:
    wanted = {
        str(path.relative_to(ROOT))
        for folder in (
            "sluice",
            "tests",
            "scripts",
            "protos",
            "docs",
            "dags",
            "demo",
            "bench",
            "frontend",
        )
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and not {"__pycache__", "node_modules"} & {*path.parts}
    }
    wanted |= {"Makefile", "requirements.lock", ".ci/run", "docker-compose.yaml", "README.md"}
    assert sorted(name for name in wanted if not (unpacked / name).is_file()) == []
    assert not (unpacked / "frontend/node_modules").exists()


def test_the_sdist_tests_by_itself(unpacked: Path) -> None:
    """No repository is around it: its layout is checked, all tests load, and some run."""
    places = [unpacked, unpacked / "plugins", unpacked / "spark_jobs"]
    path = {"PYTHONPATH": os.pathsep.join(map(str, places))}
    pytest_there = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    # Rewriting the assertions of all tests would take twice as long as loading them.
    for arguments in (
        ["--collect-only", "--assert=plain"],
        ["tests/test_layout.py", "tests/unit/leases"],
    ):
        done = subprocess.run(
            [*pytest_there, *arguments],
            cwd=unpacked,
            env={**os.environ, **path},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


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
        (["exporter"], "pip install 'fluss-sluice[exporter]'"),
        (["ui"], "pip install 'fluss-sluice[ui]'"),
        (["sql", "SELECT 1"], "pip install 'fluss-sluice[spark]'"),
        (["jars", "fetch", "jars"], "pip install 'fluss-sluice[spark]'"),
        (["tier", "a.b", "--warehouse", "lake"], "pip install 'fluss-sluice[spark]'"),
    ],
)
def test_a_missing_extra_is_one_line(
    base: Environment, tmp_path: Path, words: list[str], said: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:  # a command looks for it first
        address = f"grpc://127.0.0.1:{listener.getsockname()[1]}"
        done = base.run("sluice", *words, cwd=tmp_path, SLUICE_CLIENT_BOOTSTRAP=address)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert said in done.stderr


def test_the_page_needs_its_extra_only(page_alone: Environment, tmp_path: Path) -> None:
    """No Node.js: the wheel has the built files. No cluster either, which it then says."""
    programs = [str(page_alone.home / "bin"), "/usr/bin", "/bin"]
    env = {**page_alone.variables, "PATH": os.pathsep.join(programs)}
    sluice = [str(page_alone.home / "bin/sluice")]
    away = ("--bootstrap", "grpc://127.0.0.1:1")
    with ui_process(*away, program=sluice, env=env, cwd=tmp_path) as (_, link):
        look_at(link)


def test_its_zip_for_executors_has_the_loops(base: Environment, tmp_path: Path) -> None:
    """Decoding needs neither numba nor the package itself then, as on an executor."""
    done = base.run("sluice", "spark-files", "--spark", "4.1", "--copy", ".", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    code = (
        "import sys; sys.path.insert(0, 'sluice.zip')\n"
        "import sluice.formats.kernels.compiled as kernels\n"
        "assert kernels.__file__.startswith('sluice.zip'), kernels.__file__\n"
        "assert 'numba' not in sys.modules\n"
    )
    done = base.run("python", "-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_every_command_has_its_help_in_the_base(base: Environment, tmp_path: Path) -> None:
    said = base.run("sluice", "--help", cwd=tmp_path)
    assert said.returncode == 0, said.stderr
    commands = re.findall(r"^  ([a-z][a-z-]+)  ", said.stdout.partition("Commands:")[2], re.M)
    assert {"serve", "tier", "spark-files", "airflow-dag"} <= {*commands}
    done = base.run("sluice", "tier", "--help", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
