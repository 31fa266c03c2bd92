"""Where the jars come from; the JVM itself is in tests/spark."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sluice.artifacts import jars
from sluice.artifacts.iceberg import installed_iceberg
from sluice.driver.lakes import jvm
from sluice.errors import ConfigurationError, DriverRefused
from tests.support.programs.no_home import take_home

ICEBERG = installed_iceberg()
JAR = ICEBERG.name


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder without any cache."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    return tmp_path


def put(folder: Path, name: str = JAR) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(b"")
    return folder / name


def test_the_configured_folder_is_the_only_one_looked_into(home: Path) -> None:
    put(home / ".cache/sluice/jars")
    found = put(home / "mine")
    assert jvm.iceberg_jar(str(home / "mine")) == found
    with pytest.raises(
        ConfigurationError, match=rf"tiering\.jars=.*empty: the folder has no {JAR}"
    ):
        jvm.iceberg_jar(str(home / "empty"))


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        (".cache/sluice/jars", JAR),
        (f".ivy2.5.2/cache/org.apache.iceberg/{ICEBERG.artifact}/jars", JAR),
        (".ivy2/jars", f"org.apache.iceberg_{JAR}"),
    ],
)
def test_caches_of_this_machine_are_used(home: Path, folder: str, name: str) -> None:
    found = put(home / folder, name)
    assert jvm.iceberg_jar("") == found


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    take_home(monkeypatch)
    with pytest.raises(ConfigurationError, match="set XDG_CACHE_HOME"):
        jvm.iceberg_jar("")


def test_a_user_without_a_home_may_name_the_cache(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_home(monkeypatch)
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    found = put(home / "sluice/jars")
    assert jvm.iceberg_jar("") == found


def test_without_jar_and_ivy_it_says_what_to_do(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jars, "pyspark_jars", lambda: home)
    with pytest.raises(ConfigurationError, match="is missing"):
        jvm.iceberg_jar("")


def test_a_missing_java_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(home / "mine")
    monkeypatch.setenv("JAVA_HOME", str(home / "nojava"))
    with pytest.raises(DriverRefused, match="nojava/bin/java does not start"):
        jvm.Jvm(str(home / "mine"))


def test_what_java_says_before_it_gives_up_is_told(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(home / "mine")
    java = home / "java/bin/java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'Could not reserve enough space' >&2; exit 1\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home / "java"))
    with pytest.raises(DriverRefused, match="Could not reserve enough space"):
        jvm.Jvm(str(home / "mine"))


def test_a_java_that_hangs_is_given_up(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(home / "mine")
    java = home / "java/bin/java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\nexec sleep 600\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home / "java"))
    monkeypatch.setattr(jvm, "START_TIMEOUT_S", 0.2)
    with pytest.raises(DriverRefused, match="it did not start within 0.2 seconds"):
        jvm.Jvm(str(home / "mine"))


def test_no_python_runs_between_fork_and_exec(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """gRPC's threads are started again in a forked Python, and may end it before Java begins."""
    put(home / "jars")
    forks: list[int] = []
    os.register_at_fork(before=lambda: forks.append(1))  # only Python's own fork calls it
    monkeypatch.setattr(jvm, "java", lambda: "/bin/true")
    with pytest.raises(DriverRefused, match="it exited at once"):
        jvm.Jvm(str(home / "jars"))
    assert forks == []
