"""`python -m bench [NAME ...] [--rows N]`: runs the named benchmarks, by default all.

With the environment variable FLINK=1, also the one beside Flink.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from bench.lake.lake_readers import ENGINES
from bench.measure import Benchmark

LAKE_SCANS, LOG_ROUNDS, MAINTENANCE = "lake_scans", "log_rounds", "maintenance"
BESIDE_FLINK = "beside_flink"
"""Needs jars that `make setup` does not fetch."""
ROOMS = {
    "kernels": ("formats", "kernel_variants", "last_changes"),
    "server": (
        "leases",
        "log_append",
        "kv_put",
        "kv_snapshot_read",
        "kv_scan",
        "round_history",
        "idle_tables",
    ),
    "rounds": (
        "log_to_iceberg",
        "real_log_to_iceberg",
        "keyed_to_iceberg",
        "one_bucket",
        "copy_memory",
        "delta_cost",
    ),
    "spark": ("spark_path", "packs", "airflow_pass", "spark_start"),
    "lake": ("lake_history", "rest_catalog", LAKE_SCANS, LOG_ROUNDS, MAINTENANCE),
    "page": ("page_tables", "real_page_tables"),
    "flink": (BESIDE_FLINK,),
}
"""The benchmarks of each room, in the order in which all run."""
ROWS, SCANNED_ROWS = 5_000_000, 1_000_000
_OF_ALL = ("rounds", "engines", "limit_s")
OWN_OPTIONS = {
    LAKE_SCANS: (
        *_OF_ALL, "changed", "compaction", "format_version", "buckets", "compaction_bytes",
        "expire"
    ),
    LOG_ROUNDS: (*_OF_ALL, "compaction", "format_version", "expire"),
    MAINTENANCE: (*_OF_ALL, "changed"),
}  # fmt: skip
"""Benchmarks with options of their own, by the names of their arguments."""


def load(name: str) -> Benchmark:
    room = next(room for room, names in ROOMS.items() if name in names)
    module = import_module(f"bench.{room}.{name}")
    run: Benchmark = module.run
    return run


def names() -> tuple[str, ...]:
    """The benchmarks that there are."""
    found = [name for names in ROOMS.values() for name in names]
    if os.environ.get("FLINK") != "1":
        found.remove(BESIDE_FLINK)
    return tuple(found)


def options(known: Sequence[str]) -> argparse.ArgumentParser:
    """:param known: names of benchmarks."""
    parser = argparse.ArgumentParser(prog="make bench ARGS=...", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(known)}")
    text = f"rows (default {ROWS:,}; of {LAKE_SCANS} 1,000,000, of {LOG_ROUNDS} 1,000 a round)"
    parser.add_argument("--rows", type=int, help=text)
    scans = parser.add_argument_group(f"{LAKE_SCANS}, {LOG_ROUNDS} and {MAINTENANCE}")
    text = f"rounds (default 100; of {LOG_ROUNDS} 1,000)"
    scans.add_argument("--rounds", type=int, help=text)
    text = "share of the keys that each round changes (default 0.01)"
    scans.add_argument("--changed", type=float, metavar="SHARE", help=text)
    text = "have the rounds compact the table, and also scan it at the last 50 of them"
    scans.add_argument("--compaction", action="store_true", help=text)
    text = f"buckets of the table of {LAKE_SCANS} (default 4)"
    scans.add_argument("--buckets", type=int, metavar="COUNT", help=text)
    text = f"bytes that a round of {LAKE_SCANS} rewrites at most"
    scans.add_argument("--compaction-bytes", type=int, metavar="BYTES", help=text)
    text = f"have old snapshots expire after the rounds, down to 60, of {LOG_ROUNDS} 100"
    scans.add_argument("--expire", action="store_true", help=text)
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


def own_options(name: str, arguments: argparse.Namespace) -> tuple[int | None, dict[str, Any]]:
    """The rows and the other options of a benchmark; without those that keep their default."""
    rows: int | None = arguments.rows
    if name not in OWN_OPTIONS:
        return rows or ROWS, {}
    given = vars(arguments)
    own = {key: given[key] for key in OWN_OPTIONS[name] if given[key] is not None}
    return rows or (None if name == LOG_ROUNDS else SCANNED_ROWS), own


def main() -> None:
    known = names()
    parser = options(known)
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(known):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    for name in arguments.names or known:
        rows, own = own_options(name, arguments)
        load(name)(rows, **own)


if __name__ == "__main__":
    main()
