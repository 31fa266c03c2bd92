"""How ``make`` runs the tests."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.programs.processes import ROOT


def make(*words: str, **environment: str) -> str:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("FLAKY_LIST", "PYTHONHASHSEED", "MAKEFLAGS", "MAKELEVEL", "WORKERS")
    }
    done = subprocess.run(
        ["make", *words],
        cwd=ROOT,
        env=kept | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


def flaky_lists(output: str) -> list[str]:
    return re.findall(r"-m pytest .*--rerun-alone .*--flaky-list=(\S+) ", output)


def test_all_runs_of_one_make_are_judged_as_one() -> None:
    first, second = flaky_lists(make("-n", "test-full")), flaky_lists(make("-n", "test-full"))
    assert len(first) == 3
    assert len({*first, *second}) == 2
    assert not Path(first[0]).exists()


@pytest.mark.parametrize("target", ["test", "test-slow", "test-long"])
def test_runs_that_are_given_a_list_are_judged_as_one(target: str) -> None:
    assert flaky_lists(make("-n", target, FLAKY_LIST="x")) == ["x"]
    assert flaky_lists(make("-n", target, "FLAKY_LIST=x")) == ["x"]


def test_one_hash_seed_is_drawn_for_all_of_a_run(tmp_path: Path) -> None:
    shows = tmp_path / "shows.mk"
    shows.write_text("shows:\n\t@echo $$PYTHONHASHSEED\n\t@echo $$PYTHONHASHSEED\n")
    words = ("-s", "-f", "Makefile", "-f", str(shows), "shows")
    drawn = [make(*words).split() for _ in range(2)]
    assert all(first == second and 0 <= int(first) < 2**32 for first, second in drawn)
    assert drawn[0] != drawn[1]
    assert make(*words, PYTHONHASHSEED="7").split() == ["7", "7"]
