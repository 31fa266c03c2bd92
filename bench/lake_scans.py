"""Changes 1 % of a primary-key table in each of 100 rounds, then has every engine read the lake.

The cost of a round includes this process and its JVM, which rounds of another table have warmed up.
The server is measured separately. What a scan costs is compared with a freshly written copy: the
same rows, tiered into a table of its own by one round. Each engine answers in a process of its own;
Spark is warm, and of the others each answer is the first one. Every answer is compared with a
replay of the changes in numpy: a difference ends the benchmark with an error.

`--rows 10000000 --rounds 10 --engines none` measures rounds of 100,000 changes in a large table.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench.keyed import BUCKETS, WARM, Rounds, descriptor, tables
from bench.kv_put import put
from bench.lake_readers import ENGINES, SPARK, Reader, Scan, reader
from bench.measure import Cost, Line, report
from bench.replay import Replay
from sluice.model import TablePath
from sluice.rounds.files import RoundResult
from sluice.testing.table_creation import create_table

TABLE, COPY = TablePath("bench", "changed"), TablePath("bench", "copy")
EDGE = 10
"""Number of the first and of the last rounds whose medians are compared."""
SPARK_WARM_SCANS = 5
POINT_KEY = 123_456
OTHERS_LIMIT_S = 100.0
"""For questions that are not measured."""
MB = 1e6
COLUMN = "core-s a round"
ALL_METADATA = "all_metadata"
"""Earlier snapshots' metadata included, which no scan reads."""
CONTENTS: dict[int | str, str] = {
    0: "data",
    1: "position_deletes",
    2: "equality_deletes",
    "manifest": "manifests",
    "": ALL_METADATA,
}
"""The contents of a table's files, as manifests number them."""

MeasuredRound = tuple[Cost, RoundResult]


def run(
    rows: int,
    rounds: int = 100,
    changed: float = 0.01,
    format_version: int = 2,
    engines: Sequence[str] = ENGINES,
    limit_s: float = 100.0,
) -> None:
    """:param rows: keys of the table.
    :param changed: the share of the keys that each round changes.
    :param format_version: Iceberg's, of the lake table.
    :param engines: those that read the lake, of ``ENGINES``.
    :param limit_s: how long one scan may take.
    :raises SystemExit: an engine's answer differs from the replay.
    """
    count = max(1, round(rows * changed))
    replay = Replay(rows)
    custom = {"iceberg.format-version": str(format_version)}
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as tmp:
        home = Path(tmp)
        with tables(home, {TABLE: rows}, custom) as running:
            first = running.round(TABLE)
            assert first[1].rows == rows, first
            measured = [_change(running, replay, count, number) for number in range(rounds)]
            text = f"mean of {rounds} rounds of {count:,} changed keys in {rows:,}; {BUCKETS}"
            _report_rounds(measured, f"{text} buckets, Iceberg's format {format_version}")
            text = f"{rows:,} rows from KV snapshots, {first[0].wall_s:.1f} s wall"
            report(Line("  first_round", first[0].cpu_s, "core-s", None, text))
            if engines:
                _write_copy(running, replay, custom, home / "lake")
        if SPARK in engines:
            _report_sizes(home)
        for engine in engines:
            _compare(engine, home, replay, limit_s)


def _change(running: Rounds, replay: Replay, count: int, number: int) -> MeasuredRound:
    put(running.client, TABLE, replay.change(count, number))
    found = running.round(TABLE)
    assert found[1].rows == count, found
    return found


def _report_rounds(measured: Sequence[MeasuredRound], text: str) -> None:
    edge = min(EDGE, max(1, len(measured) // 2))
    first, last = measured[:edge], measured[-edge:]

    def mean(what: Callable[[MeasuredRound], float]) -> float:
        return statistics.mean(map(what, measured))

    def medians(what: Callable[[MeasuredRound], float]) -> tuple[float, float]:
        before, after = (statistics.median(map(what, part)) for part in (first, last))
        return before, after

    report(Line("lake_scans", mean(lambda m: m[0].cpu_s), COLUMN, None, text))
    before, after = medians(lambda m: m[0].cpu_s)
    report(Line("  first_rounds", before, COLUMN, None, f"median of the first {edge}"))
    text = f"the first {edge}; median of the last {edge}"
    report(Line("  last_rounds", after, COLUMN, after / before, text))
    server = mean(lambda m: sum(m[0].others_s.values()))
    report(Line("  server_cpu", server, COLUMN, None, "measured separately; mean"))
    for phase in measured[0][1].seconds:
        before, after = medians(partial(_phase_ms, phase))
        text = f"the first {edge} ({before:.0f}); medians"
        report(
            Line(f"  phase: {phase}", after, "ms wall", after / before if before else None, text)
        )
    files, written = mean(lambda m: m[1].files), mean(lambda m: m[1].bytes_written)
    report(Line("  files_written", files, "files a round", None, "mean"))
    report(Line("  bytes_written", written / 1000, "KB a round", None, "mean"))


def _phase_ms(phase: str, measured: MeasuredRound) -> float:
    return 1000 * measured[1].seconds.get(phase, 0.0)


def _write_copy(running: Rounds, replay: Replay, custom: dict[str, str], lake: Path) -> None:
    """Tiers the rows that the table has now into a table of its own, by one round."""
    create_table(running.client, COPY, descriptor(custom), lake)
    put(running.client, COPY, replay.batches())
    found, result = running.round(COPY)
    assert result.rows == replay.keys, result
    text = f"the copy: {replay.keys:,} rows from the log, {found.wall_s:.1f} s wall"
    report(Line("  copy_round", found.cpu_s, "core-s", None, text))


def _report_sizes(home: Path) -> None:
    """Reports what the newest snapshot of the table consists of, and all of its metadata."""
    with _started(SPARK, home) as running:
        copy, table = (_sizes(running, home, path) for path in (COPY, TABLE))
    for content in CONTENTS.values():
        files, size = table[content]
        of_files, of_size = copy[content]
        text = f"the copy ({of_size / MB:.2f} MB, {of_files} files); {files} files"
        report(
            Line(f"  lake: {content}", size / MB, "MB", size / of_size if of_size else None, text)
        )


def _sizes(running: Reader, home: Path, path: TablePath) -> dict[str, tuple[int, int]]:
    """Number and bytes of a table's files of each content. A Puffin file of many vectors is one."""
    found = running.ask(OTHERS_LIMIT_S, what="files", table=str(path))
    assert found.answer is not None, found
    by_content: dict[str, dict[str, int]] = {content: {} for content in CONTENTS.values()}
    for number, name, size in found.answer:
        by_content[CONTENTS[number]][name] = size
    folder = home / "lake" / path.database / path.table / "metadata"
    by_content[ALL_METADATA] = {file.name: file.stat().st_size for file in folder.iterdir()}
    return {content: (len(files), sum(files.values())) for content, files in by_content.items()}


def _compare(engine: str, home: Path, replay: Replay, limit_s: float) -> None:
    """Has an engine read the copy and the table, compares its answers, and reports what it cost."""
    copy, table = (_scans(engine, home, path, replay, limit_s) for path in (COPY, TABLE))
    for name, scan in table.items():
        fresh = copy[name]
        if scan.answer is None:
            spent = None if scan.is_refused else scan.cpu_s
            report(Line(f"{engine}_{name}", spent, "core-s", None, scan.why))
            continue
        ratio = scan.cpu_s / fresh.cpu_s if fresh.answer is not None and fresh.cpu_s else None
        text = f"the copy ({fresh.why or f'{fresh.cpu_s:.2f}'}); wall {scan.wall_s:.2f} s, of the"
        text += f" copy {fresh.wall_s:.2f} s; equal to the replay"
        report(Line(f"{engine}_{name}", scan.cpu_s, "core-s", ratio, text))


def _scans(
    engine: str, home: Path, path: TablePath, replay: Replay, limit_s: float
) -> dict[str, Scan]:
    """Scans a table: by Spark in one warm process, by others in a process for each scan.

    :raises SystemExit: an answer differs from the replay.
    """
    key = min(POINT_KEY, replay.keys - 1)
    full: tuple[dict[str, Any], list[Any]] = ({"what": "full"}, replay.totals())
    asked = {"full": full}
    if engine == SPARK:
        asked["full_again"] = full
    asked["point"] = ({"what": "point", "key": key}, [[replay.amount(key)]])
    found: dict[str, Scan] = {}
    with ExitStack() as stack:
        running: Reader | None = None
        for name, (question, expected) in asked.items():
            if engine != SPARK or running is None or running.is_closed:
                running = stack.enter_context(_started(engine, home))
            found[name] = running.ask(limit_s, table=str(path), **question)
            check_answer(f"{engine}'s scan {name} of {path}", found[name], expected)
    return found


@contextmanager
def _started(engine: str, home: Path) -> Iterator[Reader]:
    """A running engine. Spark has scanned the table of the warm-up, deletes included."""
    with reader(engine, home / "lake", home / f"{engine}.log") as running:
        if engine == SPARK:
            for _ in range(SPARK_WARM_SCANS):
                for question in ({"what": "full"}, {"what": "point", "key": 1}):
                    found = running.ask(OTHERS_LIMIT_S, table=str(WARM), **question)
                    assert found.answer is not None, found
        yield running


def check_answer(what: str, scan: Scan, expected: list[Any]) -> None:
    """Compares an answer, if there is one. :raises SystemExit: it is not the expected one."""
    if scan.answer is not None and scan.answer != expected:
        raise SystemExit(f"{what} answered {scan.answer}, but the replay has {expected}")
