"""One cache folder for all that is kept between processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice.cache_folder import cache_folder
from sluice.errors import ConfigurationError
from tests.support.programs.no_home import take_home


def test_it_is_the_users_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "sluice"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == tmp_path / ".cache" / "sluice"


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    take_home(monkeypatch)
    with pytest.raises(ConfigurationError, match="no home .*set XDG_CACHE_HOME"):
        cache_folder()
