"""A driver as a process that a test can stop, continue and kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.programs.processes import environment

PATIENCE_S = 120.0
"""For a process to come somewhere, on a machine that does much else."""


class DriverProcess:
    """A process of the project's; what it prints goes to files beside ``home``."""

    def __init__(self, command: Sequence[str], home: Path, env: Mapping[str, str]) -> None:
        number = len(list(home.glob("driver-*.out")))
        self._out, self._err = home / f"driver-{number}.out", home / f"driver-{number}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                command, stdout=out, stderr=err, stdin=subprocess.DEVNULL, env=environment(env)
            )
        self._code: int | None = None

    @property
    def said(self) -> str:
        return (self._out.read_text() + self._err.read_text())[-4000:]

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """Its exit code; negative if a signal ended it."""
        if self._code is None:
            self._code = self._process.wait(timeout_s)
        return self._code

    def wait_until_stopped(self) -> None:
        """Until a failpoint has stopped it (SIGSTOP)."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            found, status = os.waitpid(self._process.pid, os.WNOHANG | os.WUNTRACED)
            if found and os.WIFSTOPPED(status):
                return
            if found:
                self._code = self._process.returncode = os.waitstatus_to_exitcode(status)
            assert not found, f"it ended with {self._code} before its failpoint:\n{self.said}"
            assert time.monotonic() < deadline, f"it met no failpoint:\n{self.said}"
            time.sleep(0.02)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Ends it if it has not ended."""
        if self._code is None:
            self._process.kill()
            self._code = self._process.wait(PATIENCE_S)

    def printed(self) -> dict[str, Any]:
        """The JSON that it printed last."""
        content: dict[str, Any] = json.loads(self._out.read_text())
        return content
