"""Changes 1 % of a primary-key table in each of 100 rounds, then has every engine read the lake.

The cost of a round includes this process and its JVM, which rounds of another table have warmed up.
The server is measured separately. What a scan costs is compared with a freshly written copy: the
same rows, tiered into a table of its own by one round. Each engine answers in a process of its own;
Spark is warm, and of the others each answer is the first one. Every answer is compared with a
replay of the changes in numpy: a difference ends the benchmark with an error.

`--compaction` has the rounds compact the table, and also scans it at its last 50 rounds.
`--rows 10000000 --rounds 10 --engines none` measures rounds of 100,000 changes in a large table.
`--buckets 1 --compaction-bytes BYTES` shows a bucket that is larger than what a round rewrites.
"""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from bench.lake.lake_readers import ENGINES, SPARK
from bench.lake.lake_sizes import report_sizes
from bench.lake.measured_rounds import MeasuredRound, report_compactions, report_rounds
from bench.lake.past_scans import LAST, Past, compare_past_scans
from bench.lake.replay import Replay
from bench.lake.table_scans import Tables, compare_first_scans
from bench.measure import Line, report
from bench.rounds.keyed import BUCKETS, Rounds, descriptor, tables
from bench.server.kv_put import put
from sluice.model import TablePath
from tests.support.fluss.table_creation import create_table

TABLE, COPY = TablePath("bench", "changed"), TablePath("bench", "copy")
COMPACTION, BUDGET = "tiering.auto_compaction", "tiering.compaction_bytes"
EXPIRY = {"tiering.auto_expire_snapshot": "true", "tiering.max_round_ms": "5000"}
"""A round may take 5 s, so snapshots of the last 10 s stay at least."""
KEPT = 60
"""Snapshots that stay if old ones expire."""


def run(
    rows: int,
    rounds: int = 100,
    changed: float = 0.01,
    format_version: int = 2,
    engines: Sequence[str] = ENGINES,
    limit_s: float = 100.0,
    compaction: bool = False,
    buckets: int = BUCKETS,
    compaction_bytes: int | None = None,
    expire: bool = False,
) -> None:
    """:param rows: keys of the table.
    :param changed: the share of the keys that each round changes.
    :param format_version: Iceberg's, of the lake table.
    :param engines: those that read the lake, of ``ENGINES``.
    :param limit_s: how long one scan may take.
    :param compaction: whether the rounds compact the table.
    :param compaction_bytes: how much a round rewrites at most; None: the default.
    :param expire: whether snapshots expire after rounds, down to 60.
    :raises SystemExit: an engine's answer differs from the replay.
    """
    count = max(1, round(rows * changed))
    replay = Replay(rows)
    custom = {"iceberg.format-version": str(format_version)}
    settings = {COMPACTION: str(compaction).lower()}
    if compaction_bytes is not None:
        settings[BUDGET] = str(compaction_bytes)
    if expire:
        settings |= EXPIRY
        custom |= keeping(KEPT)
    last: deque[Past] = deque(maxlen=LAST)
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as tmp:
        home = Path(tmp)
        with tables(home, {TABLE: rows}, custom, settings, buckets) as running:
            first = running.round(TABLE)
            assert first[1].rows == rows, first
            measured = []
            for number in range(rounds):
                measured.append(change(running, replay, count, number))
                last.append(Past(TABLE, number + 1, replay.totals(), measured[-1][1]))
            text = f"{rounds} rounds of {count:,} changed keys in {rows:,}; {buckets}"
            text += f" buckets, Iceberg's format {format_version}"
            report_rounds("lake_scans", measured, text)
            report_compactions([result for _, result in measured], has_key=True)
            health = running.health(TABLE)
            report(Line("  dead_share", health.dead_share, "of rows", None, str(health)))
            text = f"{rows:,} rows from KV snapshots, {first[0].wall_s:.1f} s wall"
            report(Line("  first_round", first[0].cpu_s, "core-s", None, text))
            if engines:
                copy = write_copy(running, replay, custom, home / "lake")
        if engines:
            found = Tables(home, TABLE, COPY, replay, limit_s)
            compare(engines, found, copy, list(last) if compaction else [])


def keeping(snapshots: int) -> dict[str, str]:
    """The properties of a table that keeps so many snapshots."""
    return {
        "iceberg.history.expire.max-snapshot-age-ms": "1",
        "iceberg.history.expire.min-snapshots-to-keep": str(snapshots),
    }


def compare(engines: Sequence[str], found: Tables, copy: Past, last: Sequence[Past]) -> None:
    """Reports what a table consists of, and what scans of it cost beside scans of its copy.

    :param last: rounds at which it is scanned, too.
    """
    if SPARK in engines:
        report_sizes(found)
    for engine in engines:
        compare_first_scans(engine, found)
    if SPARK in engines and last:
        compare_past_scans(engines, found, last, copy)


def change(running: Rounds, replay: Replay, count: int, number: int) -> MeasuredRound:
    """Changes keys, and runs the round that tiers them.

    :param number: of the round: others change other keys.
    """
    put(running.client, TABLE, replay.change(count, number))
    found = running.round(TABLE)
    assert found[1].rows == count, found
    return found


def write_copy(running: Rounds, replay: Replay, custom: dict[str, str], lake: Path) -> Past:
    """Tiers the rows that the table has now into a table of its own, by one round."""
    create_table(running.client, COPY, descriptor(custom), lake)
    put(running.client, COPY, replay.batches())
    return copied(running, COPY, replay.totals())


def copied(running: Rounds, path: TablePath, totals: list[int]) -> Past:
    """Tiers a copy, whose rows are in its log, and reports what that cost."""
    found, result = running.round(path)
    assert result.rows == totals[0], result
    text = f"the copy: {result.rows:,} rows from the log, {found.wall_s:.1f} s wall"
    report(Line("  copy_round", found.cpu_s, "core-s", None, text))
    return Past(path, 1, totals, result)
