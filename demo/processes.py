"""Starts processes, each in its own session, and stops all of them at the end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

MARK = "SLUICE_DEMO_ID"
KILL_S = 60.0
"""Seconds that a busy system may take to end a killed process."""


class ProcessFailed(Exception):
    """A program ended early, or with an error."""


class Processes:
    """Starts programs, and stops them with all their descendants. For one thread only.

    Descendants are found by the session of the program, or by an inherited environment variable.
    """

    def __init__(self, logs: Path, environment: Mapping[str, str], cwd: Path | None = None) -> None:
        """``cwd``: working directory of the programs; by default that of this process."""
        self._logs = logs
        self._cwd = cwd
        self._mark = uuid.uuid4().hex
        self._environment = {**environment, MARK: self._mark}
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    def start(
        self, name: str, command: Sequence[str], extra: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Starts a program. Its output is written to ``NAME.log``."""
        with self.log(name).open("ab") as log:
            process = subprocess.Popen(
                command,
                cwd=self._cwd,
                env={**self._environment, **(extra or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started[name] = process
        return process

    def run(
        self, name: str, command: Sequence[str], extra: Mapping[str, str] | None, timeout_s: float
    ) -> None:
        """Starts a program and waits for its end; see :meth:`wait`."""
        self.start(name, command, extra)
        self.wait(name, timeout_s)

    def wait(self, name: str, timeout_s: float) -> None:
        """Waits for the end of a program.

        :raises ProcessFailed: it ended with an error, or not in time. Has the end of its log.
        """
        try:
            code = self._started[name].wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise ProcessFailed(
                f"{name} did not end in {timeout_s:.0f} s{self.tail(name)}"
            ) from None
        if code:
            raise ProcessFailed(f"{name} ended with exit code {code}{self.tail(name)}")

    def check(self, *names: str) -> None:
        """:raises ProcessFailed: if one of these programs has ended."""
        for name in names:
            code = self._started[name].poll()
            if code is not None:
                raise ProcessFailed(f"{name} ended with exit code {code}{self.tail(name)}")

    def log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def tail(self, name: str, lines: int = 15) -> str:
        with contextlib.suppress(OSError):
            text = self.log(name).read_text(errors="replace").rstrip()
            return ":\n" + "\n".join(text.splitlines()[-lines:]) + f"\n({self.log(name)})"
        return ""

    def alive(self) -> list[psutil.Process]:
        """Returns the living processes that this object or its programs started."""
        sessions = {process.pid for process in self._started.values()}
        return [process for process in psutil.process_iter() if self._is_ours(process, sessions)]

    def _is_ours(self, process: psutil.Process, sessions: set[int]) -> bool:
        if process.pid == os.getpid():
            return False
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                return False
            if os.getsid(process.pid) in sessions:
                return True
            return bool(process.environ().get(MARK) == self._mark)
        except (psutil.Error, OSError):
            return False

    def stop_all(self, grace_s: float = 5) -> None:
        """Sends SIGTERM to every process, waits at most ``grace_s`` seconds, and kills the rest."""
        for how, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, KILL_S)):
            deadline = time.monotonic() + wait_s
            asked: set[int] = set()
            # A process that is found late has received no signal yet.
            while (living := self.alive()) and (not asked or time.monotonic() < deadline):
                for process in living:
                    # SIGTERM once per process, also to one that has started since.
                    if process.pid not in asked or how is signal.SIGKILL:
                        with contextlib.suppress(psutil.Error):
                            process.send_signal(how)
                        asked.add(process.pid)
                self._reap()
                time.sleep(0.05)
            if not living:
                break
        self._reap()

    def _reap(self) -> None:
        for process in self._started.values():
            process.poll()
