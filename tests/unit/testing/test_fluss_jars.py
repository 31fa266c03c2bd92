"""Where the jars of a real Fluss come from, and what is said when they do not come."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice.errors import ConfigurationError
from sluice.testing.fluss_jars import LAKE_PLUGIN, SERVER, default_folder, fetch_jars, jar_name


class Pauses:
    """Both kinds of time, which stand still; how long somebody would have slept."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now_ms(self) -> int:
        return 0

    def monotonic_s(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


def java_that(does: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of Java, a shell script."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\n{does}\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))


def test_jars_that_are_there_are_not_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for artifact in (SERVER, LAKE_PLUGIN):
        (tmp_path / jar_name(artifact)).touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    said: list[str] = []
    assert fetch_jars(tmp_path, said.append) == tmp_path
    monkeypatch.setenv("SLUICE_FLUSS_JARS", str(tmp_path))
    assert fetch_jars(say=said.append) == default_folder() == tmp_path
    assert said == []


def test_refused_fetch_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = "echo '....... (0kB)'; echo 'Server access error: refused'; exit 1"
    java_that(refused, tmp_path / "home", monkeypatch)
    said: list[str] = []
    pauses = Pauses()
    with pytest.raises(ConfigurationError, match=r"SLUICE_FLUSS_JARS.*access error: refused"):
        fetch_jars(tmp_path / "jars", said.append, clock=pauses)
    assert len(said) == 1
    assert "86 MB, once" in said[0]
    assert pauses.slept == [5, 20]
    assert [path.name for path in (tmp_path / "jars").iterdir()] == [".lock"]


def test_a_network_that_fails_for_a_moment_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jars, asked = tmp_path / "jars", tmp_path / "asked"
    fetch = f'for last; do :; done; echo jar > "${{last%/*}}/{jar_name(SERVER)}"'
    once = f"[ -e '{asked}' ] || {{ touch '{asked}'; exit 1; }}; {fetch}"
    java_that(once, tmp_path / "home", monkeypatch)
    pauses = Pauses()
    assert fetch_jars(jars, lambda _: None, [SERVER], pauses) == jars
    assert pauses.slept == [5]
    assert {path.name for path in jars.iterdir()} == {".lock", jar_name(SERVER)}


def test_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="cannot take them"):
        fetch_jars(tmp_path / "file" / "jars", lambda _: None)
