"""The quick tests of this checkout once more: on other Pythons, and with the oldest packages."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.harness.versions import End, development_at, interpreter
from tests.support.programs.built_wheel import ROOT

QUICK = "not slow and not long and not spark and not real_fluss"
TIMEOUT_S = 3_000
FETCH_TIMEOUT_S = 1_000


@pytest.mark.long
@pytest.mark.no_rerun  # a suite of a quarter of an hour, which names the tests that failed
@pytest.mark.timeout(TIMEOUT_S + 600)
@pytest.mark.parametrize(
    ("python", "end", "tests"),
    [("3.11", "lowest-direct", QUICK), ("3.13", None, f"{QUICK} and not airflow")],
)
def test_quick_tests_pass(python: str, end: End | None, tests: str, tmp_path: Path) -> None:
    """With the oldest packages, Airflow too; Spark and a real Fluss are tried by the wheel."""
    environment = development_at(tmp_path, interpreter(python), end)
    jars = str(tmp_path / "jars")
    fetched = environment.run(
        "sluice", "jars", "fetch", jars, cwd=tmp_path, timeout_s=FETCH_TIMEOUT_S
    )
    assert fetched.returncode == 0, fetched.stderr
    scratch = ["--basetemp", str(tmp_path / "scratch"), "-p", "no:cacheprovider"]
    command = ["python", "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", *scratch]
    done = environment.run(
        *(*command, "--no-loadscope-reorder", "-m", tests, str(ROOT / "tests")),
        cwd=ROOT,
        timeout_s=TIMEOUT_S,
        HYPOTHESIS_PROFILE="ci",
        SLUICE_TIERING_JARS=jars,
    )
    assert done.returncode == 0, done.stdout[-12_000:] + done.stderr[-2_000:]
    assert " passed" in done.stdout
