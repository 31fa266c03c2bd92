"""Where the jars of a real Fluss come from, and what is said when they do not come."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from sluice.errors import ConfigurationError
from tests.support.fluss.fluss_jars import SERVER, VARIABLE, default_folder, fetch_jars
from tests.support.fluss.real_fluss import main
from tests.support.harness.java import Pauses, java_that


def test_the_folder_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_FLUSS_JARS", str(tmp_path))
    assert default_folder() == tmp_path


def test_a_refused_fetch_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java_that(
        "echo 'Server access error: refused'; exit 1", tmp_path / "home", monkeypatch, version=17
    )
    said: list[str] = []
    with pytest.raises(ConfigurationError, match=r"access error: refused; or set SLUICE_FLUSS"):
        fetch_jars(tmp_path / "jars", said.append, clock=Pauses())
    assert said == [f"fetching {SERVER.name} (86 MB, once) to {tmp_path / 'jars'}"]


def run(home: Path, *arguments: str) -> tuple[int, str]:
    """As ``python -m tests.support.fluss.real_fluss``; the output's words on one line."""
    result = CliRunner().invoke(main, ["--home", str(home / "home"), *arguments])
    return result.exit_code, " ".join(result.output.split())


def test_the_jars_of_another_version_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    code, told = run(tmp_path, "--version", "1.0.0")
    assert code == 1
    assert told == (
        "Error: Fluss 1.0.0 cannot be run: fluss-server-1.0.0.jar and fluss-lake-iceberg-1.0.0.jar"
        " (org.apache.fluss:fluss-server:1.0.0, org.apache.fluss:fluss-lake-iceberg:1.0.0) not"
        f" found in {tmp_path}. Sluice downloads 0.9.1-incubating only; copy the jars of 1.0.0"
        " there, or set SLUICE_FLUSS_JARS to a folder that has them"
    )
    (tmp_path / "fluss-lake-iceberg-1.0.0.jar").touch()
    assert "fluss-server-1.0.0.jar (" in run(tmp_path, "--version", "1.0.0")[1]


def test_another_version_is_run_with_its_own_jars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty jar has no server, so ZooKeeper ends at once, and the message has its log."""
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    (tmp_path / "fluss-server-1.0.0.jar").touch()
    code, told = run(tmp_path, "--version", "1.0.0", "--no-lake")
    assert code == 1
    assert "the Fluss zookeeper server exited with code 1" in told
    assert "fluss-server" not in told
