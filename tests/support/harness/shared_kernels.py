"""Packages with compiled loops inside, as a wheel installs them, and no compiler beside them."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from sluice.formats.kernels import compiled as kernels
from sluice.formats.kernels.objects import FOLDER, SOURCES

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "scripts" / "build_kernels.py"
BLOCKED = ("numba", "llvmlite", "rocksdict")


def shared_objects() -> list[Path]:
    """All that are built on this platform: once for sources, compilers and Python."""
    names = (*SOURCES, "objects.py")  # which knows the kinds of CPU
    parts = [(ROOT / "sluice/formats/kernels" / name).read_bytes() for name in names]
    compilers = [metadata.version(name) for name in ("numba", "llvmlite")]
    parts += [SCRIPT.read_bytes(), *(text.encode() for text in (*compilers, sys.version))]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part).digest())
    folder = ROOT / ".cache" / "kernels" / digest.hexdigest()[:16]
    if not (folder / "complete").exists():
        command = [sys.executable, str(SCRIPT), str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr
        (folder / "complete").touch()
    return sorted(folder.glob("*.so"))


def package_with(folder: Path, objects: list[Path]) -> Path:
    """The core as installed: with these shared objects, and where compilers cannot be imported.

    :return: the folder to put on Python's path.
    """
    shutil.copytree(
        ROOT / "sluice", folder / "sluice", ignore=shutil.ignore_patterns("__pycache__", FOLDER)
    )
    inside = folder / "sluice" / "formats" / FOLDER
    inside.mkdir()
    for path in objects:
        shutil.copy(path, inside)
    for name in BLOCKED:
        text = f"raise ModuleNotFoundError('{name} is not here', name='{name}')\n"
        (folder / f"{name}.py").write_text(text)
    return folder


def without_compiling() -> str:
    """Code for the beginning of a process that compiles: numba has this process's kernels at once.

    Compiling takes 9 CPU seconds; the cache and the messages are the product's own. The tests with
    `filled` (`test_kernel_cache.py`) and `test_it_compiles_once_and_says_so` compile.
    """
    kept = kernels.LOADED.file
    assert kept is not None
    return f"""
import pathlib, sys, types
from sluice.formats.kernels import cache as kernel_cache

read = kernel_cache.load
def build():
    import numba  # as the module does that stands here otherwise
    return read(pathlib.Path({kept!r}))
sys.modules["sluice.formats.kernels.build"] = types.SimpleNamespace(build=build)
"""
