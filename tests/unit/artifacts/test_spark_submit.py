"""Where spark-submit is looked for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sluice.artifacts.spark_submit import spark_submit


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_on_the_path_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = program(tmp_path / "spark-submit")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert spark_submit() == found
    assert spark_submit(str(found)) == found


def test_beside_python_where_the_path_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert spark_submit() == Path(sys.executable).with_name("spark-submit")


def test_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spark3-submit").write_text("not a program")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert spark_submit("spark3-submit") is None
    assert spark_submit(f"{tmp_path}/spark3-submit") is None
