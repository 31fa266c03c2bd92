"""Measures CPU seconds of this process and its children, and prints the line of a benchmark."""

from __future__ import annotations

import gc
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil


@dataclass
class Cost:
    """The cost of a block, complete when the ``with`` block ends."""

    cpu_s: float = 0.0
    """CPU seconds of this process and its living children (a JVM), without ``others``."""
    wall_s: float = 0.0
    others_s: dict[str, float] = field(default_factory=dict)
    """CPU seconds of the processes in ``others``, such as the server."""


@dataclass(frozen=True)
class Line:
    """One line of `make bench`; ``ratio`` compares with ``reference`` of the same run."""

    name: str
    value: float | None
    """None: there is nothing to measure, and ``reference`` says why."""
    unit: str
    ratio: float | None
    reference: str


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@contextmanager
def cost(**others: int) -> Iterator[Cost]:
    """Measures a block. ``others`` are pids of processes to measure separately (``server=pid``)."""
    named = {name: psutil.Process(pid) for name, pid in others.items()}
    own = [psutil.Process(), *psutil.Process().children(recursive=True)]
    own = [p for p in own if p.pid not in others.values()]
    gc.collect()
    before = sum(map(_cpu_s, own))
    others_before = {name: _cpu_s(p) for name, p in named.items()}
    found = Cost()
    started = time.perf_counter()
    yield found
    found.wall_s = time.perf_counter() - started
    now = {p.pid for p in psutil.Process().children(recursive=True)}
    if strangers := now - {p.pid for p in own} - set(others.values()):
        raise RuntimeError(
            f"processes {strangers} started inside the measured block and are not measured"
        )
    found.cpu_s = sum(map(_cpu_s, own)) - before
    found.others_s = {name: _cpu_s(p) - others_before[name] for name, p in named.items()}


@contextmanager
def tree_cost(**others: int) -> Iterator[Cost]:
    """Measures a block like :func:`cost`, with the processes that start in it and live on."""

    def spent() -> dict[int, float]:
        own = [psutil.Process(), *psutil.Process().children(recursive=True)]
        return {p.pid: _cpu_s(p) for p in own if p.pid not in others.values()}

    servers = {name: psutil.Process(pid) for name, pid in others.items()}
    gc.collect()
    before, others_before = spent(), {name: _cpu_s(p) for name, p in servers.items()}
    found = Cost()
    started = time.perf_counter()
    yield found
    found.wall_s = time.perf_counter() - started
    found.cpu_s = sum(cpu_s - before.get(pid, 0) for pid, cpu_s in spent().items())
    found.others_s = {name: _cpu_s(p) - others_before[name] for name, p in servers.items()}


def report(line: Line) -> None:
    """Prints a line, and appends it to the file ``BENCH_JSON`` as one JSON object per line."""
    ratio = f"{line.ratio:8.2f} x {line.reference}" if line.ratio is not None else line.reference
    value = "-" if line.value is None else f"{line.value:,.2f}"
    print(f"{line.name:<34} {value:>14} {line.unit:<22} {ratio}", flush=True)
    if target := os.environ.get("BENCH_JSON"):
        with Path(target).open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(line)) + "\n")


Benchmark = Callable[..., None]
"""A benchmark: takes the number of rows, and its own options by name, and prints its lines."""
