"""Maintains a lake table of equality deletes, as earlier versions left them, beside its rounds.

Each of 100 rounds changes 1 % of a primary-key table and writes equality deletes. Then `sluice
maintain --yes` converts them, and the next round makes the compaction that it has requested. Before
and after each of the two, every engine reads the table and a freshly written copy. Every answer is
compared with a replay of the changes in numpy.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.lake.lake_readers import ENGINES
from bench.lake.lake_scans import COPY, TABLE, change, write_copy
from bench.lake.measured_rounds import report_compactions
from bench.lake.replay import Replay
from bench.lake.table_scans import Tables, compare_first_scans
from bench.measure import Line, cost, report
from bench.rounds.keyed import BUCKETS, Rounds, tables

LOOKUP = "tiering.position_lookup_bytes"


def run(
    rows: int,
    rounds: int = 100,
    changed: float = 0.01,
    engines: Sequence[str] = ENGINES,
    limit_s: float = 100.0,
) -> None:
    """:param rows: keys of the table.
    :param changed: the share of the keys that each round changes.
    :param engines: those that read the lake, of ``ENGINES``.
    :param limit_s: how long one scan may take.
    :raises SystemExit: an engine's answer differs from the replay.
    """
    replay, count = Replay(rows), max(1, round(rows * changed))
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as tmp:
        home = Path(tmp)
        found = Tables(home, TABLE, COPY, replay, limit_s)

        def scan(stage: str) -> None:
            text = f"{rounds} rounds of {count:,} changed keys in {rows:,}; {BUCKETS} buckets"
            health = running.health(TABLE)
            report(Line(stage, health.dead_share, "of rows dead", None, f"{text}; {health}"))
            for engine in engines:
                compare_first_scans(engine, found)

        with tables(home, {TABLE: rows}, {}, {LOOKUP: "0"}) as running:
            running.round(TABLE)
            for number in range(rounds):
                change(running, replay, count, number)
            write_copy(running, replay, {}, home / "lake")
            scan("with_equality_deletes")
            _maintain(running)
            scan("maintained")
            compacted, result = running.round(TABLE)  # without new rows
            report(Line("requested_round", compacted.cpu_s, "core-s", None, result.compacted))
            report_compactions([result], has_key=True)
            scan("compacted")


def _maintain(running: Rounds) -> None:
    with cost() as spent:
        [done] = running.maintain(TABLE)
    assert not done.notes, done
    conversion = done.conversion
    assert conversion is not None, done
    text = (
        f"{conversion.files_removed} equality delete files, {conversion.rows:,} rows,"
        f" {conversion.commits} commits, {conversion.files_written} position files,"
        f" {conversion.bytes_read:,} bytes read; {spent.wall_s:.1f} s wall"
    )
    report(Line("maintain", spent.cpu_s, "core-s", None, text))
