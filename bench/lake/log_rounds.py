"""Appends a few rows to a log table in each of 1,000 rounds, then has every engine read the lake.

Each round has rows in every bucket. All else is as in ``bench.lake.lake_scans``: what is measured,
the copy that scans are compared with, and the check of every answer.
"""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from bench import data
from bench.lake.lake_readers import ENGINES
from bench.lake.lake_scans import COMPACTION, EXPIRY, compare, copied, keeping
from bench.lake.measured_rounds import MeasuredRound, report_compactions, report_rounds
from bench.lake.past_scans import LAST, Past
from bench.lake.replay import Appended
from bench.lake.table_scans import Tables
from bench.rounds.keyed import BUCKETS, WARM, WARM_ROUNDS, WARM_ROWS, Rounds, serving
from sluice.client import Client
from sluice.model import TablePath
from tests.support.fluss.table_creation import create_table

TABLE, COPY = TablePath("bench", "appended"), TablePath("bench", "copy")
ROUND_ROWS = 1_000
KEPT = 100
"""A round of a log table makes up to two snapshots, and the last 50 rounds are scanned."""


def run(
    rows: int | None = None,
    rounds: int = 1_000,
    format_version: int = 2,
    engines: Sequence[str] = ENGINES,
    limit_s: float = 100.0,
    compaction: bool = False,
    expire: bool = False,
) -> None:
    """:param rows: of all rounds together; None: 1,000 a round.
    :param format_version: Iceberg's, of the lake table.
    :param engines: those that read the lake, of ``ENGINES``.
    :param limit_s: how long one scan may take.
    :param compaction: whether the rounds compact the table.
    :param expire: whether snapshots expire after rounds, down to 100.
    :raises SystemExit: an engine's answer differs from the rows that were appended.
    """
    count = max(BUCKETS, rows // rounds) if rows else ROUND_ROWS
    appended = Appended(count * rounds)
    custom = {"iceberg.format-version": str(format_version)}
    settings = {COMPACTION: str(compaction).lower()}
    if expire:
        settings |= EXPIRY
        custom |= keeping(KEPT)
    last: deque[Past] = deque(maxlen=LAST)
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as tmp:
        home = Path(tmp)
        with serving(home, settings) as running:
            running.client.admin.create_database("bench")
            _warm(running, custom, home / "lake")
            _create(running.client, TABLE, custom, home / "lake")
            measured = []
            for number in range(rounds):
                measured.append(_append(running, TABLE, appended.append(count)))
                last.append(Past(TABLE, number + 1, appended.totals(), measured[-1][1]))
            text = f"{rounds} rounds of {count:,} rows; {BUCKETS} buckets, Iceberg's format"
            report_rounds("log_rounds", measured, f"{text} {format_version}")
            report_compactions([result for _, result in measured], has_key=False)
            if engines:
                copy = _write_copy(running, appended, custom, home / "lake")
        if engines:
            found = Tables(home, TABLE, COPY, appended, limit_s)
            compare(engines, found, copy, list(last) if compaction else [])


def _create(client: Client, path: TablePath, custom: dict[str, str], lake: Path) -> None:
    created = replace(data.descriptor(BUCKETS), custom_properties=custom)
    create_table(client, path, created, lake)


def _warm(running: Rounds, custom: dict[str, str], lake: Path) -> None:
    _create(running.client, WARM, custom, lake)
    rows = pa.Table.from_batches(data.batches(WARM_ROWS))
    for _ in range(WARM_ROUNDS):
        _append(running, WARM, rows)


def _append(running: Rounds, path: TablePath, rows: pa.Table) -> MeasuredRound:
    _write(running.client, path, rows)
    found = running.round(path)
    assert found[1].rows == rows.num_rows, found
    return found


def _write(client: Client, path: TablePath, rows: pa.Table) -> None:
    """Appends rows, about as many to each bucket."""
    part = -(-rows.num_rows // BUCKETS)
    with client.log_writer(path) as writer:
        for first in range(0, rows.num_rows, part):
            writer.write(rows.slice(first, part))
            writer.flush()  # the next rows go to the next bucket


def _write_copy(running: Rounds, appended: Appended, custom: dict[str, str], lake: Path) -> Past:
    """Tiers the rows that the table has now into a table of its own, by one round."""
    _create(running.client, COPY, custom, lake)
    _write(running.client, COPY, appended.table())
    return copied(running, COPY, appended.totals())
