"""Tiers a log table of an embedded server to Iceberg.

The cost of the round includes this process and one JVM, which rounds of another table have warmed
up. The server is another process and is measured separately. The reference is one pyarrow
ParquetWriter that writes the same columns with the options that a round had at commit 45247a0.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from bench.cluster import BUCKETS, hadoop_config, load, server, wait_until_due
from bench.measure import Cost, Line, cost, report
from bench.reference import REFERENCE, reported_rate
from sluice.client import Client, connect
from sluice.config import Config
from sluice.driver.lakes.jvm import Jvm
from sluice.driver.local import tier_once
from sluice.model import TableBucket, TablePath

WARM_ROUNDS = 5


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


def run(rows: int) -> None:
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as tmp:
        home = Path(tmp)
        limit = reported_rate(rows, home)
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
    config = hadoop_config(address, lake)
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
