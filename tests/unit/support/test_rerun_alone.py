"""Runs of pytest over small files: what the plugin says of them, and how they end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.programs.processes import ROOT

pytestmark = pytest.mark.slow
HEAD = """
import os, time
from pathlib import Path
import pytest
from tests.support.harness.findings import finding

def first_time(name):
    file = Path(__file__).with_name(name)
    seen = file.exists()
    file.touch()
    return not seen

def tries(name):
    with Path(__file__).with_name(name).open("a") as file:
        file.write("x")

def test_sound():
    pass
"""
FLAKY = """
def test_flaky_{n}():
    assert not first_time("{n}"), "by chance {n}"
"""
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """``run(text, *options)``: exit code and output of pytest over a file of such tests."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    def _run(text: str, *options: str) -> tuple[int, str]:
        (tmp_path / "test_small.py").write_text(HEAD + text)
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
        plugins = (
            "tests.support.harness.rerun_alone",
            "xdist.plugin",
            "tests.support.harness.crashed_workers",
            "tests.support.harness.grouped_tests",
            "pytest_timeout",
        )
        loaded = [word for name in plugins for word in ("-p", name)]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-ra", *loaded, "--rerun-alone", *options],
            cwd=tmp_path,
            # Others start slowly, and a test here starts up to five processes.
            env=kept | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            capture_output=True,
            text=True,
            timeout=200,
        )
        return done.returncode, done.stdout + done.stderr

    return _run


def closing_line(output: str) -> str:
    return output.strip().rpartition("\n")[2]


@pytest.mark.parametrize("workers", ["0", pytest.param("2", marks=pytest.mark.slow)])
def test_a_test_that_fails_once_is_flaky_and_no_failure(run: Run, workers: str) -> None:
    grouped = """
@pytest.mark.xdist_group("jvm")
@pytest.mark.parametrize("at", ["step=kill@3"])
def test_grouped(at):
    assert not first_time("grouped")
"""
    options = ("-n", workers, "--dist", "loadgroup")
    code, output = run(FLAKY.format(n=1) + grouped, *options)
    assert code == 0, output
    assert "\nFLAKY test_small.py::test_flaky_1\n" in output
    assert "\nFLAKY test_small.py::test_grouped[step=kill@3]\n" in output
    assert "by chance 1" in output, "the first traceback"
    assert closing_line(output).startswith("1 passed, 2 flaky in ")


def test_a_test_that_fails_twice_fails_the_run(run: Run) -> None:
    broken = "def test_broken():\n    tries('count')\n    assert False, 'really'\n"
    code, output = run(broken + FLAKY.format(n=1))
    assert code == 1
    assert "test_small.py::test_broken: failed again" in output
    assert "FLAKY test_small.py::test_flaky_1\n" in output
    assert closing_line(output).startswith("1 failed, 1 passed, 1 flaky in ")


def test_three_flaky_tests_fail_the_run(run: Run, tmp_path: Path) -> None:
    code, output = run("".join(FLAKY.format(n=n) for n in range(3)))
    assert code == 1
    assert [f"FLAKY test_small.py::test_flaky_{n}\n" in output for n in range(3)] == [True] * 3
    assert "3 FLAKY tests in one run" in output
    assert closing_line(output).startswith("3 failed, 1 passed in ")


def test_what_does_not_fit_into_the_common_time_stays_failed(run: Run, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "from tests.support.harness import rerun_alone\nrerun_alone.RERUN_BUDGET_S = 1.0\n"
    )
    slow = "def test_slow():\n    if first_time('s'):\n        assert False\n    time.sleep(20)\n"
    code, output = run(slow + FLAKY.format(n=1))
    assert code == 1
    assert "test_small.py::test_slow: out of time (1." in output
    assert (
        "test_small.py::test_flaky_1: not run again: the 1 s of all second tries are over" in output
    )
    assert closing_line(output).startswith("2 failed, 1 passed in ")


def test_runs_that_share_a_list_are_judged_as_one(run: Run, tmp_path: Path) -> None:
    shared = ("--flaky-list", str(tmp_path / "flaky"))
    code, output = run(FLAKY.format(n=1) + FLAKY.format(n=2), *shared)
    assert (code, closing_line(output)[:18]) == (0, "1 passed, 2 flaky "), output
    code, output = run(FLAKY.format(n=3), *shared)
    assert code == 1
    assert "3 FLAKY tests in one run" in output


def test_what_is_no_chance_is_not_run_again(run: Run, tmp_path: Path) -> None:
    text = """
@pytest.mark.no_rerun
def test_marked():
    tries("count")
    assert False

def test_finding():
    tries("count")
    with finding():
        assert 1 == 2

def test_cleaning_up_hides_no_finding():
    tries("count")
    try:
        with finding():
            assert 1 == 2
    finally:
        raise OSError("late")

def test_nor_does_an_error_that_another_one_caused():
    tries("count")
    try:
        with finding():
            assert 1 == 2
    finally:
        raise OSError("late") from KeyError("cause")

def test_pytest_fail():
    tries("count")
    with finding():
        pytest.fail("lost")

@finding(OSError)
def test_another_kind():
    tries("count")
    raise FileNotFoundError("a manifest")

@finding(OSError)
def test_any_other_kind_may_be_chance():
    if first_time("value"):
        raise ValueError("late")
"""
    code, output = run(text)
    assert code == 1
    assert (tmp_path / "count").read_text() == "xxxxxx"
    assert closing_line(output).startswith("6 failed, 1 passed, 1 flaky in ")
    assert "FileNotFoundError: a manifest" in output, "the error itself is shown"


def test_a_timeout_a_setup_and_a_teardown_that_fail_once(run: Run) -> None:
    slow = (
        "@pytest.mark.timeout(0.5)\n@finding()\n"
        "def test_slow():\n    if first_time('s'): time.sleep(60)\n"
    )
    around = """
@pytest.fixture
def around():
    yield
    assert not first_time("teardown")

def test_torn_down(around):
    pass
"""
    code, output = run(slow + around)
    assert (code, closing_line(output)[:18]) == (0, "1 passed, 2 flaky "), output
    code, output = run(around.replace("yield", "assert not first_time('setup')"))
    assert (code, closing_line(output)[:18]) == (0, "1 passed, 1 flaky "), output


CRASH = """
{mark}
def test_crash_{n}():
    tries("crashes_{n}")
    if first_time("crash_{n}") or {always}: os._exit(3)
"""
OTHERS = [f"\ndef test_other_{n}(): pass\n" for n in range(12)]
GROUP = [f'\n@pytest.mark.xdist_group("g")\ndef test_grouped_{n}(): pass\n' for n in range(3)]


def crash(n: int, mark: str = "", always: bool = False) -> str:
    return CRASH.format(n=n, mark=mark, always=always)


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("place", [0, 6, 11])
def test_a_worker_that_crashes_once_is_flaky(run: Run, workers: str, place: int) -> None:
    """Finished tests are not handed out again, nor the one that crashed; all others still run."""
    tests = [*OTHERS[:place], crash(0), *OTHERS[place:], *GROUP]
    code, output = run("".join(tests), "-n", workers, "--dist", "loadgroup")
    assert code == 0, output
    assert "\nFLAKY test_small.py::test_crash_0\n" in output
    assert closing_line(output).startswith("16 passed, 1 flaky in ")


@pytest.mark.slow
def test_a_crash_in_a_group_leaves_the_rest_of_it(run: Run, tmp_path: Path) -> None:
    grouped = crash(0, '@pytest.mark.xdist_group("g")')
    tests = [*GROUP[:2], grouped, GROUP[2], *OTHERS]
    code, output = run("".join(tests), "-n", "2", "--dist", "loadgroup")
    assert code == 0, output
    assert closing_line(output).startswith("16 passed, 1 flaky in ")
    assert (tmp_path / "crashes_0").read_text() == "xx"


@pytest.mark.slow
def test_two_workers_that_crash_at_once_are_both_replaced(run: Run) -> None:
    tests = [crash(0), crash(1), *OTHERS]
    code, output = run("".join(tests), "-n", "2", "--dist", "loadgroup")
    assert code == 0, output
    assert closing_line(output).startswith("13 passed, 2 flaky in ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mark", "always", "tries"), [("", True, "xx"), ("@pytest.mark.no_rerun", False, "x")]
)
def test_a_crash_that_is_no_chance_fails_the_run(
    run: Run, tmp_path: Path, mark: str, always: bool, tries: str
) -> None:
    tests = [*OTHERS[:6], crash(0, mark, always), *OTHERS[6:]]
    code, output = run("".join(tests), "-n", "2", "--dist", "loadgroup")
    assert code == 1, output
    assert closing_line(output).startswith("1 failed, 13 passed in ")
    assert (tmp_path / "crashes_0").read_text() == tries


def test_a_file_that_cannot_be_read_and_a_run_cut_short_are_not_judged(run: Run) -> None:
    code, output = run("import nothing_of_this_name\n")
    assert code == 2
    assert "run once more" not in output
    code, output = run(FLAKY.format(n=1), "-x")
    assert code == 1
    assert "run once more" not in output


def test_a_second_try_that_is_skipped_is_no_pass(run: Run) -> None:
    code, output = run("def test_a():\n    assert not first_time('a')\n    pytest.skip()\n")
    assert code == 1
    assert "test_a: failed again" in output


@pytest.mark.parametrize(
    "broken",
    [
        "def test_a():\n    assert not first_time('a')\n    os._exit(0)\n",
        "@pytest.fixture\ndef torn():\n    yield\n    assert not first_time('a')\n    os._exit(0)\n"
        "def test_a(torn):\n    pass\n",
    ],
)
def test_a_second_try_that_ends_its_own_process_is_no_pass(run: Run, broken: str) -> None:
    code, output = run(broken)
    assert code == 1, output
    assert "test_a: ended its process" in output


@pytest.mark.slow
def test_a_test_that_always_ends_its_worker_well_is_no_pass(run: Run) -> None:
    code, output = run(
        "def test_a():\n    os._exit(0)\n" + "".join(OTHERS), "-n", "2", "--dist", "loadgroup"
    )
    assert code == 1, output
    assert closing_line(output).startswith("1 failed, 13 passed in ")


@pytest.mark.parametrize("tests", ["", FLAKY.format(n=1)])
@pytest.mark.parametrize(
    ("hook", "fails"),
    [("pytest_runtestloop", "testsfailed += 1"), ("pytest_sessionfinish", "exitstatus = 1")],
)
def test_a_run_that_somebody_else_has_failed_stays_failed(
    run: Run, tmp_path: Path, tests: str, hook: str, fails: str
) -> None:
    (tmp_path / "conftest.py").write_text(f"""
import pytest
@pytest.hookimpl(wrapper=True)
def {hook}(session):
    result = yield
    session.{fails}
    return result
""")
    code, output = run(tests)
    assert code == 1, output


@pytest.mark.slow
def test_a_run_that_is_not_whole_says_so_and_stays_failed(run: Run) -> None:
    options = ("-n", "2", "--dist", "loadgroup", "--max-worker-restart", "0")
    code, output = run(crash(0) + "".join(OTHERS), *options)
    assert code == 1, output
    found = re.search(r"^(\d+) of 14 tests did not run", output, re.MULTILINE)
    assert found, output
    passed = re.match(r"(\d+) passed, 1 flaky in ", closing_line(output))
    assert passed and int(found[1]) + int(passed[1]) == 13


@pytest.mark.parametrize("workers", ["0", pytest.param("2", marks=pytest.mark.slow)])
def test_both_tries_have_the_same_seeds(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: str
) -> None:
    """Also where nobody gave one and Hypothesis draws examples by chance."""
    text = """
from hypothesis import given, settings, strategies

@given(strategies.integers(0, 10**9))
@settings(max_examples=5, database=None, derandomize=False)
def draws(number):
    with Path(__file__).with_name(f"drawn_{os.getpid()}").open("a") as file:
        file.write(f"{number}-{hash('text')} ")

def test_flaky():
    draws()
    assert not first_time("flaky")
"""
    monkeypatch.setenv("PYTHONHASHSEED", "123")
    options = ("-p", "_hypothesis_pytestplugin", "-n", workers, "--dist", "loadgroup")
    code, output = run(text, *options)
    assert code == 0, output
    first, second = [file.read_text().split() for file in tmp_path.glob("drawn_*")]
    assert len(first) == 5
    assert first == second
    seed = re.search(r"PYTHONHASHSEED=123 (--hypothesis-seed=\d+)\n", output)
    assert seed, output
    (tmp_path / "flaky").unlink()
    run(text, *options, seed[1])
    assert {tuple(file.read_text().split()) for file in tmp_path.glob("drawn_*")} == {tuple(first)}


GROUPED = """
@pytest.fixture(scope="session")
def slow_to_start():
    assert first_time("started"), "by another worker"

@pytest.mark.parametrize("number", range(12))
@pytest.mark.xdist_group("shared")
def test_shares(slow_to_start, number):
    time.sleep(0.02)

@pytest.mark.parametrize("number", range(12))
def test_goes_anywhere(number):
    time.sleep(0.02)
"""


def test_a_group_goes_to_one_worker(run: Run) -> None:
    code, output = run(GROUPED, "-n", "2", "--dist", "loadgroup")
    assert code == 0, output
    assert re.search(r"25 passed", output)
