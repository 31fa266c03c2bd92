"""Tiers a primary-key table to Iceberg: first its KV snapshots, then a changelog.

Two million keys, then a million operations: 70 % updates, 25 % inserts, 5 % deletes. The cost of a
round includes this process and one JVM, which rounds of another table have warmed up. The server is
another process and is measured separately. The reference is one pyarrow ParquetWriter that writes
the same columns as rows of a log (``bench.reference``). A changelog counts changes: an update is
two.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.measure import Cost, Line, report
from bench.reference import reported_rate
from bench.rounds.keyed import BUCKETS, Rounds, operate, tables
from sluice.model import TablePath
from sluice.rounds.records.result import RoundResult

KEYS_MAX = 2_000_000
OPERATIONS_MAX = 1_000_000
PATH = TablePath("bench", "keyed")


def run(rows: int) -> None:
    keys, operations = min(rows, KEYS_MAX), min(rows // 2, OPERATIONS_MAX)
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as tmp:
        home = Path(tmp)
        limit = reported_rate(keys, home)
        with tables(home, {PATH: keys}) as rounds:
            before = _log_end(rounds)
            found, result = rounds.round(PATH)
            assert result.rows == keys, result
            _report("snapshot_to_iceberg", "rows", found, result, keys, limit, f"{keys:,} rows")
            operate(rounds.client, PATH, operations, keys)
            changes = _log_end(rounds) - before
            found, result = rounds.round(PATH)
            text = f"{operations:,} operations, {changes:,} changes, {result.rows:,} rows written"
            _report("changelog_to_iceberg", "changes", found, result, changes, limit, text)


def _log_end(rounds: Rounds) -> int:
    info = rounds.client.admin.table_info(PATH)
    ends = rounds.client.tiering.latest_offsets(PATH, info.table_id, None, range(BUCKETS))
    return sum(ends.values())


def _report(
    name: str, what: str, found: Cost, result: RoundResult, count: int, limit: float, text: str
) -> None:
    m = count / 1e6
    value = m / found.cpu_s
    text = f"pyarrow's zstd Parquet; {text}; {found.wall_s:.1f} s wall"
    report(Line(name, value, f"M {what}/core-s", value / limit, text))
    server_s = sum(found.others_s.values()) / m
    report(Line("  server_cpu", server_s, f"core-s per M {what}", None, "measured separately"))
    for phase, seconds in result.seconds.items():
        report(Line(f"  phase: {phase}", seconds, "s wall", None, ""))
