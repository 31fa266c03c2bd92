"""What engines' scans of a lake table cost beside scans of a freshly written copy.

Each engine answers in a process of its own; Spark is warm. Every answer is compared with what is
known of the table without Sluice: a difference ends the benchmark with an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.lake.lake_readers import SPARK, Reader, Scan, reader
from bench.lake.replay import Truth
from bench.measure import Line, report
from bench.rounds.keyed import WARM
from sluice.model import TablePath

SPARK_WARM_SCANS = 5
POINT_KEY = 123_456
OTHERS_LIMIT_S = 100.0
"""For questions that are not measured."""
Ask = Callable[..., Scan]
"""Asks a question: as ``Reader.ask``."""


@dataclass(frozen=True)
class Tables:
    """A table of a lake, its copy, and what both have."""

    home: Path
    """The lake's warehouse is ``lake`` in it."""
    table: TablePath
    copy: TablePath
    truth: Truth
    limit_s: float
    """How long one scan may take."""


def compare_first_scans(engine: str, tables: Tables) -> None:
    """Has an engine read the copy and the table, compares its answers, and reports what it cost."""
    copy, table = (_scans(engine, tables, path) for path in (tables.copy, tables.table))
    for name, scan in table.items():
        fresh = copy[name]
        walls = f"wall {scan.wall_s:.2f} s, of the copy {fresh.wall_s:.2f} s"
        report_scan(f"{engine}_{name}", scan, fresh, walls)


def report_scan(name: str, scan: Scan, fresh: Scan, text: str) -> None:
    """:param fresh: the same scan of the copy.
    :param text: more about it.
    """
    if scan.answer is None:
        spent = None if scan.is_refused else scan.cpu_s
        report(Line(name, spent, "core-s", None, scan.why))
        return
    ratio = scan.cpu_s / fresh.cpu_s if fresh.answer is not None and fresh.cpu_s else None
    text = f"the copy ({fresh.why or f'{fresh.cpu_s:.2f}'}); {text}; equal to the replay"
    report(Line(name, scan.cpu_s, "core-s", ratio, text))


def _scans(engine: str, tables: Tables, path: TablePath) -> dict[str, Scan]:
    """Scans a table: by Spark in one warm process, by others in a process for each scan.

    :raises SystemExit: an answer differs from the replay.
    """
    truth = tables.truth
    key = min(POINT_KEY, truth.keys - 1)
    full: tuple[dict[str, Any], list[Any]] = ({"what": "full"}, truth.totals())
    asked = {"full": full}
    if engine == SPARK:
        asked["full_again"] = full
    asked["point"] = ({"what": "point", "key": key}, [[truth.amount(key)]])
    found: dict[str, Scan] = {}
    with ExitStack() as stack:
        ask: Ask | None = None
        for name, (question, expected) in asked.items():
            if engine != SPARK or ask is None:
                ask = stack.enter_context(asking(engine, tables.home))
            found[name] = ask(tables.limit_s, table=str(path), **question)
            check_answer(f"{engine}'s scan {name} of {path}", found[name], expected)
    return found


@contextmanager
def asking(engine: str, home: Path) -> Iterator[Ask]:
    """Asks an engine, which starts again after an answer that took too long."""
    with ExitStack() as stack:
        running = stack.enter_context(started(engine, home))

        def ask(limit_s: float, **question: object) -> Scan:
            nonlocal running
            if running.is_closed:
                running = stack.enter_context(started(engine, home))
            return running.ask(limit_s, **question)

        yield ask


@contextmanager
def started(engine: str, home: Path) -> Iterator[Reader]:
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
