"""`python -m bench [NAME ...] [--rows N]`: runs the named benchmarks, by default all.

With the environment variable FLINK=1, also the one beside Flink.
"""

from __future__ import annotations

import argparse
import os

from bench.measure import Benchmark

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
)
BESIDE_FLINK = "beside_flink"
"""Needs jars that `make setup` does not fetch."""


def load(name: str) -> Benchmark:
    module = __import__(f"bench.{name}", fromlist=["run"])
    run: Benchmark = module.run
    return run


def names() -> tuple[str, ...]:
    """The benchmarks that there are."""
    return (*NAMES, BESIDE_FLINK) if os.environ.get("FLINK") == "1" else NAMES


def main() -> None:
    known = names()
    parser = argparse.ArgumentParser(prog="make bench ARGS=...", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(known)}")
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows (default 5,000,000)")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(known):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    for name in arguments.names or known:
        load(name)(arguments.rows)


if __name__ == "__main__":
    main()
