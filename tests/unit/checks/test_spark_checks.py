"""What spark-submit takes: program, Java, files, coordinates."""

from __future__ import annotations

import importlib.metadata
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from sluice.artifacts.iceberg import RUNTIMES
from sluice.artifacts.spark_files import driver_script as installed_script
from sluice.checks import spark
from sluice.checks.findings import Check, run_check
from tests.support.harness.java import java_that


def looked(check: Check) -> tuple[bool | None, str]:
    found = run_check(check)
    return found.ok, found.seen


def no_version(package: str) -> str:
    """As where no package is installed."""
    raise PackageNotFoundError(package)


def spark_in(home: Path, monkeypatch: pytest.MonkeyPatch, *programs: str) -> str:
    """A folder with Spark's programs as the only one on the path; names spark-submit."""
    (home / "bin").mkdir(parents=True)
    for name in programs:
        (home / "bin" / name).write_text("#!/bin/sh\n")
        (home / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(home / "bin"))
    for variable in ("SPARK_HOME", "SPARK_CONF_DIR"):
        monkeypatch.delenv(variable, raising=False)
    return str(home / "bin/spark-submit")


def test_the_installed_script_is_taken_where_none_is_named() -> None:
    assert looked(spark.driver_script("", "")) == (True, str(installed_script()))


def test_files(tmp_path: Path) -> None:
    (tmp_path / "a.jar").touch()
    here, gone = str(tmp_path / "a.jar"), str(tmp_path / "b.jar")
    for given in (here, f"file://{here}", f"{here},file:{here}", f" {here}, "):
        assert looked(spark.files("jars", given, "fix it"))[0], given
    assert looked(spark.files("jars", f"{here},{gone}", "fix it")) == (
        False, f"file {gone} does not exist; fix it",
    )  # fmt: skip
    assert looked(spark.files("jars", f"{here},{tmp_path}", "fix it")) == (
        False, f"{tmp_path} is a folder: give a file; fix it",
    )  # fmt: skip


@pytest.mark.parametrize(
    "given", ["s3://b/x.jar", "local:///opt/x.jar", "/opt/*.jar", "/opt/[ab].jar"]
)
def test_files_that_only_spark_reaches(given: str, tmp_path: Path) -> None:
    (tmp_path / "a.jar").touch()
    assert looked(spark.files("jars", given, "")) == (None, f"only Spark can check {given}")
    mixed = spark.files("jars", f"{given},{tmp_path}/b.jar", "")
    assert looked(mixed)[0] is False, "one that is missing is told all the same"


def test_a_program_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    ok, seen = looked(spark.program("spark3-submit", "or set another"))
    assert ok is False
    assert seen == (
        "the program 'spark3-submit' does not exist: `pip install"
        f" pyspark=={version('pyspark-client')}`"
        " installs spark-submit; or set another"
    )
    with monkeypatch.context() as patch:
        patch.setattr(importlib.metadata, "version", no_version)
        said = looked(spark.program("spark3-submit", ""))[1]
    assert f"pip install 'pyspark=={list(RUNTIMES)[-1]}.*'` installs" in said
    assert looked(spark.java_of("spark3-submit", True))[0] is None


def test_java_of_sparks_own_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binary = spark_in(tmp_path / "spark", monkeypatch, "spark-submit", "spark-class")
    java_that("""echo 'openjdk version "21.0.1"' >&2""", tmp_path / "21", monkeypatch)
    assert looked(spark.java_of(binary, True)) == (True, f"{tmp_path}/21/bin/java is Java 21")
    ok, seen = looked(spark.java_of("spark-submit", False))
    assert ok
    assert seen.endswith("is Java 21; the driver's, on the cluster: not checked")
    java_that("""echo 'openjdk version "11.0.2"' >&2""", tmp_path / "11", monkeypatch)
    ok, seen = looked(spark.java_of(binary, True))
    assert ok is False
    assert "11/bin/java (from JAVA_HOME) is Java 11: install Java 17" in seen
    monkeypatch.delenv("JAVA_HOME")
    ok, seen = looked(spark.java_of(binary, True))
    assert ok is False
    assert "there is no java on the PATH" in seen


def test_java_that_a_program_may_bring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java_that("exit 1", tmp_path / "none", monkeypatch)
    wrapper = spark_in(tmp_path / "wrapped", monkeypatch, "spark-submit")
    assert looked(spark.java_of(wrapper, True)) == (
        None, f"{wrapper} is not Spark's own program and may have its own Java",
    )  # fmt: skip
    binary = spark_in(tmp_path / "spark", monkeypatch, "spark-submit", "spark-class")
    assert looked(spark.java_of(binary, True))[0] is False
    settings = tmp_path / "spark/conf/spark-env.sh"
    settings.parent.mkdir()
    settings.write_text("SPARK_LOCAL_IP=127.0.0.1\n")
    assert looked(spark.java_of(binary, True))[0] is False
    settings.write_text("JAVA_HOME=/opt/jdk\n")
    assert looked(spark.java_of(binary, True)) == (None, f"{settings} sets JAVA_HOME")


def test_spark_as_pip_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    binary = str(Path(sys.executable).with_name("spark-submit"))
    assert looked(spark.program(binary, "")) == (True, binary)
    assert looked(spark.java_of(binary, True))[0] is True
    assert looked(spark.java_here())[0] is True


@pytest.mark.parametrize("given", ["org.x:a:1.0", "org.x/a:1.0", "a:b:1, c:d:2"])
def test_coordinates_are_fetched_by_spark_submit(given: str) -> None:
    assert looked(spark.packages(given, "")) == (None, f"spark-submit fetches {given}")


@pytest.mark.parametrize("given", ["org.x:a", "a:b:c:d", "a::1", "a:b:1,", "/opt/iceberg.jar"])
def test_coordinates_that_are_none(given: str) -> None:
    ok, seen = looked(spark.packages(given, "correct it"))
    assert ok is False
    assert seen.endswith("does not have the form GROUP:ARTIFACT:VERSION; correct it")
