"""What a command costs counts with all processes below it, whoever waits for them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import process_tree

BUSY_S = 1.0
BUSY = f"import time\nwhile time.process_time() < {BUSY_S}: pass"
WAITED_FOR = "import subprocess, sys; subprocess.check_call([sys.executable, '-c', {busy!r}])"
FORGOTTEN = """
import os, signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # as PySpark's daemon
if not os.fork():
    exec({busy!r})
    os._exit(0)
try:
    os.wait()
except ChildProcessError:
    pass
"""
ORPHANED = """
import os
if not os.fork():
    exec({busy!r})
    os._exit(0)
os._exit(0)
"""


@pytest.mark.parametrize("program", [BUSY, WAITED_FOR, FORGOTTEN, ORPHANED])
def test_all_processes_count_once(tmp_path: Path, program: str) -> None:
    command = [sys.executable, "-c", program.format(busy=BUSY)]
    cost = tmp_path / "cost.json"
    subprocess.check_call([sys.executable, str(process_tree.__file__), str(cost), *command])
    found = json.loads(cost.read_text())["cpu_s"]
    assert BUSY_S * 0.9 < found < BUSY_S * 1.6, found


def test_the_exit_code_is_the_commands(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit(3)"]
    program = [sys.executable, str(process_tree.__file__), str(tmp_path / "cost.json")]
    assert subprocess.call([*program, *command]) == 3
