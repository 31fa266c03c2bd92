"""Environments with other versions than the lock file's: of Python, of packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest

from tests.support.programs.built_wheel import (
    ROOT,
    UV,
    Environment,
    building,
    built_wheel,
    locked_versions,
    new_environment,
    run,
)

End = Literal["lowest-direct", "highest"]
"""uv's words: the oldest of what pyproject.toml names itself, the newest of everything."""
_RESOLVE_TIMEOUT_S = 300


def interpreter(version: str) -> str:
    """A Python of that version, such as 3.12: of the PATH, of pyenv or of uv; fails without one."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    uv = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "uv/python"
    named = shutil.which(f"python{version}")
    candidates: list[str | Path] = [
        *([named] if named else []),
        *sorted(pyenv.glob(f"versions/{version}.*/bin/python")),
        *sorted(uv.glob(f"cpython-{version}.*/bin/python")),
    ]
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    for candidate in candidates:
        done = subprocess.run([candidate, "-c", ask], capture_output=True, text=True, timeout=30)
        if done.returncode == 0 and done.stdout.strip() == version:
            return str(candidate)
    pytest.fail(f"Python {version} is needed: 'uv python install {version}', or by pyenv")


def constraints(
    folder: Path, end: End, *extras: str, python: str = sys.executable, also: str = ""
) -> Path:
    """A file with the version of each package at that end of the ranges.

    :param also: one more requirement, such as ``protobuf<7``.
    """
    target, more = folder / "constraints.txt", folder / "also.txt"
    more.write_text(also + "\n")
    command = [
        *(UV, "pip", "compile", "-q", "--resolution", end, "--python", python),
        *(word for extra in extras for word in ("--extra", extra)),
        *("--constraints", str(more), "-o", str(target), str(ROOT / "pyproject.toml")),
    ]
    run(command, _RESOLVE_TIMEOUT_S)
    return target


def wheel_at(
    folder: Path, end: End, *extras: str, python: str = sys.executable, also: str = ""
) -> Environment:
    """The wheel in a fresh environment with the versions of :func:`constraints`; pip agrees."""
    pins = constraints(folder, end, *extras, python=python, also=also)
    made = new_environment(folder / "env", python)
    made.install(f"{built_wheel()}[{','.join(extras)}]", options=["--constraints", str(pins)])
    run([UV, "pip", "check", "--python", made.python], _RESOLVE_TIMEOUT_S)
    return made


def development_at(folder: Path, python: str, end: End | None = None) -> Environment:
    """What `make setup` installs, beside this checkout's own: all extras and the tools of tests.

    :param end: which versions; None is the lock file's, as far as they exist for that Python.
    """
    pins = folder / "pins.txt"
    versions = ["--resolution", end] if end else ["--constraints", str(locked_versions())]
    command = [UV, "pip", "compile", "-q", str(ROOT / "pyproject.toml"), *versions]
    command += ["--all-extras", "--group", f"{ROOT}/pyproject.toml:dev", "--python", python]
    run([*command, "-o", str(pins)], _RESOLVE_TIMEOUT_S)
    made = new_environment(folder / "env", python)
    made.install(options=["-r", str(pins)])
    made.install("pip")  # tests run commands of pages that name it
    with building():
        made.install(options=["--no-deps", "-e", str(ROOT)])
    return made


def version_in(environment: Environment, package: str) -> str:
    """The version of a package that is installed there."""
    ask = f"import importlib.metadata as m; print(m.version({package!r}))"
    done = environment.run("python", "-c", ask, cwd=environment.home)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
