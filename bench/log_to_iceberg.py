"""Tiers a log table of an embedded server to Iceberg.

The cost of the round includes this process and one JVM, which rounds of another table have warmed
up. The server is another process and is measured separately. The reference is one pyarrow
ParquetWriter that writes the same columns with the options that a round had at commit 45247a0.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench import data
from bench.measure import Cost, Line, cost, report
from sluice.client import Client, connect
from sluice.config import Config, load_config
from sluice.driver.lakes.jvm import Jvm
from sluice.driver.local import tier_once
from sluice.model import Claim, Reason, TableBucket, TablePath
from tests.support.fluss.table_creation import create_table

BUCKETS = 4
WARM_ROUNDS = 5
REFERENCE = "pyarrow"
LEGACY, CLEAN = "legacy", "clean"
REFERENCE_OPTIONS: dict[str, Any] = {
    "compression": "zstd",
    "use_dictionary": ["event", "__bucket", "__timestamp"],
    "store_schema": False,
    "store_decimal_as_integer": True,
    "version": "2.6",
}
"""What a round passed to pyarrow for these rows at commit 45247a0. They stay as they are, so that
the ratios of all commits can be compared."""
_REFERENCE_GROUP_ROWS = 512 * 1024
_BATCHES_A_STAMP = 4
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


def load(client: Client, path: TablePath, rows: int, lake: Path, buckets: int = BUCKETS) -> None:
    create_table(client, path, data.descriptor(buckets), lake)
    with client.log_writer(path) as writer:
        for batch in data.batches(rows):
            writer.write(batch)


def pyarrow_limit(
    rows: int,
    target: Path,
    options: Mapping[str, Any] = REFERENCE_OPTIONS,
    layout: str = LEGACY,
    **others: int,
) -> Cost:
    """Writes the rows with the columns of the lake, in row groups of the size that a round had.

    :param others: as of ``bench.measure.cost``.
    """
    table = _in_lake(rows) if layout == LEGACY else pa.Table.from_batches(data.batches(rows))
    known = [name for name in options["use_dictionary"] if name in table.column_names]
    options = {**options, "use_dictionary": known}
    with cost(**others) as found, pq.ParquetWriter(target, table.schema, **options) as writer:
        for first in range(0, rows, _REFERENCE_GROUP_ROWS):
            group = table.slice(first, _REFERENCE_GROUP_ROWS)
            writer.write_table(group, row_group_size=group.num_rows)
    return found


def _in_lake(rows: int) -> pa.Table:
    """The rows as those of one bucket; a few batches arrived at the same time."""
    numbers = np.arange(rows)
    stamps = 1_700_000_000_000_000 + numbers // (_BATCHES_A_STAMP * data.BATCH_ROWS) * 1000
    system = {
        "__bucket": pa.array(np.zeros(rows, np.int32)),
        "__offset": pa.array(numbers),
        "__timestamp": pa.array(stamps).view(pa.timestamp("us", tz="UTC")),
    }
    table = pa.Table.from_batches(data.batches(rows))
    for name, column in system.items():
        table = table.append_column(pa.field(name, column.type, nullable=False), column)
    return table


def read_only(client: Client, path: TablePath, servers: Mapping[str, int]) -> Cost:
    """Fetches and decodes the complete log and discards it: the cost of reading alone."""
    info = client.admin.table_info(path)
    reader = client.log_reader(path)
    ends = client.tiering.latest_offsets(path, info.table_id, None, range(BUCKETS))
    with cost(**servers) as found:
        for bucket, end in ends.items():
            for _ in reader.read(TableBucket(info.table_id, None, bucket), -2, end):
                pass
    return found


def _warm(config: Config, client: Client, jvm: Jvm, number: int, lake: Path) -> Cost:
    """Runs a round of 100,000 rows. The first one is cold."""
    path = TablePath("bench", f"warm_{number}")
    load(client, path, 100_000, lake)
    wait_until_due(client, path)
    with cost() as found:
        tier_once(config, path, jvm=jvm)
    return found


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


def run(rows: int) -> None:
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as tmp:
        home = Path(tmp)
        reference = pyarrow_limit(rows, home / "reference.parquet")
        limit = rows / reference.cpu_s / 1e6
        report(Line("pyarrow_zstd_parquet", limit, "M rows/core-s", None, "the reference"))
        with server(home / "fluss") as (address, pid):
            measure(home / "lake", address, {"server": pid}, rows, limit)


def measure(
    lake: Path,
    address: str,
    servers: Mapping[str, int],
    rows: int,
    limit: float,
    prefix: str = "",
) -> None:
    """Loads, reads and tiers a table, and prints the cost of each.

    :param lake: folder of the Hadoop catalog.
    :param servers: pids of the cluster, measured separately.
    :param limit: million rows per core-second of the reference.
    :param prefix: prefix of the names of all lines.
    """
    config = load_config(
        environment=os.environ,
        overrides={
            "client.bootstrap": address,
            "datalake.iceberg.type": "hadoop",
            "datalake.iceberg.warehouse": str(lake),
        },
    )
    big = TablePath("bench", "events")
    with connect(config.client) as client, Jvm(config.tiering.jars) as jvm:
        client.admin.create_database("bench")
        warming = [_warm(config, client, jvm, i, lake) for i in range(WARM_ROUNDS)]
        with cost(**servers) as append:
            load(client, big, rows, lake)
        reading = read_only(client, big, servers)
        wait_until_due(client, big)
        with cost(**servers) as tiering:
            result = tier_once(config, big, jvm=jvm)
        assert result.rows == rows, result
    m = rows / 1e6

    def line(name: str, found: Cost) -> None:
        value = m / found.cpu_s
        report(Line(prefix + name, value, "M rows/core-s", value / limit, REFERENCE))

    line("log_to_iceberg", tiering)
    line("log_append", append)
    line("log_read_as_arrow", reading)
    cold, warm = warming[0].wall_s, warming[-1].wall_s
    warm_text = f"round {WARM_ROUNDS} of 100,000 rows"
    report(Line(f"{prefix}first_round", cold, "s wall", cold / warm, warm_text))
    server_s = sum(tiering.others_s.values()) / m
    report(Line(f"{prefix}server_cpu", server_s, "core-s per M rows", None, "measured separately"))
    parts = {"read": reading.cpu_s, "write": tiering.cpu_s - reading.cpu_s}
    for name, cpu_s in parts.items():
        share = f"{100 * cpu_s / tiering.cpu_s:.0f} % of the round"
        report(Line(f"  where: {name}", cpu_s / m, "core-s per M rows", None, share))
    for phase, seconds in result.seconds.items():
        report(Line(f"  phase: {phase}", seconds, "s wall", None, ""))
