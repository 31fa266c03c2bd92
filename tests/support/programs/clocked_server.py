"""A server process whose time a test owns: nobody waits ten minutes.

Its clock stands in a file, and stands still until the test moves it.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from sluice.cli.terminal.logs import configure
from sluice.cli.terminal.options import configuration
from sluice.server.cluster import EmbeddedCluster
from tests.support.programs.processes import ServerProcess

FIRST_MS = 1_700_000_000_000


class FileClock:
    """Both kinds of time, as a file says it: for every process that reads the file."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def move(self, ms: int) -> None:
        new = self._file.with_name(f"{self._file.name}.new")
        new.write_text(str((self.now_ms() if self._file.exists() else FIRST_MS) + ms))
        new.replace(self._file)  # a reader finds the old time or the new one

    def now_ms(self) -> int:
        return int(self._file.read_text())

    def monotonic_s(self) -> float:
        return self.now_ms() / 1000

    def sleep(self, seconds: float) -> None:
        raise AssertionError(f"nobody sleeps here, least of all {seconds} s")


class ClockedServerProcess(ServerProcess):
    """The embedded server as a process; ``clock`` is its time, which the test moves."""

    command = (sys.executable, "-m", "tests.support.programs.clocked_server")

    def __init__(self, data_dir: Path, env: Mapping[str, str] | None = None) -> None:
        super().__init__(data_dir, env)
        self.clock = FileClock(clock_file(data_dir))
        self.clock.move(0)


def clock_file(data_dir: Path) -> Path:
    return data_dir.parent / f"{data_dir.name}.clock"


def main() -> None:
    """Serves until it is killed."""
    options = argparse.ArgumentParser()
    options.add_argument("--data-dir", type=Path, required=True)
    options.add_argument("--listen", required=True)
    given = options.parse_args()
    configure("console")
    settings = {"server.data_dir": str(given.data_dir), "server.listen": given.listen}
    clock = FileClock(clock_file(given.data_dir))
    with EmbeddedCluster(configuration(None, settings).server, clock) as cluster:
        print(f"ready at {cluster.address}", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
