"""`python -m bench [NAME ...] [--rows N]`: runs the named benchmarks, by default all."""

from __future__ import annotations

import argparse

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
    "one_bucket",
    "keyed_to_iceberg",
    "delta_cost",
    "lake_history",
    "round_history",
    "real_log_to_iceberg",
)


def load(name: str) -> Benchmark:
    module = __import__(f"bench.{name}", fromlist=["run"])
    run: Benchmark = module.run
    return run


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench ARGS=...", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(NAMES)}")
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows (default 5,000,000)")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(NAMES):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    for name in arguments.names or NAMES:
        load(name)(arguments.rows)


if __name__ == "__main__":
    main()
