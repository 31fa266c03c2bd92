"""`sluice COMMAND` as a process that is forked from one which has loaded everything already."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Mapping
from multiprocessing.connection import wait
from pathlib import Path

import psutil

_PRELOADED = [
    "sluice.server.cluster",
    "sluice.client.client",
    "tests.support.programs.forked_command",
]


class ForkedCommand:
    """A command that runs, and may be killed at a failpoint or from outside."""

    def __init__(
        self, folder: Path, *arguments: str, env: Mapping[str, str], failpoints: str = ""
    ) -> None:
        """:param folder: for what it prints. :param failpoints: as in ``SLUICE_FAILPOINTS``."""
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_PRELOADED)
        self._printed = [folder / "stdout", folder / "stderr"]
        names = [str(path) for path in self._printed]
        self._process = context.Process(
            target=_run, args=(arguments, dict(env), failpoints, names), daemon=True
        )
        self._process.start()

    def signal(self, number: int) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    @property
    def is_stopped(self) -> bool:
        """Whether a SIGSTOP holds it."""
        return psutil.Process(self._process.pid).status() == psutil.STATUS_STOPPED

    def wait(self, timeout_s: float = 120) -> int:
        """Its exit code, or the signal that killed it as a negative number."""
        assert wait([self._process.sentinel], timeout_s), f"it runs on after {timeout_s} s"
        self._process.join()
        assert self._process.exitcode is not None
        return self._process.exitcode

    @property
    def stdout(self) -> str:
        return self._printed[0].read_text()

    @property
    def stderr(self) -> str:
        return self._printed[1].read_text()


def _run(
    arguments: tuple[str, ...], env: dict[str, str], failpoints: str, printed: list[str]
) -> None:  # pragma: no cover - in another process
    from sluice import failpoints as places
    from sluice.cli.main import cli

    for number, name in enumerate(printed, 1):
        with Path(name).open("wb") as target:
            os.dup2(target.fileno(), number)
    os.environ.update(env)
    places._armed = places.parse(failpoints)
    cli(list(arguments), prog_name="sluice")
