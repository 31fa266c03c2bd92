"""Tiers a log table of Apache Fluss 0.9.1 to Iceberg.

Work and reference are those of :mod:`bench.rounds.log_to_iceberg`. The three programs of the
cluster are measured separately.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import psutil

from bench.reference import reported_rate
from bench.rounds.log_to_iceberg import measure
from tests.support.fluss.real_fluss import RealFluss

TABLET_HEAP_MB = 1536


def run(rows: int) -> None:
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as tmp:
        home = Path(tmp)
        limit = reported_rate(rows, home)
        with RealFluss(home / "fluss", tablet_heap_mb=TABLET_HEAP_MB) as fluss:
            children = psutil.Process().children(recursive=True)
            servers = {f"fluss_{process.pid}": process.pid for process in children}
            measure(fluss.warehouse, fluss.bootstrap, servers, rows, limit, prefix="real_")
