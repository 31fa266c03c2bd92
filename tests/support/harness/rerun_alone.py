"""A pytest plugin: with ``--rerun-alone`` a failed test is run once more at the end, alone.

If it passes then, it is FLAKY and no failure; three FLAKY tests fail the run. The second run is a
process of its own, after all workers have ended, with the same seed for Hypothesis, drawn where
none is given. A test with the mark ``no_rerun``, or one that ended with a ``Finding``, is not run
again.

pytest-rerunfailures does not fit: it runs a test again at once, in the process and beside the tests
that may have disturbed it, and counts any number of such tests as passed.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.harness.findings import is_finding

FLAKY_MAX = 2
"""So many in one run are forgiven."""
RERUN_MAX = 10
"""With more failures than this something else is wrong; the others are not run again."""
RERUN_BUDGET_S = 15 * 60.0
"""Of all second tries together; what does not fit stays failed."""
OUTPUT_MAX = 8_000
"""Characters of a second failure that are shown."""
MARK = "no_rerun"
SEED = "hypothesis_seed"
_PASSED_ON = (SEED, "hypothesis_profile", "timeout")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("rerun_alone", "running failed tests again")
    group.addoption(
        "--rerun-alone",
        action="store_true",
        help="run each failed test once more at the end, alone; FLAKY if it passes then",
    )
    group.addoption(
        "--flaky-list",
        type=Path,
        metavar="FILE",
        help="names of FLAKY tests are added to this file, and those in it count, too:"
        " for several runs that are judged as one",
    )
    group.addoption("--second-try", type=Path, metavar="FILE", help=argparse.SUPPRESS)


@pytest.hookimpl(tryfirst=True)  # before Hypothesis looks for its seed
def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{MARK}: a failure is never a matter of chance")
    if hasattr(config, "workerinput"):
        vars(config.option).update(config.workerinput.get("rerun_alone", {}))
        return
    if config.getoption("second_try"):
        config.pluginmanager.register(_SecondTry(config), "rerun_alone_second_try")
    elif config.getoption("rerun_alone"):
        if vars(config.option).get(SEED, "") is None:
            setattr(config.option, SEED, str(random.randrange(2**32)))
        config.pluginmanager.register(_Judge(config), "rerun_alone_judge")


def pytest_report_header(config: pytest.Config) -> str:
    seeds = [f"PYTHONHASHSEED={os.environ.get('PYTHONHASHSEED', '')}"]
    if (seed := vars(config.option).get(SEED)) is not None:
        seeds.append(f"--hypothesis-seed={seed}")
    return f"seeds: {' '.join(seeds)}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    found = call.excinfo is not None and is_finding(call.excinfo.value)
    report.is_final = found or item.get_closest_marker(MARK) is not None  # type: ignore[attr-defined]
    return report


class _SecondTry:
    """In the process that runs one test again: nothing but a pass is a pass.

    It is noted in a file: the exit code alone may be what the test has ended its process with.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._file: Path = config.getoption("second_try")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Of a test whose worker crashed nobody knew the marks before."""
        if any(item.get_closest_marker(MARK) for item in items):
            raise pytest.UsageError(f"marked {MARK}")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        assert reporter is not None
        if session.exitstatus != pytest.ExitCode.OK:
            return
        if reporter.stats.get("passed"):
            self._file.touch()
        else:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


@dataclass(frozen=True)
class _Second:
    """How a test did alone."""

    code: int | None
    """Exit code; None: it was ended, out of time."""
    noted: bool
    """Whether pytest saw it pass."""
    seconds: float
    output: str

    @property
    def passed(self) -> bool:
        return self.code == 0 and self.noted

    @property
    def how(self) -> str:
        if self.code is None:
            return "out of time"
        if self.code == 0 and not self.noted:
            return "ended its process"
        return "passed" if self.passed else "failed again"


class _Counted(int):
    """The result of a run that pytest itself has set: equal to it, but known again."""


class _Judge:
    """Runs failed tests again when all others have ended, and sets the result of the whole."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._list: Path | None = config.getoption("flaky_list")
        self._ended: set[str] = set()
        self._first: dict[str, list[pytest.TestReport]] = {}
        self._second: dict[str, _Second] = {}
        self._earlier = 0
        self._not_run = 0

    @property
    def _flaky(self) -> list[str]:
        return [name for name, second in self._second.items() if second.passed]

    @property
    def _too_many(self) -> bool:
        return self._earlier + len(self._flaky) > FLAKY_MAX

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when not in ("setup", "call"):  # a teardown, or the crash of a worker
            self._ended.add(_name(report.nodeid))

    def pytest_sessionstart(self) -> None:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None and not reporter.showheader:  # -q
            reporter.write_line(pytest_report_header(self._config))

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """A worker of xdist knows only what was on the command line."""
        if (seed := vars(self._config.option).get(SEED)) is not None:
            node.workerinput["rerun_alone"] = {SEED: seed}

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None]:
        status = session.exitstatus
        counted = session.exitstatus = _Counted(status)
        yield
        if session.exitstatus is not counted:
            return  # somebody else has judged
        session.exitstatus = status
        if status != pytest.ExitCode.TESTS_FAILED:
            return  # all passed; or interrupted, or nothing could be collected
        if session.shouldstop or session.shouldfail:
            return  # -x
        self._not_run = session.testscollected - len(self._ended)
        self._judge(session)

    def _judge(self, session: pytest.Session) -> None:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        assert reporter is not None
        failed = [*reporter.stats.get("failed", ()), *reporter.stats.get("error", ())]
        for report in failed:
            if isinstance(report, pytest.TestReport):
                self._first.setdefault(_name(report.nodeid), []).append(report)
        self._run_again(reporter)
        if self._list is not None:
            self._earlier = _add(self._list, self._flaky)
        if self._too_many or not self._flaky:
            return
        _move(reporter, set(self._flaky))
        forgiven = sum(len(self._first[name]) for name in self._flaky)
        if forgiven == session.testsfailed and self._not_run <= 0:
            session.exitstatus = pytest.ExitCode.OK

    def _run_again(self, reporter: pytest.TerminalReporter) -> None:
        again = [
            name
            for name, reports in self._first.items()
            if not any(getattr(report, "is_final", False) for report in reports)
        ]
        if not again:
            return
        reporter.ensure_newline()
        reporter.section("failed tests, run once more alone")
        until = time.monotonic() + RERUN_BUDGET_S
        for name in again[:RERUN_MAX]:
            left_s = until - time.monotonic()
            if left_s <= 0:
                over = f"the {RERUN_BUDGET_S:.0f} s of all second tries are over"
                reporter.write_line(f"{name}: not run again: {over}")
                continue
            second = self._second[name] = _run_alone(self._config, name, left_s)
            reporter.write_line(f"{name}: {second.how} ({second.seconds:.1f} s)")
        if len(again) > RERUN_MAX:
            reporter.write_line(f"{len(again) - RERUN_MAX} more are not run again")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for name, second in self._second.items():
            if not second.passed:
                terminalreporter.section(f"second failure: {name}")
                terminalreporter.write_line(second.output[-OUTPUT_MAX:])
        if self._not_run > 0:
            total = self._not_run + len(self._ended)
            terminalreporter.write_line(f"{self._not_run} of {total} tests did not run.")
        if not self._flaky:
            return
        if not self._too_many:  # else they are shown among the failures
            for name in self._flaky:
                terminalreporter.section(f"FLAKY, first failure: {name}")
                for report in self._first[name]:
                    report.toterminal(terminalreporter._tw)
                    for title, text in report.sections:
                        terminalreporter.section(title, "-")
                        terminalreporter.write_line(text)
        terminalreporter.section("FLAKY: failed, then passed alone")
        for name in self._flaky:
            terminalreporter.write_line(f"FLAKY {name}")
        terminalreporter.write_line(
            "The next change states the cause of each in tests/FLAKY.md, and mends it."
        )
        if self._too_many:
            total = self._earlier + len(self._flaky)
            terminalreporter.write_line(
                f"{total} FLAKY tests in one run, where {FLAKY_MAX} are forgiven: it has failed."
            )


def _name(nodeid: str) -> str:
    """Without the group that xdist adds."""
    name, _, group = nodeid.rpartition("@")
    return name if name and "]" not in group else nodeid


def _move(reporter: pytest.TerminalReporter, flaky: set[str]) -> None:
    """What is FLAKY counts once, as that: not as failed, nor as passed before a failed teardown."""
    moved: dict[str, pytest.TestReport] = {}
    for category in ("passed", "failed", "error"):
        kept = []
        for report in reporter.stats.get(category, ()):
            if isinstance(report, pytest.TestReport) and _name(report.nodeid) in flaky:
                moved[_name(report.nodeid)] = report
            else:
                kept.append(report)
        reporter.stats[category] = kept
    reporter._add_stats("flaky", list(moved.values()))


def _add(file: Path, names: list[str]) -> int:
    """Adds names to the list; how many others were in it."""
    earlier = file.read_text().splitlines() if file.exists() else []
    with file.open("a") as out:
        out.writelines(f"{name}\n" for name in names)
    return len(earlier)


def _command(config: pytest.Config, name: str, noted: Path) -> list[str]:
    option = config.option
    command = [sys.executable, "-m", "pytest", name, f"--second-try={noted}", "-q"]
    command += ["-p", "no:cacheprovider", "--rootdir", str(config.rootpath)]
    if config.inipath is not None:
        command += ["-c", str(config.inipath)]
    for flag, values in (
        ("-p", option.plugins),
        ("-o", option.override_ini),
        ("-W", option.pythonwarnings),
    ):
        for value in values or ():
            command += [flag, value]
    for dest in _PASSED_ON:
        if (value := getattr(option, dest, None)) is not None:
            command.append(f"--{dest.replace('_', '-')}={value}")
    if config.pluginmanager.hasplugin("xdist"):
        command += ["-n", "0"]
    return command


def _run_alone(config: pytest.Config, name: str, timeout_s: float) -> _Second:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as output:
        noted = Path(folder, "passed")
        process = subprocess.Popen(
            _command(config, name, noted),
            cwd=config.rootpath,
            stdin=subprocess.DEVNULL,
            stdout=output,  # a file: what a test leaves running may hold its output open for ever
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code: int | None = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output.seek(0)
        said = output.read().decode(errors="replace")
        return _Second(code, noted.exists(), time.monotonic() - began, said)
