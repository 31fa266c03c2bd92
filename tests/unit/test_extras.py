"""What is not installed is named in one line, with the command that installs it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sluice.errors import MissingExtra
from sluice.extras import require


def test_what_is_installed_is_returned() -> None:
    assert require("json.decoder", "server", "a test") is sys.modules["json.decoder"]


def test_what_is_missing_is_named_with_the_command() -> None:
    with pytest.raises(MissingExtra) as caught:
        require("no_such_package.part", "server", "sluice serve")
    assert str(caught.value) == (
        "sluice serve needs no_such_package, which is not installed: "
        "run `pip install 'fluss-sluice[server]'`"
    )
    assert caught.value.details["extra"] == "server"


def test_a_module_that_imports_what_is_missing_counts_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "wants_another.py").write_text("import absent_package.inner\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(MissingExtra) as caught:
        require("wants_another", "spark", "this", then="sluice warm")
    assert str(caught.value) == (
        "this needs absent_package, which is not installed: "
        "run `pip install 'fluss-sluice[spark]'`, then `sluice warm`"
    )


def test_a_missing_module_of_ours_and_a_broken_package_are_no_missing_extra(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"sluice\.nowhere"):
        require("sluice.nowhere", "server", "this")
    (tmp_path / "too_old.py").write_text("from json import no_such_name\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ImportError, match="no_such_name"):
        require("too_old", "server", "this")
