"""`sluice warm`: compiled ahead, or nothing to do and why."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from sluice.formats.kernels import compiled as kernels
from sluice.formats.kernels.objects import FOLDER, VARIANTS
from tests.support.harness.shared_kernels import (
    ROOT,
    package_with,
    shared_objects,
    without_compiling,
)

HAS_OBJECTS = any(each.platform == sysconfig.get_platform() for each in VARIANTS)


def warm(cache: Path, package: Path = ROOT, *, first: str = "") -> subprocess.CompletedProcess[str]:
    """Runs `sluice warm` in a process that begins with some code."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(package)}
    command = [
        sys.executable,
        "-c",
        f"{first}\nfrom sluice.cli.main import main; main()",
        "warm",
        "--loops-only",
    ]
    return subprocess.run(
        command, env=environment, cwd="/", capture_output=True, text=True, timeout=240, check=False
    )


@pytest.mark.slow
@pytest.mark.xdist_group("shared_kernels")
@pytest.mark.skipif(not HAS_OBJECTS, reason="no shared objects are built on this platform")
def test_what_the_installation_holds_is_named(tmp_path: Path) -> None:
    package = package_with(tmp_path / "package", shared_objects())
    done = warm(tmp_path, package)
    start = f"nothing to do: the installation has {package}/sluice/formats/{FOLDER}/kernels-"
    assert done.stdout.startswith(start)
    assert " (numba " in done.stdout
    assert (done.returncode, done.stderr) == (0, "")


def test_what_was_compiled_before_is_named(tmp_path: Path) -> None:
    kept = kernels.LOADED.file  # of this process, by whoever compiled it
    assert kept is not None
    (tmp_path / "sluice").mkdir()
    copy = shutil.copy(kept, tmp_path / "sluice")
    done = warm(tmp_path)
    assert done.stdout == f"nothing to do: the loops are compiled already, in {copy}\n"
    assert (done.returncode, done.stderr) == (0, "")


def test_without_a_compiler_one_line_says_what_to_install(tmp_path: Path) -> None:
    done = warm(tmp_path, package_with(tmp_path / "package", []))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "sluice: compiling Sluice's loops (this installation has none for "
        f"{sysconfig.get_platform()}) needs llvmlite, which is not installed: "
        "run `pip install 'fluss-sluice[compile]'`, then `sluice warm`\n"
    )


@pytest.mark.slow
def test_it_compiles_once_and_says_so(tmp_path: Path) -> None:
    first, second = warm(tmp_path), warm(tmp_path)
    [file] = (tmp_path / "sluice").iterdir()
    assert first.stdout.startswith("compiled in ")
    assert first.stdout.endswith(f" s, kept in {file}\n")
    assert first.stderr.startswith("compiling Sluice's loops for this machine")
    assert second.stdout.startswith("nothing to do: the loops are compiled already")
    assert second.stderr == ""


def test_what_cannot_be_kept_is_no_success(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    done = warm(tmp_path / "file", first=without_compiling())
    assert (done.returncode, done.stdout) == (2, "")
    assert "set NUMBA_CACHE_DIR to a writable folder" in done.stderr.splitlines()[-1]
