"""spark-submit is read whatever it prints, and nothing that it has started outlives its task.

A shell script stands for spark-submit: it prints the file that it gets as its application, and
starts processes that have to be found again.
"""

from __future__ import annotations

import json
import logging
import os
import random
import resource
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from sluice.masking import know
from sluice_airflow.airflow_api.airflow_names import AirflowException, AirflowTaskTimeout
from sluice_airflow.submit.pipe import LINE_MAX, Leash, end_processes
from sluice_airflow.submit.process_group import GroupSubmitHook

pytestmark = pytest.mark.airflow
GONE_S = 10.0
PRINT = 'for last; do :; done; cat "$last"'
START = """\
sleep {mark} >/dev/null 2>&1 &
(trap '' TERM; sleep {mark}) >/dev/null 2>&1 &
set -m
sleep {mark} >/dev/null 2>&1 &
set +m
"""
"""A child, one that ignores SIGTERM, and one in a process group of its own, as Python's workers."""
APART = "setsid sleep {mark} >/dev/null 2>&1 &"
"""One in a session of its own. It is found as long as its parent runs."""
OUTPUTS = 200


class Scene:
    """A spark-submit of this test, and the processes that it starts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = f"60{os.getpid()}.{time.monotonic_ns() % 1_000_000:06d}"

    def program(self, *lines: str) -> None:
        path = self.folder / "bin/spark-submit"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(["#!/bin/bash", *lines, ""]).format(mark=self.mark))
        path.chmod(0o755)

    def hook(self) -> GroupSubmitHook:
        return GroupSubmitHook(conn_id="scene")

    def alive(self) -> list[str]:
        """Its processes that run."""
        found = []
        for one in psutil.process_iter(["cmdline", "status"]):
            words = one.info["cmdline"] or []
            if self.mark in words and one.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(" ".join(words))
        return found

    def wait(self, is_so: Callable[[], bool], within_s: float = GONE_S) -> bool:
        until = time.monotonic() + within_s
        while not is_so():
            if time.monotonic() > until:
                return False
            time.sleep(0.05)
        return True


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    made = Scene(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("AIRFLOW_CONN_SCENE", json.dumps({"conn_type": "spark", "host": "local"}))
    return made


class Said:
    """A log that keeps what it is given, or fails with it."""

    def __init__(self, error: BaseException | None = None, at: str = "") -> None:
        """:param at: the text of the line at which it fails."""
        self.lines: list[str] = []
        self._error = error
        self._at = at

    def log(self, level: int, text: str, *values: Any) -> None:
        self.lines.append(text % values if values else text)
        if self._error is not None and self._at in self.lines[-1]:
            raise self._error

    def info(self, text: str, *values: Any) -> None:
        self.lines.append(text % values if values else text)

    debug = warning = error = info


def noise(seed: int) -> bytes:
    """Bytes of any kind: text, halves of characters, control characters, long lines, zeros."""
    draw = random.Random(seed)
    parts = [
        draw.randbytes(draw.randrange(2_000)),
        b"26/11/28 15:00:20 ERROR SparkContext: \xfc" + draw.randbytes(9),
        b"x" * draw.choice((0, 10, 3 * LINE_MAX)),
        "Gründe: \U0001f4a5".encode()[: draw.randrange(4, 14)],
        bytes(draw.randrange(50)),
        b"\r\n" * draw.randrange(3),
    ]
    draw.shuffle(parts)
    return (b"\n" * draw.randrange(2)).join(parts)


@pytest.mark.slow
def test_outputs_of_any_bytes_are_read_and_all_processes_end(scene: Scene) -> None:
    output = scene.folder / "output"
    scene.program(START, PRINT, "exit 3")
    for seed in range(OUTPUTS):
        output.write_bytes(noise(seed))
        hook, said = scene.hook(), Said()
        hook._log = said
        with pytest.raises(AirflowException):
            hook.submit(str(output))
        assert (hook.exit_code, len(hook.why_ended) < 5_000) == (3, True), seed
        assert max(map(len, said.lines)) <= 5 * LINE_MAX, seed  # one byte may become `\x00`
    assert scene.wait(lambda: not scene.alive()), scene.alive()


@pytest.mark.parametrize(
    "error",
    [
        UnicodeDecodeError("utf-8", b"\xfc", 0, 1, "a handler of the log"),
        AirflowTaskTimeout("execution_timeout"),
        AirflowException("of the provider"),
        KeyboardInterrupt(),
        SystemExit(1),
        MemoryError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_no_process_outlives_an_error(scene: Scene, error: BaseException) -> None:
    scene.program(START, APART, "echo begun", "exec sleep {mark}")
    hook = scene.hook()
    hook._log = Said(error)
    with pytest.raises(type(error)):
        hook.submit(str(scene.folder / "none"))
    assert scene.wait(lambda: not scene.alive()), scene.alive()


def test_one_that_was_cancelled_before_it_started_ends(scene: Scene) -> None:
    scene.program(START, "exec sleep {mark}")
    hook = scene.hook()
    hook.is_cancelled = lambda: True
    with pytest.raises(AirflowException):
        hook.submit(str(scene.folder / "none"))
    assert scene.wait(lambda: not scene.alive()), scene.alive()


def test_after_the_end_nothing_is_signalled(scene: Scene) -> None:
    """A process id may be that of another process by then."""
    scene.program("exit 0")
    hook = scene.hook()
    hook.submit(str(scene.folder / "none"))
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as other:
        hook._submit_sp = other
        hook.on_kill()
        assert other.poll() is None
        other.kill()


def test_the_guard_knows_its_session_from_the_start(scene: Scene) -> None:
    """Once the program has failed to start, the guard's parent is another process."""
    with Leash() as leash:
        command = leash.command([str(scene.folder / "no program")])
        with subprocess.Popen(command, stderr=subprocess.DEVNULL, **leash.words) as started:
            started.wait(60)
            guards = [
                one.info["cmdline"][-1]
                for one in psutil.process_iter(["cmdline"])
                if "sluice-guard" in (one.info["cmdline"] or [])
            ]
            assert str(started.pid) in guards
            end_processes(started)


APPLICATION = r"""
import os, sys, time
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
spark.sparkContext.parallelize(range(4), 2).map(lambda x: x + 1).collect()
sys.stdout.buffer.write(b"\xfc\x80 " + os.urandom(100_000) + b"\n")
sys.stdout.flush()
sys.stdout.buffer.write(b"\nall has begun\n")  # by itself: a pipe takes it whole
sys.stdout.flush()
time.sleep(600)
"""


@pytest.mark.spark
@pytest.mark.slow
def test_no_process_of_a_real_application_outlives_an_error(scene: Scene) -> None:
    """A JVM, the driver's Python, and Python's workers in a process group of their own."""
    application = scene.folder / "application.py"
    application.write_text(APPLICATION)
    worker = psutil.Process()
    others = worker.children(recursive=True)  # such as the Spark session that tests share
    begun: list[psutil.Process] = []

    class Looks(Said):
        def log(self, level: int, text: str, *values: Any) -> None:
            if "all has begun" in (text % values if values else text):
                found = worker.children(recursive=True)
                begun.extend(process for process in found if process not in others)
            super().log(level, text, *values)

    hook = scene.hook()
    hook._log = Looks(KeyboardInterrupt(), "all has begun")
    with pytest.raises(KeyboardInterrupt):
        hook.submit(str(application))
    assert len(begun) >= 4, "the JVM, the driver, Python's daemon, a worker"

    assert scene.wait(lambda: not any(map(is_alive, begun))), begun


def is_alive(process: psutil.Process) -> bool:
    """Whether it runs. It may end between two questions."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


TASK = """
import signal, sys
from airflow.sdk.exceptions import AirflowException
from sluice_airflow.submit.process_group import GroupSubmitHook
GroupSubmitHook(conn_id="scene").submit(sys.argv[1])
"""


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM], ids=lambda one: one.name)
def test_no_process_outlives_a_task_that_is_killed(scene: Scene, sent: signal.Signals) -> None:
    scene.program(START, "exec sleep {mark}")
    command = [sys.executable, "-c", textwrap.dedent(TASK), str(scene.folder / "none")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as task:
        try:
            # the program itself, and the three that it starts
            assert scene.wait(lambda: len(scene.alive()) == 4, 60.0), scene.alive()
        finally:
            task.send_signal(sent)
    assert scene.wait(lambda: not scene.alive()), scene.alive()


def test_an_endless_line_needs_no_memory(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    scene.program("head -c 100000000 /dev/zero | tr '\\0' x")
    hook, said = scene.hook(), Said()
    hook._log = said
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    hook.submit(str(scene.folder / "none"))
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert any(line.endswith("more bytes)") for line in said.lines)
    assert max(map(len, said.lines)) < LINE_MAX + 100
    assert grown_kb < 30_000


def test_a_line_is_not_cut_within_a_secret(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """The mask finds whole secrets only, so half a secret would be shown at the cut."""
    caplog.set_level(logging.CRITICAL)
    secret = 'planted "4720" hëader'
    know([secret])
    output, size = scene.folder / "output", len(secret.encode())
    starts = [f"{'x' * (LINE_MAX - at - 5)} key {secret}, {'y' * 99}" for at in range(size)]
    output.write_text("\n".join(starts))
    scene.program(PRINT)
    hook, said = scene.hook(), Said()
    hook._log = said
    hook.submit(str(output))
    shown = [line for line in said.lines if line.endswith("more bytes)")]
    assert len(shown) == size
    assert [line[-60:] for line in shown if "plan" in line] == []
