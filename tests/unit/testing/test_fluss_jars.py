"""Where the jars of a real Fluss come from, and what is said when they do not come."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice.errors import ConfigurationError
from sluice.testing.fluss_jars import LAKE_PLUGIN, SERVER, default_folder, fetch_jars, jar_name


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
    java = tmp_path / "home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\necho '....... (0kB)'\necho 'Server access error: refused'\nexit 1\n"
    )
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    said: list[str] = []
    with pytest.raises(ConfigurationError, match=r"SLUICE_FLUSS_JARS.*access error: refused"):
        fetch_jars(tmp_path / "jars", said.append)
    assert len(said) == 1
    assert "86 MB, once" in said[0]
    assert [path.name for path in (tmp_path / "jars").iterdir()] == [".lock"]


def test_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="cannot take them"):
        fetch_jars(tmp_path / "file" / "jars", lambda _: None)
