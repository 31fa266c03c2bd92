"""The command line of spark-submit has what makes a start quick, and nothing a user decided."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from sluice.artifacts import jars as jars_module
from sluice.artifacts.class_archive import JAVA_OPTIONS, archive_folder, archive_key, java_program
from sluice.artifacts.iceberg import installed_iceberg
from sluice.artifacts.java import java, pyspark_jars
from sluice.driver.lakes.jvm import iceberg_jar
from tests.support.programs.installed import JARS

pytestmark = pytest.mark.airflow
OPTIONS = "spark.driver.extraJavaOptions"


@pytest.fixture(scope="module")
def jar() -> Path:
    return iceberg_jar(JARS).absolute()


@pytest.fixture(autouse=True)
def _machine(jar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)


def command(
    monkeypatch: pytest.MonkeyPatch, extra: dict[str, str] | None = None, **words: Any
) -> list[str]:
    from sluice_airflow.submit.process_group import GroupSubmitHook

    connection = {"conn_type": "spark", "host": "local[2]", "extra": extra or {}}
    monkeypatch.setenv("AIRFLOW_CONN_START", json.dumps(connection))
    hook = GroupSubmitHook(conn_id="start", **words)
    said: list[str] = hook._build_spark_submit_command("tier_tables.py")
    return said


def put_archive(jar: Path) -> Path:
    """Any file under the right name, as `sluice warm` leaves it."""
    program, folder = java_program(java()), archive_folder()
    assert program is not None
    assert folder is not None
    folder.mkdir(parents=True)
    content = folder / "content"
    content.write_bytes(b"classes")
    key = archive_key(program, pyspark_jars(), (jar,))
    return content.rename(folder / f"{key}-{jars_module.sha256(content)}.jsa")


def test_a_start_with_and_without_an_archive(jar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert f"{OPTIONS}={JAVA_OPTIONS}" in command(monkeypatch, jars=str(jar))
    archive = put_archive(jar)
    said = command(monkeypatch, jars=str(jar))
    [options] = [word for word in said if word.startswith(OPTIONS)]
    assert f" -XX:SharedArchiveFile={archive} " in options
    assert f"spark.driver.extraClassPath={jar}" in said
    assert said[said.index("--jars") + 1] == str(jar)


def test_a_user_decides_about_java(jar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_archive(jar)
    said = command(monkeypatch, jars=str(jar), conf={OPTIONS: "-Xss4m"})
    assert [word for word in said if word.startswith(OPTIONS)] == [f"{OPTIONS}=-Xss4m"]
    assert not any("extraClassPath" in word for word in said)
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-XX:+UseG1GC")
    assert not any(OPTIONS in word for word in command(monkeypatch, jars=str(jar)))


def test_a_driver_on_the_cluster_gets_no_options(
    jar: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_archive(jar)
    said = command(monkeypatch, {"deploy-mode": "cluster"}, jars=str(jar))
    assert not any("spark.driver." in word for word in said)


def test_auto_means_a_jar_of_this_machine_if_it_has_one(
    jar: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runtime = installed_iceberg()
    said = command(monkeypatch, packages="auto")
    assert said[said.index("--packages") + 1] == runtime.coordinates
    kept = tmp_path / "cache/sluice/jars" / runtime.name
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"cut off")
    assert "--packages" in command(monkeypatch, packages="auto")
    shutil.copy(jar, kept)
    said = command(monkeypatch, packages="auto")
    assert said[said.index("--jars") + 1] == str(kept)
    assert "--packages" not in said
    there = command(monkeypatch, {"deploy-mode": "cluster"}, packages="auto")
    assert "--packages" in there, "the driver's machine may not have the file"
