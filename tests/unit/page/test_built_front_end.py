"""The built front end: what its sources and its lock file give, small, and its own tests."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sluice.page.app import STATIC
from tests.support.programs.processes import ROOT

FRONT_END = ROOT / "frontend"
COMPRESSED_BYTES_MAX = 300_000
TIMEOUT_S = 280


def npm(*words: str) -> subprocess.CompletedProcess[str]:
    """Runs npm of the lock file's Node.js; it has to succeed."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["npm", "--prefix", str(FRONT_END), *words],
        env={**os.environ, "PATH": programs, "NO_COLOR": "1", "CI": "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return done


def files_of(folder: Path) -> dict[str, bytes]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.mark.slow
def test_the_sources_give_the_built_files(tmp_path: Path) -> None:
    npm("run", "--silent", "build", "--", "--outDir", str(tmp_path), "--emptyOutDir")
    built, kept = files_of(tmp_path), files_of(STATIC)
    assert [*built] == [*kept], "run `make page`, and commit sluice/page/static"
    assert [name for name in built if built[name] != kept[name]] == [], "run `make page`"


def test_the_built_files_are_small() -> None:
    sizes = {name: len(gzip.compress(text, 9, mtime=0)) for name, text in files_of(STATIC).items()}
    assert sum(sizes.values()) <= COMPRESSED_BYTES_MAX, sizes


def test_the_built_page_names_its_own_files_only() -> None:
    """Relative ones, because Airflow serves the page below a path of its own."""
    text = (STATIC / "index.html").read_text()
    named = re.findall(r'(?:src|href)="([^"]+)"', text)
    assert len(named) >= 2
    for name in named:
        assert name.startswith(("./", "data:")), name
        assert name.startswith("data:") or (STATIC / name).is_file(), name
    assert "<style" not in text, "the page's policy forbids it"
    assert not re.search(r"<script(?![^>]*\ssrc=)", text), "the page's policy forbids it"


def test_the_lock_file_has_checksums_and_no_addresses() -> None:
    lock = json.loads((FRONT_END / "package-lock.json").read_text())
    packages = {name: entry for name, entry in lock["packages"].items() if name}
    assert len(packages) > 100
    assert [name for name, entry in packages.items() if "resolved" in entry] == []
    assert [name for name, entry in packages.items() if "integrity" not in entry] == []
    assert "omit-lockfile-registry-resolved=true" in (FRONT_END / ".npmrc").read_text().split()


def test_versions_are_exact() -> None:
    package = json.loads((FRONT_END / "package.json").read_text())
    wanted = package["dependencies"] | package["devDependencies"]
    assert [name for name, text in wanted.items() if not re.fullmatch(r"\d+\.\d+\.\d+", text)] == []


@pytest.mark.slow
def test_the_front_end_passes_its_own_tests() -> None:
    done = npm("test", "--silent")
    assert re.search(r"Tests\s+\d+ passed", done.stdout), done.stdout[-2000:]
