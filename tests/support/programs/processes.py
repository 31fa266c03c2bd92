"""The project's programs as separate processes, so that a test can kill them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.network.ports import held_port, port_of

ROOT = Path(__file__).resolve().parents[3]
SLUICE = str(Path(sys.executable).with_name("sluice"))


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This environment without failpoints of its own, with the jars that set-up fetched."""
    kept = {k: v for k, v in os.environ.items() if k != "SLUICE_FAILPOINTS"}
    kept.setdefault("SLUICE_TIERING_JARS", str(ROOT / ".cache/jars"))
    kept["PYSPARK_PYTHON"] = sys.executable
    return kept | dict(extra or {})


class ServerProcess:
    """``sluice serve`` on a data directory; start it again after a kill on the same port."""

    command: tuple[str, ...] = (SLUICE, "serve")

    def __init__(self, data_dir: Path, env: Mapping[str, str] | None = None) -> None:
        self.data_dir = data_dir
        # A round that fails here is followed by the next one; nobody waits for a back-off.
        self.env = {"SLUICE_SERVER_TIERING_BACKOFF_MS": "0", **(env or {})}
        # Its own also while it is dead: it comes back where its clients look for it.
        keeper = held_port()
        weakref.finalize(self, keeper.close)
        self.address = f"grpc://127.0.0.1:{port_of(keeper)}"
        self.process: subprocess.Popen[str] | None = None
        self.log = data_dir.parent / f"{data_dir.name}.log"

    def start(self, **env: str) -> str:
        """Starts it, waits for the line that says it is ready, answers the address."""
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [*self.command, "--data-dir", str(self.data_dir), "--listen", self.address],
                env=self.variables(env),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if "grpc://" in line:
                words = line.replace(",", " ").split()
                self.address = next(w for w in words if w.startswith("grpc://")).rstrip(".")
                return self.address
        raise AssertionError(f"the server did not start:\n{self.log.read_text()[-3000:]}")

    def variables(self, more: Mapping[str, str]) -> dict[str, str]:
        """The environment variables that it starts with."""
        return environment(self.env | dict(more))

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        return self._end(signal.SIGTERM)

    def wait_until_dead(self, timeout_s: float = 120) -> int:
        """Waits for a death that a failpoint brings; answers the exit code."""
        assert self.process is not None
        return self.process.wait(timeout_s)

    def _end(self, how: signal.Signals) -> int:
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(how)
        code = self.process.wait(120)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.process = None
        return code


@contextmanager
def served(data_dir: Path, **env: str) -> Iterator[ServerProcess]:
    """A server process that is gone when the block ends."""
    server = ServerProcess(data_dir, env)
    server.start()
    try:
        yield server
    finally:
        server.kill()


def sluice(*arguments: str, timeout_s: float = 120, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs ``sluice ARGUMENTS`` to its end, whatever that is."""
    return subprocess.run(
        [SLUICE, *arguments],
        env=environment(env),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def wait_for(what: str, condition: object, timeout_s: float = 60) -> None:
    """Waits until ``condition()`` is true; other processes leave no better way than looking."""
    assert callable(condition)
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s} s for {what}"
        time.sleep(0.05)
