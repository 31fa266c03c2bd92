"""Under ``make`` a property test has the same examples each time, whatever ran before it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DRAWN = """
import sys
import tests.conftest
{before}
from hypothesis import given, strategies as st
found = []
@given(st.lists(st.tuples(st.integers(), st.text(), st.floats(), st.binary())))
def draw(values):
    found.append(repr(values))
draw()
print("\\n".join(found))
"""


def drawn(before: str) -> str:
    environment = {**os.environ, "HYPOTHESIS_PROFILE": "ci", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", DRAWN.format(before=before)]
    done = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_modules_that_are_loaded_change_no_example() -> None:
    one, other = drawn(""), drawn("import sluice.server.cluster")
    assert one.count("\n") >= 100
    assert one == other
