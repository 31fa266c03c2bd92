"""Processes that end while they are looked at."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.support.programs.living import lives, living

MARK = "LIVING_OF"


@contextmanager
def a_program(mark: str, code: str = "input()") -> Iterator[subprocess.Popen[bytes]]:
    """It says a line when it runs and ends when its input ends."""
    with subprocess.Popen(
        [sys.executable, "-S", "-c", f"print('here', flush=True); {code}"],
        env={**os.environ, MARK: mark},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"
        yield process
        process.kill()


def test_what_a_process_was_can_be_read_when_it_has_ended(tmp_path: Path) -> None:
    mark = str(tmp_path)
    with a_program(mark) as process:
        [found] = living(lambda told: told.get(MARK) == mark)
        assert (found.pid, found.command[0]) == (process.pid, sys.executable)
    assert "python" in found.name
    assert "-c" in found.command
    assert living(lambda told: told.get(MARK) == mark) == []


def test_a_zombie_does_not_live(tmp_path: Path) -> None:
    with a_program(str(tmp_path)) as process:
        looked_at = psutil.Process(process.pid)
        assert lives(looked_at)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert looked_at.status() == psutil.STATUS_ZOMBIE
        assert not lives(looked_at)
        assert living(lambda told: told.get(MARK) == str(tmp_path)) == []
    assert not lives(looked_at)
