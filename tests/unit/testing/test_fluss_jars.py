"""Where the jars of a real Fluss come from, and what is said when they do not come."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice.errors import ConfigurationError
from sluice.testing.fluss_jars import SERVER, default_folder, fetch_jars
from tests.support.java import Pauses, java_that


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
