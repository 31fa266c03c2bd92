"""Starts the servers of the demo: the embedded server or Apache Fluss, and a catalog."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from demo.processes import Processes

POLL_INTERVAL_S = 0.05


@dataclass(frozen=True, slots=True)
class Kind:
    """How to start a server, and the line that it prints when it is ready."""

    title: str
    arguments: tuple[str, ...]
    """Arguments of this Python; ``{folder}`` is the folder of the demo."""
    ready: str
    """Pattern of the ready line. Its first group is the address, or what clients need."""
    start_s: float
    environment: Mapping[str, str] = field(default_factory=dict)
    misses_tables: bool = False
    """Its coordinator may miss a new table; see :mod:`tests.support.fluss.table_creation`."""


KINDS: dict[str, Kind] = {
    "embedded": Kind(
        "Start sluice serve",
        ("sluice.cli.main", "serve", "--data-dir", "{folder}/server")
        + ("--listen", "grpc://127.0.0.1:0"),
        r"sluice: ready at ([^,\s]+)",
        120,
        {"SLUICE_SERVER_KV_SNAPSHOT_INTERVAL_MS": "3000"},
    ),
    "real": Kind(
        "Start Apache Fluss 0.9.1",
        ("tests.support.fluss.real_fluss", "--home", "{folder}/fluss")
        + (
            "--conf",
            "datalake.iceberg.warehouse={folder}/lake",
            "--conf",
            "kv.snapshot.interval=3s",
        ),
        r"(fluss://[\w.:\[\]]+:\d+)",
        400,  # the first start downloads the jars
        misses_tables=True,
    ),
}


def start(kind: Kind, folder: Path, processes: Processes, name: str) -> None:
    """Starts a server whose process, and log, have that name. Returns before it answers."""
    arguments = [argument.format(folder=folder) for argument in kind.arguments]
    processes.start(name, [sys.executable, "-m", *arguments], kind.environment)


def wait(kind: Kind, processes: Processes, name: str) -> str:
    """Waits for the ready line of a started server and returns its first group.

    :raises ProcessFailed: the server ended. Has the end of its log.
    :raises TimeoutError: the server was not ready in time.
    """
    deadline = time.monotonic() + kind.start_s
    while time.monotonic() < deadline:
        processes.check(name)
        found = re.search(f"^{kind.ready}", processes.log(name).read_text(), re.MULTILINE)
        if found:
            return found[1]
        time.sleep(POLL_INTERVAL_S)
    raise TimeoutError(f"the {name} was not ready after {kind.start_s:.0f} s")
