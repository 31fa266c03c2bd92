"""The lease id of `sluice tier`: one of an installation and a table, and of one living process."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from sluice.client.leases.tier_lease import tier_lease_id
from tests.support.programs.no_home import take_home

HOLD = """
import sys
from sluice.client.leases.tier_lease import tier_lease_id
with tier_lease_id(7) as lease_id:
    print(lease_id, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "sluice"


def new_id(table_id: int = 7) -> str:
    with tier_lease_id(table_id) as lease_id:
        return lease_id


def test_it_is_stable_for_an_installation_and_a_table(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = new_id()
    assert new_id() == first
    assert first == f"sluice-tier-{(state / 'installation').read_text()}-7"
    assert new_id(8) == f"{first[:-1]}8"
    assert [path.name for path in state.iterdir()] == ["installation"]
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    assert new_id() != first


@pytest.mark.usefixtures("state")
def test_each_living_process_has_its_own_and_a_killed_one_has_none() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        stable = other.stdout.readline().strip()
        with tier_lease_id(7) as second, tier_lease_id(7) as third:
            assert (second, third) == (f"{stable}.2", f"{stable}.3")
        other.kill()
    assert new_id() == stable


def test_an_installation_id_that_was_not_written_whole_is_made_again(state: Path) -> None:
    state.mkdir()
    (state / "installation").write_text("0f3c")
    assert new_id() == new_id() != "sluice-tier-0f3c-7"


def test_without_a_folder_it_is_random(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert new_id() != new_id()
    assert "table id 7: the lease gets a random id: " in caplog.text
    monkeypatch.delenv("XDG_STATE_HOME")
    take_home(monkeypatch)
    assert new_id().startswith("sluice-tier-")
