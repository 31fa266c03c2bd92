"""Which Java and which jars of Spark are used, and what is said without them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice.artifacts.java import java_version, pyspark_jars
from sluice.errors import ConfigurationError
from tests.support.harness.java import java_that


def test_jars_of_spark_are_found_without_importing_it() -> None:
    assert any(pyspark_jars().glob("hadoop-client-api-*.jar"))


def test_spark_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars/py4j-0.10.9.9.jar").touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert pyspark_jars() == tmp_path / "jars"


def test_version_of_the_java_that_is_here() -> None:
    assert java_version() >= 17


@pytest.mark.parametrize(
    ("line", "version"),
    [('openjdk version "21.0.1" 2023-10-17', 21), ('openjdk version "17" 2021-09-14', 17)],
)
def test_versions_are_read(
    line: str, version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java_that(f"echo '{line}' >&2", tmp_path, monkeypatch)
    assert java_version() == version


@pytest.mark.parametrize(
    ("does", "said"),
    [
        (
            """echo 'java version "1.8.0_392"' >&2""",
            r"17 or newer is needed, but .*/bin/java \(from JAVA_HOME\) is Java 8:",
        ),
        (
            """echo 'openjdk version "11.0.2"' >&2""",
            r"is Java 11: install Java 17, or set JAVA_HOME to its",
        ),
        ("echo 'no licence'; exit 1", r"prints no version, but 'no licence'"),
    ],
)
def test_an_unfit_java_is_named(
    does: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java_that(does, tmp_path, monkeypatch)
    with pytest.raises(ConfigurationError, match=said):
        java_version()


def test_a_missing_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(
        ConfigurationError, match=r"needed, but JAVA_HOME=.* has no bin/java: install"
    ):
        java_version()


def test_no_java_on_the_path_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match="there is no java on the PATH, and JAVA_HOME is"):
        java_version()
