"""Which of Iceberg's runtimes is taken, by the Spark that is there."""

from __future__ import annotations

import importlib.metadata
import sys
import zipfile
from pathlib import Path

import pytest

from sluice.artifacts.iceberg import (
    RUNTIMES,
    iceberg_runtime,
    installed_iceberg,
    spark_jars,
    spark_version,
)
from sluice.artifacts.java import pyspark_jars
from sluice.artifacts.spark_submit import spark_submit
from sluice.driver.lakes.jvm import iceberg_jar
from sluice.errors import ConfigurationError


def spark_home(folder: Path, version: str, scala: str = "2.13") -> Path:
    """A Spark as far as its version goes; answers its spark-submit."""
    (folder / "jars").mkdir(parents=True)
    (folder / "jars" / f"spark-core_{scala}-{version}.jar").touch()
    (folder / "jars" / "py4j-0.10.9.9.jar").touch()
    (folder / "bin").mkdir()
    (folder / "bin" / "spark-submit").touch()
    return folder / "bin" / "spark-submit"


@pytest.mark.parametrize(
    ("spark", "artifact"),
    [
        ("4.0.0", "iceberg-spark-runtime-4.0_2.13"),
        ("4.0", "iceberg-spark-runtime-4.0_2.13"),
        ("4.1.3", "iceberg-spark-runtime-4.1_2.13"),
        ("4.1.0-SNAPSHOT", "iceberg-spark-runtime-4.1_2.13"),
    ],
)
def test_by_version(spark: str, artifact: str) -> None:
    assert iceberg_runtime(spark).artifact == artifact


@pytest.mark.parametrize("spark", ["3.5.8", "4.10.0", "4.2.0", "5.0.0", "four"])
def test_a_spark_that_is_not_supported_is_named(spark: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"Spark {spark} is not .* on Spark 4.0 and 4.1"):
        iceberg_runtime(spark)


def test_the_installed_pyspark_decides() -> None:
    installed = importlib.metadata.version("pyspark")
    assert spark_version(pyspark_jars()) == installed
    assert installed_iceberg() == iceberg_runtime(installed)


def test_spark_home_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spark_home(tmp_path / "spark", "4.0.1-vendor.2")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    assert installed_iceberg() is RUNTIMES["4.0"]


def test_the_spark_of_spark_submit_decides(tmp_path: Path) -> None:
    submit = spark_home(tmp_path / "spark", "3.5.6", scala="2.12")
    link = tmp_path / "spark-submit"
    link.symlink_to(submit)
    with pytest.raises(ConfigurationError, match=r"Spark 3\.5\.6 is not supported"):
        installed_iceberg(link)


def test_the_spark_submit_that_pip_installs_is_pysparks() -> None:
    submit = spark_submit()
    assert submit is not None
    assert spark_jars(submit) == pyspark_jars()


def test_a_program_of_ones_own_gets_the_newest_runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may start any Spark, and need not be the installed pyspark's."""
    site = tmp_path / "site"
    spark_home(site / "pyspark", "4.0.1")
    (site / "pyspark/__init__.py").touch()
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setattr("sys.path", [str(site)])
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/spark-submit").touch()
    assert spark_jars(tmp_path / "bin/spark-submit") is None
    assert installed_iceberg(tmp_path / "bin/spark-submit") is RUNTIMES["4.1"]
    assert installed_iceberg() is RUNTIMES["4.0"]


def test_a_folder_of_two_sparks_is_refused(tmp_path: Path) -> None:
    spark_home(tmp_path, "4.0.0")
    (tmp_path / "jars/spark-core_2.13-4.1.3.jar").touch()
    with pytest.raises(ConfigurationError, match="has 2 spark-core jars"):
        spark_version(tmp_path / "jars")


@pytest.mark.parametrize(("client", "fits"), [("4.0.4", True), ("4.1.3", False), ("", True)])
def test_a_client_of_another_version_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client: str, fits: bool
) -> None:
    site = tmp_path / "site"
    spark_home(site / "pyspark", "4.0.1")
    (site / "pyspark/__init__.py").touch()
    if client:
        (site / "pyspark_client.dist-info").mkdir()
        text = f"Metadata-Version: 2.1\nName: pyspark-client\nVersion: {client}\n"
        (site / "pyspark_client.dist-info/METADATA").write_text(text)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setattr("sys.path", [str(site)])
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    if fits:
        assert installed_iceberg() is RUNTIMES["4.0"]
        return
    wanted = r"pyspark 4\.0\.1 and pyspark-client 4\.1\.3 .*pyspark-client==4\.0\.1"
    with pytest.raises(ConfigurationError, match=wanted):
        installed_iceberg()


def test_the_jar_has_what_the_fence_needs() -> None:
    """Iceberg's own hook for it came after 1.9; every runtime of ours must have it."""
    with zipfile.ZipFile(iceberg_jar("")) as jar:
        assert "org/apache/iceberg/SnapshotAncestryValidator.class" in jar.namelist()
