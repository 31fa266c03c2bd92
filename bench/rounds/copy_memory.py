"""The most memory of a process that copies a log table, by how many splits it copies at once.

`sluice tier` runs in a process of its own for each measurement. Its JVM and the server are others.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from bench import data
from bench.cluster import server
from bench.measure import Line, report
from sluice.client import connect
from sluice.config import load_config
from sluice.driver.lakes.jvm import iceberg_jar
from sluice.driver.local import tier_once
from sluice.model import TablePath
from tests.support.fluss.table_creation import create_table

SPLITS = (1, 2, 4)
"""Splits that a process copies at once."""
BUCKETS = 4


def run(rows: int) -> None:
    jars = str(iceberg_jar(os.environ.get("SLUICE_TIERING_JARS", "")).parent)
    with (
        tempfile.TemporaryDirectory(prefix="sluice-bench-") as home,
        server(Path(home) / "data") as (address, _),
        connect(address) as client,
    ):
        client.admin.create_database("bench")
        for splits in SPLITS:
            name = f"copied_by_{splits}"
            path = TablePath("bench", name)
            create_table(client, path, data.descriptor(BUCKETS), Path(home) / "lake")
            with client.log_writer(path) as writer:
                for batch in data.batches(rows):
                    writer.write(batch)
            command = [sys.executable, "-m", "bench.rounds.copy_memory", address, home, name]
            done = subprocess.run(
                [*command, str(splits), jars], capture_output=True, text=True, check=True
            )
            before, peak = (float(word) for word in done.stdout.split()[-2:])
            unit = f"MiB, {rows / 1e6:g}M rows"
            text = f"{before:.0f} MiB before the round"
            report(Line(f"copy_memory_{splits}", peak, unit, None, text))


def measure(address: str, home: str, table: str, splits: str, jars: str) -> None:
    """Tiers a table in this process, and prints its peak before and after."""
    config = load_config(
        overrides={
            "client.bootstrap": address,
            "datalake.iceberg.type": "hadoop",
            "datalake.iceberg.warehouse": f"{home}/lake",
            "tiering.parallelism": splits,
            "tiering.jars": jars,
        }
    )
    before = _peak_mib()
    assert tier_once(config, TablePath("bench", table)).outcome == "committed"
    print(before, _peak_mib())


def _peak_mib() -> float:
    [kib] = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(kib) / 1024


if __name__ == "__main__":
    measure(*sys.argv[1:])
