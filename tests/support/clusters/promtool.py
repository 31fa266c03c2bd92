"""Prometheus's own checker of rules, from Debian's package; it is fetched once."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
KEPT = ROOT / ".cache/promtool"


def promtool() -> str:
    """The path of promtool. Skips the test where Debian's package cannot be had."""
    found = shutil.which("promtool") or (str(KEPT) if KEPT.exists() else _fetched())
    if found is None:
        pytest.skip("there is no promtool: install Debian's package prometheus")
    return found


def _fetched() -> str | None:
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        return None
    KEPT.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=KEPT.parent) as folder:
        fetch = ["apt-get", "download", "-qq", "prometheus"]
        if not _done(fetch, folder) and os.geteuid() == 0:
            _done(["apt-get", "update", "-qq"], folder)  # a new machine has no list of packages
            _done(fetch, folder)
        for package in Path(folder).glob("*.deb"):
            if _done(["dpkg-deb", "-x", package.name, "."], folder):
                Path(folder, "usr/bin/promtool").replace(KEPT)  # another worker may do the same
                return str(KEPT)
    return None


def _done(command: list[str], folder: str) -> bool:
    return subprocess.run(command, cwd=folder, capture_output=True, timeout=120).returncode == 0
