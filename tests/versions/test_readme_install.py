"""The README's first lines, in a fresh clone and a fresh environment."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, claimed_blocks
from tests.support.programs.built_wheel import Environment, new_environment

pytestmark = pytest.mark.long
BUILD_S, INSTALL_S = 900, 900


def test_the_wheel_is_built_and_installed_by_pip(tmp_path: Path) -> None:
    [block] = claimed_blocks("README.md", __file__)
    subprocess.run(["git", "clone", "-q", str(ROOT), "clone"], cwd=tmp_path, check=True, timeout=60)
    environment = new_environment(tmp_path / "env")
    done = subprocess.run(
        ["bash", "-euc", block.content],
        cwd=tmp_path / "clone",
        env=environment.variables,
        capture_output=True,
        text=True,
        timeout=BUILD_S + INSTALL_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    installed = Environment(tmp_path / "clone/.venv")
    shown = installed.run("sluice", "--version", cwd=tmp_path)
    assert shown.stdout.startswith("sluice"), shown
    assert installed.run("sluice", "warm", cwd=tmp_path).returncode == 0
