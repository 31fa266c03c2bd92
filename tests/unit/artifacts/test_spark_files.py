"""The files for spark-submit: printed, copied, and the same each time."""

from __future__ import annotations

import json
import os
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner

from sluice.artifacts.iceberg import RUNTIMES, installed_iceberg
from sluice.artifacts.spark_files import driver_script, maintenance_script, make_zip
from sluice.cli.main import cli
from sluice.cli.setup.airflow_dag import DAG_FILE, MAINTENANCE_FILE
from sluice.cli.setup.spark_files import cached_zip

ROOT = Path(__file__).resolve().parents[3]


def run(*words: str) -> str:
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_script_is_found_in_the_installed_package() -> None:
    assert driver_script().name == "tier_tables.py"
    assert "spark-submit" in driver_script().read_text()


def test_they_are_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    script, archive, packages = (line.split() for line in run("spark-files").splitlines())
    assert script == ["script", str(driver_script())]
    assert packages == ["packages", installed_iceberg().coordinates]
    assert archive[0] == "py-files"
    assert zipfile.is_zipfile(archive[1])
    found = json.loads(run("spark-files", "--format", "json"))
    assert found == dict([script, archive, packages]), "the same files, the same name"
    assert [p.name for p in (tmp_path / "sluice/spark").iterdir()] == [Path(archive[1]).name]


def test_old_zips_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of yesterday may still be read by a driver that starts."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "sluice/spark"
    folder.mkdir(parents=True)
    for name, age_s in (("old.zip", 90_000), ("young.zip", 80_000), ("killed.new", 90_000)):
        (folder / f"sluice-{name}").touch()
        os.utime(folder / f"sluice-{name}", (time.time() - age_s,) * 2)
    newest = cached_zip()
    assert {path.name for path in folder.iterdir()} == {"sluice-young.zip", newest.name}


def test_zips_made_at_the_same_time_do_not_disturb_each_other(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(make_zip, [tmp_path / "a.zip"] * 4))
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert archive.testzip() is None
    assert [path.name for path in tmp_path.iterdir()] == ["a.zip"]


def test_for_another_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert RUNTIMES["4.0"].coordinates in run("spark-files", "--spark", "4.0.1")
    done = CliRunner().invoke(cli, ["spark-files", "--spark", "3.5"])
    assert done.exit_code == 2
    assert "Spark 3.5 is not supported: Sluice runs on Spark 4.0 and 4.1" in done.stderr


def test_a_zip_without_loops_says_what_executors_need(tmp_path: Path) -> None:
    """A checkout has none; of a wheel's zip tests/wheel tells."""
    done = CliRunner().invoke(cli, ["spark-files", "--copy", str(tmp_path)])
    assert "pip install 'fluss-sluice[compile]'" in done.stderr


def test_they_are_copied(tmp_path: Path) -> None:
    said = run("spark-files", "--copy", str(tmp_path / "new"))
    assert f"py-files  {tmp_path}/new/sluice.zip" in said
    scripts = {"tier_tables.py": driver_script(), "maintain_tables.py": maintenance_script()}
    assert {p.name for p in (tmp_path / "new").iterdir()} == {"sluice.zip", *scripts}
    for name, script in scripts.items():
        assert (tmp_path / "new" / name).read_bytes() == script.read_bytes()


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = CliRunner().invoke(cli, ["spark-files", "--copy", str(tmp_path / "file/new")])
    assert done.exit_code == 2
    assert "the files cannot be written" in done.stderr


def test_the_zip_holds_what_executors_import_and_no_tests(tmp_path: Path) -> None:
    make_zip(tmp_path / "a.zip")
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        names = archive.namelist()
    assert {
        "sluice/driver/spark/round.py",
        "sluice_spark/tier_tables.py",
        "pyspark_sluice/query.py",
    } <= {*names}
    assert not [name for name in names if "tests" in name or name.endswith(".pyc")]


def test_the_dag_files_are_those_of_the_repository() -> None:
    assert run("airflow-dag") == DAG_FILE == (ROOT / "dags/sluice_lake_tiering.py").read_text()
    maintenance = (ROOT / "dags/sluice_lake_maintenance.py").read_text()
    assert run("airflow-dag", "--maintenance") == MAINTENANCE_FILE == maintenance
