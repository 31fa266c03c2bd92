"""The wheel of this tree, and fresh environments outside of it that have it installed."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
_FOLDER = ROOT / ".cache" / "wheels"
UV = str(Path(sys.executable).with_name("uv"))
_BUILD_TIMEOUT_S = 600
_INSTALL_TIMEOUT_S = 600
_BUILT_FROM = ("sluice", "plugins", "spark_jobs", "docs/package-index.md")
_BUILT_BY = (
    "pyproject.toml",
    "setup.py",
    "MANIFEST.in",
    "LICENSE",
    "scripts/build_backend.py",
    "scripts/build_kernels.py",
)


def built_wheel() -> Path:
    """Builds sdist and then, from it, the wheel; kept in .cache under a digest of the sources."""
    kept = _FOLDER / _digest()
    with building():
        if not kept.is_dir():
            with tempfile.TemporaryDirectory(dir=_FOLDER) as name:
                out = Path(name) / "out"
                run([UV, "build", "-q", "--out-dir", str(out), str(ROOT)], _BUILD_TIMEOUT_S)
                out.replace(kept)
    [wheel] = kept.glob("*.whl")
    return wheel


def new_sdist(folder: Path) -> Path:
    """The sdist of the tree as it is now."""
    with building():
        run([UV, "build", "-q", "--sdist", "--out-dir", str(folder), str(ROOT)], _BUILD_TIMEOUT_S)
    [sdist] = folder.glob("*.tar.gz")
    return sdist


@contextmanager
def building() -> Iterator[None]:
    """One build at a time: setuptools writes its list of files into the tree."""
    _FOLDER.mkdir(parents=True, exist_ok=True)
    with (_FOLDER / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True)
class Environment:
    """A virtual environment outside the checkout."""

    home: Path

    @property
    def python(self) -> str:
        return str(self.home / "bin" / "python")

    @property
    def variables(self) -> dict[str, str]:
        """This process's, without what names the checkout; its own programs come first."""
        ours = ("SLUICE_", "AIRFLOW", "SPARK_", "PYTHON", "PYSPARK", "VIRTUAL_ENV")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
        return {
            **kept,
            "PATH": f"{self.home / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "PYSPARK_PYTHON": self.python,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }

    def install(self, *wanted: str, options: Sequence[str] = ()) -> None:
        """Installs packages by pip's names, with options of `uv pip install`."""
        command = [UV, "pip", "install", "-q", "--python", self.python, *options, *wanted]
        # Set-up has fetched most of it. Asked online, uv builds pyspark anew for each environment.
        try:
            run([*command, "--offline"], _INSTALL_TIMEOUT_S)
        except AssertionError:
            run(command, _INSTALL_TIMEOUT_S)

    def run(
        self, *words: str, cwd: Path, timeout_s: float = 120, **more: str
    ) -> subprocess.CompletedProcess[str]:
        """A program of the environment, with more variables; it may fail."""
        return subprocess.run(
            [str(self.home / "bin" / words[0]), *words[1:]],
            cwd=cwd,
            env={**self.variables, **more},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )


def new_environment(home: Path, python: str = sys.executable) -> Environment:
    """An empty virtual environment.

    :param python: an interpreter, or a version such as 3.12.
    """
    run([UV, "venv", "-q", "--python", python, str(home)], _INSTALL_TIMEOUT_S)
    return Environment(home)


def locked(*extras: str) -> list[str]:
    """What to install, and the options that hold every version to the lock file's."""
    wheel = f"{built_wheel()}[{','.join(extras)}]" if extras else str(built_wheel())
    return [wheel, "--constraints", str(locked_versions())]


def run(command: Sequence[str], timeout_s: float, env: Mapping[str, str] | None = None) -> None:
    """Runs a program; fails with what it said."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout_s, check=False, env=env
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"[-6000:]


def locked_versions() -> Path:
    """The lock file without hashes, which a wheel of a path cannot have."""
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pins = [line.split(" ")[0] for line in lines if "==" in line and not line.startswith(" ")]
    _FOLDER.mkdir(parents=True, exist_ok=True)
    target = _FOLDER / "constraints.txt"
    new = target.with_name(f"constraints-{os.getpid()}.new")
    new.write_text("\n".join(pins) + "\n")
    return new.replace(target)


def _digest() -> str:
    paths = [ROOT / name for name in _BUILT_BY if (ROOT / name).is_file()]
    for name in _BUILT_FROM:
        root = ROOT / name
        paths += [root] if root.is_file() else root.rglob("*")
    found = hashlib.sha256()
    for path in sorted(paths):
        if path.is_file() and "__pycache__" not in path.parts and ".egg-info" not in str(path):
            content = path.read_bytes()
            found.update(f"{path.relative_to(ROOT)} {len(content)}\n".encode() + content)
    return found.hexdigest()[:16]
