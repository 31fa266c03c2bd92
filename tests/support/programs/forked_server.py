"""The embedded server as a process that is forked from one which has loaded everything already.

A test that kills a hundred servers would else spend most of its time on their imports. It is a
process of its own all the same: what a kill takes from it is gone.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import psutil

_PRELOADED = [
    "sluice.server.cluster",
    "sluice.formats.kernels.compiled",
    "tests.support.programs.forked_server",
]
_START_S = 180.0


class NotStarted(AssertionError):
    """A server that was dead before it was ready."""

    def __init__(self, exit_code: int, log: str) -> None:
        super().__init__(f"no server came up, exit code {exit_code}:\n{log}")
        self.exit_code = exit_code


class ForkedServer:
    """One data directory and the server on it, which may be killed and started again."""

    def __init__(self, data_dir: Path, **settings: Any) -> None:
        """:param settings: fields of ``ServerConfig``."""
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(_PRELOADED)
        self._data_dir = data_dir
        self._settings = settings
        self._log = data_dir.parent / f"{data_dir.name}.log"
        self._process: Any = None
        self._dying = threading.Lock()  # the exit code can be read once only
        self.address = ""

    def start(self, failpoints: str = "", **settings: Any) -> str:
        """Starts it on a free port and waits until it is ready; its address.

        :param failpoints: as in ``SLUICE_FAILPOINTS``.
        :raises NotStarted: it died before.
        """
        assert self._process is None, "it runs already"
        here, there = self._context.Pipe(duplex=False)
        with here:
            self._process = self._context.Process(
                target=_serve,
                args=(str(self._data_dir), str(self._log), failpoints, there),
                kwargs=self._settings | settings,
                daemon=True,
            )
            self._process.start()
            there.close()
            try:
                ready = here.poll(_START_S)
                self.address = here.recv() if ready else ""
            except EOFError:  # it died before
                self.address = ""
        if not self.address:
            self.kill_running()
            raise NotStarted(self.wait_until_dead(), self.log_text[-3000:])
        return self.address

    @property
    def runs(self) -> bool:
        return self._process is not None and not wait([self._process.sentinel], 0)

    @property
    def is_stopped(self) -> bool:
        """Whether a SIGSTOP holds it."""
        return psutil.Process(self._process.pid).status() == psutil.STATUS_STOPPED

    def wait_until_dead(self, timeout_s: float = 180) -> int:
        """Waits for a death that is under way; the exit code. Any thread may call it."""
        assert wait([self._process.sentinel], timeout_s), f"it lives on after {timeout_s} s"
        with self._dying:
            self._process.join(timeout_s)
        return int(self._process.exitcode)

    def kill_running(self) -> None:
        """SIGKILL, while others may wait for its death."""
        with contextlib.suppress(ProcessLookupError), self._dying:
            self._process.kill()

    def kill(self) -> None:
        """SIGKILL, if it lives; it can be started again. Nobody may wait for it meanwhile."""
        if self._process is None:
            return
        self.kill_running()
        self.wait_until_dead()
        self._process.close()
        self._process = None

    @property
    def log_text(self) -> str:
        """What all its servers have logged."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""


def _serve(
    data_dir: str, log: str, failpoints: str, ready: Connection, **settings: Any
) -> None:  # pragma: no cover - in another process
    """Serves until it is killed; logs to a file."""
    from sluice import failpoints as places
    from sluice.config import ServerConfig
    from sluice.server.cluster import EmbeddedCluster

    with Path(log).open("ab") as target:
        for number in (1, 2):
            os.dup2(target.fileno(), number)
    places._armed = places.parse(failpoints)
    config = ServerConfig(data_dir=data_dir, listen="grpc://127.0.0.1:0", max_workers=8)
    cluster = EmbeddedCluster(replace(config, **settings))
    ready.send(cluster.start())
    multiprocessing.Event().wait()
