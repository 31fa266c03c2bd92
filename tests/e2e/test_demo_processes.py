"""What the demo starts ends with the demo, whatever it did to hide."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from demo.processes import MARK, Processes, ProcessFailed
from tests.support.harness.findings import finding
from tests.support.programs.living import Living, living

ROOT = Path(__file__).resolve().parents[2]
STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = "import time; time.sleep(300)"
subprocess.Popen([sys.executable, "-c", child])
subprocess.Popen([sys.executable, "-c", child], start_new_session=True)
print("started", flush=True)
time.sleep(300)
"""


@pytest.fixture
def processes(tmp_path: Path) -> Processes:
    return Processes(tmp_path, dict(os.environ))


def until_log_has(processes: Processes, name: str, text: str) -> None:
    deadline = time.monotonic() + 120
    while text not in processes.log(name).read_text():
        assert time.monotonic() < deadline, processes.tail(name)
        time.sleep(0.02)


def test_children_and_their_own_sessions_end_even_if_they_ignore_the_request(
    processes: Processes,
) -> None:
    processes.start("stubborn", [sys.executable, "-c", STUBBORN])
    until_log_has(processes, "stubborn", "started")
    assert len(processes.alive()) == 3
    processes.stop_all(grace_s=0.2)
    assert processes.alive() == []


def test_a_program_that_ends_early_is_told_with_the_end_of_its_log(processes: Processes) -> None:
    processes.start("short", [sys.executable, "-c", "print('no disk'); raise SystemExit(3)"])
    with pytest.raises(ProcessFailed, match=r"short ended with exit code 3:\nno disk"):
        processes.wait("short", timeout_s=120)
    with pytest.raises(ProcessFailed, match="exit code 3"):
        processes.check("short")


def test_a_program_that_does_not_end_in_time_is_told(processes: Processes) -> None:
    processes.start("long", [sys.executable, "-c", "import time; time.sleep(300)"])
    with pytest.raises(ProcessFailed, match="long did not end in 0 s"):
        processes.wait("long", timeout_s=0.05)
    processes.stop_all()
    assert processes.alive() == []


def started_below(folder: Path) -> list[Living]:
    """Living processes of the demo that runs in this folder; other demos may run beside it."""
    return living(lambda told: MARK in told and told.get("TMPDIR") == str(folder))


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_an_interrupted_demo_leaves_no_process_and_no_folder(
    tmp_path: Path, how: signal.Signals
) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "demo"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as demo:
        deadline = time.monotonic() + 120
        while not (started := started_below(tmp_path)) and demo.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        demo.send_signal(how)
        output, _ = demo.communicate(timeout=120)
    assert started, output
    assert demo.returncode == 130, output
    with finding():
        assert started_below(tmp_path) == []
        assert list(tmp_path.glob("sluice-demo-*")) == []


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    done = subprocess.run(
        [sys.executable, "-m", "demo", "--keep", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 2
    assert "is not empty" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]
