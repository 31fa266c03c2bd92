"""An embedded server of a process of its own, tables with rows, and waits until they are due."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from bench import data
from bench.reference import LEGACY
from sluice.client import Client
from sluice.config import Config, load_config
from sluice.model import Claim, Reason, TablePath
from tests.support.fluss.table_creation import create_table

BUCKETS = 4
DUE_S = 60.0


@contextmanager
def server(data_dir: Path, layout: str = LEGACY) -> Iterator[tuple[str, int]]:
    """Runs ``sluice serve`` as a process. Yields its address and pid.

    :param layout: of the lake tables. The ratios of all commits are those of legacy ones.
    """
    command = [str(Path(sys.executable).with_name("sluice")), "serve", "--data-dir", str(data_dir)]
    command += ["--listen", "grpc://127.0.0.1:0"]
    environment = os.environ | {"SLUICE_DATALAKE_ICEBERG_LAYOUT": layout}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search(r"grpc://[\w.:\[\]]+\d", line):
                yield found.group(), process.pid
                return
        raise SystemExit("the server did not start")
    finally:
        process.terminate()
        process.wait(30)


def hadoop_config(
    address: str, lake: Path, settings: Mapping[str, str] = MappingProxyType({})
) -> Config:
    """The configuration of rounds that tier a server's tables into a folder.

    :param lake: the warehouse of a Hadoop catalog.
    :param settings: further ones; they win.
    """
    overrides = {
        "client.bootstrap": address,
        "datalake.iceberg.type": "hadoop",
        "datalake.iceberg.warehouse": str(lake),
        **settings,
    }
    return load_config(environment=os.environ, overrides=overrides)


def load(client: Client, path: TablePath, rows: int, lake: Path, buckets: int = BUCKETS) -> None:
    create_table(client, path, data.descriptor(buckets), lake)
    with client.log_writer(path) as writer:
        for batch in data.batches(rows):
            writer.write(batch)


def claim_when_due(client: Client, path: TablePath) -> Claim:
    """Claims a table as soon as the coordinator assigns it: Apache Fluss has timers of a second."""
    deadline = time.monotonic() + DUE_S
    while (claim := client.tiering.claim([path])) is None:
        if time.monotonic() > deadline:
            raise SystemExit(
                f"{path}: the coordinator did not assign the table within {DUE_S:.0f} s"
            )
        time.sleep(0.05)
    return claim


def wait_until_due(client: Client, path: TablePath) -> None:
    claim = claim_when_due(client, path)
    released = Reason.from_text("the benchmark only looked whether it is due")
    client.tiering.release(claim, released)
