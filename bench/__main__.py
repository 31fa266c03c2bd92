"""`python -m bench [NAME ...] [--rows N]`: runs the named benchmarks, by default all.

With the environment variable FLINK=1, also the one beside Flink.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from bench.lake_readers import ENGINES
from bench.measure import Benchmark

LAKE_SCANS = "lake_scans"
NAMES = (
    "formats",
    "kernel_variants",
    "leases",
    "kv_put",
    "kv_snapshot_read",
    "kv_scan",
    "last_changes",
    "log_to_iceberg",
    "spark_path",
    "packs",
    "airflow_pass",
    "one_bucket",
    "copy_memory",
    "spark_start",
    "keyed_to_iceberg",
    "delta_cost",
    "lake_history",
    "round_history",
    "idle_tables",
    "real_log_to_iceberg",
    LAKE_SCANS,
)
ROWS, SCANNED_ROWS = 5_000_000, 1_000_000
BESIDE_FLINK = "beside_flink"
"""Needs jars that `make setup` does not fetch."""


def load(name: str) -> Benchmark:
    module = __import__(f"bench.{name}", fromlist=["run"])
    run: Benchmark = module.run
    return run


def names() -> tuple[str, ...]:
    """The benchmarks that there are."""
    return (*NAMES, BESIDE_FLINK) if os.environ.get("FLINK") == "1" else NAMES


def options(known: Sequence[str]) -> argparse.ArgumentParser:
    """:param known: names of benchmarks."""
    parser = argparse.ArgumentParser(prog="make bench ARGS=...", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(known)}")
    text = f"rows (default {ROWS:,}; of {LAKE_SCANS} 1,000,000)"
    parser.add_argument("--rows", type=int, help=text)
    scans = parser.add_argument_group(LAKE_SCANS)
    scans.add_argument("--rounds", type=int, default=100, help="rounds of changes (default 100)")
    text = "share of the keys that each round changes (default 0.01)"
    scans.add_argument("--changed", type=float, default=0.01, metavar="SHARE", help=text)
    text = "Iceberg's, of the lake table (default 2)"
    scans.add_argument("--format-version", type=int, choices=(2, 3), default=2, help=text)
    text = f"those that read the lake: {','.join(ENGINES)} (the default), or none"
    scans.add_argument("--engines", type=_engines, default=ENGINES, help=text)
    text = "limit of one scan in seconds (default 100)"
    scans.add_argument("--limit", type=float, default=100.0, dest="limit_s", help=text)
    return parser


def _engines(text: str) -> tuple[str, ...]:
    """Names with commas between them; "none" is no engine."""
    found = () if text == "none" else tuple(text.split(","))
    if unknown := set(found) - set(ENGINES):
        raise argparse.ArgumentTypeError(
            f"no engine {', '.join(sorted(unknown))}; there are {', '.join(ENGINES)}, none"
        )
    return found


def main() -> None:
    known = names()
    parser = options(known)
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(known):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    of_scans = {k: v for k, v in vars(arguments).items() if k not in ("names", "rows")}
    for name in arguments.names or known:
        if name == LAKE_SCANS:
            load(name)(arguments.rows or SCANNED_ROWS, **of_scans)
        else:
            load(name)(arguments.rows or ROWS)


if __name__ == "__main__":
    main()
