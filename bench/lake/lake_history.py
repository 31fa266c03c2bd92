"""Compares a round on a lake table of 10,000 snapshots with the same round on one of 10.

The long history is one metadata file with copies of the newest snapshot
(`tests/support/lake/long_history.py`). Iceberg reads and writes all snapshots with each commit; the
lines say how much of the difference is Iceberg's, and how much is spent in Sluice's other calls.
The same is measured with snapshots of other writers on top of the newest tiering snapshot.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import data
from bench.cluster import hadoop_config, load, server, wait_until_due
from bench.measure import Line, report
from sluice.client import Client, connect
from sluice.config import Config
from sluice.driver.lakes.jvm import Jvm
from sluice.driver.local import tier_once
from sluice.model import TablePath
from tests.support.lake.long_history import lengthen_history

SHORT, LONG = 10, 10_000
OTHERS = 20
"""Snapshots of other writers on top: so many that a round reads the complete metadata."""
GOAL_MS = 500
ROWS = 1_000
ROUNDS = 9
WARM_ROUNDS = 3
BEFORE_COMMIT = ("recover", "plan", "copy")
ICEBERG = {"loadTable", "refresh", "newTransaction", "commit", "commitTransaction"}
"""Methods of Iceberg that read or write the metadata."""


def run(rows: int) -> None:
    """Ignores ``rows``: the cost of a commit depends on the number of snapshots."""
    del rows
    with (
        tempfile.TemporaryDirectory(prefix="sluice-bench-") as tmp,
        server(Path(tmp) / "fluss") as (address, _),
    ):
        lake = Path(tmp) / "lake"
        config = hadoop_config(address, lake)
        with connect(config.client) as client, Jvm(config.tiering.jars) as jvm:
            client.admin.create_database("bench")
            for others in (0, OTHERS):
                _compare(config, client, jvm, lake, others)


def _compare(config: Config, client: Client, jvm: Jvm, lake: Path, others: int) -> None:
    """:param others: snapshots of other writers that are newer than the base of each round."""
    paths = {count: TablePath("bench", f"history_{count}_{others}") for count in (SHORT, LONG)}
    for count, path in paths.items():
        load(client, path, ROWS, lake)
        _round(config, client, jvm, path)
        lengthen_history(lake / path.database / path.table, count, others)
    spent: dict[int, list[dict[str, float]]] = {count: [] for count in paths}
    for number in range(WARM_ROUNDS + ROUNDS):
        for count, path in paths.items():  # in turns: both see the same machine
            with client.log_writer(path) as writer:
                for batch in data.batches(ROWS):
                    writer.write(batch)
            if others and number:
                lengthen_history(lake / path.database / path.table, count, others)
            found = _round(config, client, jvm, path)
            if number >= WARM_ROUNDS:
                spent[count].append(found)
    # With others on top, the search for the base costs too, so the complete round counts.
    key, what = ("  round", f"_{OTHERS}_others") if others else ("  commit", "")
    added_ms = statistics.median(
        long[key] - short[key] for short, long in zip(*spent.values(), strict=True)
    )
    goal = f"the goal of {GOAL_MS} ms for what {LONG:,} snapshots add to a{key[1:]}"
    report(Line(f"lake_history{what}", added_ms, "ms", added_ms / GOAL_MS, goal))
    for name in spent[SHORT][0]:
        short, long = (statistics.median(s[name] for s in spent[n]) for n in (SHORT, LONG))
        unit = "calls" if name == "  calls" else "ms"
        text = f"{SHORT} snapshots ({short:,.1f}): {long - short:+,.1f}; medians of {ROUNDS}"
        report(Line(name, long, unit, long / short if short else None, text))


def _round(config: Config, client: Client, jvm: Jvm, path: TablePath) -> dict[str, float]:
    """Runs a round; returns the milliseconds of its parts, and its number of calls."""
    wait_until_due(client, path)
    started = time.perf_counter()
    with _timed_calls(jvm) as calls:
        result = tier_once(config, path, jvm=jvm)
    wall = time.perf_counter() - started
    assert result.rows == ROWS, result
    commit = result.seconds["total"] - sum(result.seconds[phase] for phase in BEFORE_COMMIT)
    parts = {"  commit": commit, "  round": wall}
    parts |= {f"  phase: {phase}": seconds for phase, seconds in result.seconds.items()}
    names = {name for name in calls if name in ICEBERG}
    parts |= {f"  Iceberg: {name}": sum(calls[name]) for name in sorted(names)}
    parts["  Sluice's other calls"] = sum(sum(calls[name]) for name in calls.keys() - names)
    found = {name: 1000 * seconds for name, seconds in parts.items()}
    return {**found, "  calls": sum(map(len, calls.values()))}


@contextmanager
def _timed_calls(jvm: Jvm) -> Iterator[dict[str, list[float]]]:
    """Seconds of each call into the JVM by method, without those of calls inside its callbacks."""
    client = jvm.gateway._gateway_client
    send, inside = client.send_command, []
    calls: dict[str, list[float]] = defaultdict(list)

    def timed(command: str, *arguments: Any, **named: Any) -> Any:
        words = command.split("\n")
        if words[0] != "c":
            return send(command, *arguments, **named)
        inside.append(0.0)
        started = time.perf_counter()
        try:
            return send(command, *arguments, **named)
        finally:
            took = time.perf_counter() - started
            calls[words[2]].append(took - inside.pop())
            if inside:
                inside[-1] += took

    client.send_command = timed
    try:
        yield calls
    finally:
        del client.send_command
