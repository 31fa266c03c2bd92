"""A user without a home, as a container's user without an entry in the list of users is."""

from __future__ import annotations

import pwd

import pytest


def take_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> pwd.struct_passwd:
        raise KeyError(uid)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
