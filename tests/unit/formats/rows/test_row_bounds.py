"""Broken rows never make a kernel read outside of them: not one byte, before or behind."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]


def guarded(seed: int, cases: int) -> tuple[int, int]:
    """Cases read and refused, in a process that such a read would kill."""
    command = [sys.executable, "-m", "tests.support.tables.guarded_rows", str(seed), str(cases)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr}"
    found = re.fullmatch(r"read (\d+), refused (\d+)\n", done.stdout)
    assert found
    return int(found[1]), int(found[2])


def test_no_read_leaves_a_broken_row() -> None:
    read, refused = guarded(1, 2000)
    assert read > 100
    assert refused > 100


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 4))
def test_no_read_leaves_any_of_many_broken_rows(seed: int) -> None:
    assert sum(guarded(seed, 50_000)) == 50_000
