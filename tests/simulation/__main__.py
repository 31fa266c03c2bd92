"""Runs seeds of the simulation and prints their events."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from tests.simulation.controls import CONTROLS
from tests.simulation.faults import KEYED_KINDS, KINDS
from tests.simulation.simulation import Outcome, Variant, run_seed

_FAILURES_MAX = 20


def main(arguments: list[str] | None = None) -> int:
    """Runs the seeds; returns 1 and prints the trace if one has found a violation."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seed", type=int, help="run one seed")
    parser.add_argument("--trace", action="store_true", help="print every event")
    parser.add_argument("--seeds", help="FIRST-LAST")
    parser.add_argument(
        "--control", choices=sorted(CONTROLS), help="replace this part by a faulty one"
    )
    parser.add_argument("--minutes", type=float, help="run seeds for this long")
    parser.add_argument("--keyed", action="store_true", help="use primary-key tables")
    options = parser.parse_args(arguments)
    variant = CONTROLS.get(options.control, Variant())
    variant = replace(variant, keyed=variant.keyed or options.keyed)
    if options.seed is not None:
        outcome = run_seed(options.seed, trace=True, variant=variant)
        _print_one(outcome, variant, trace=options.trace or bool(outcome.violation))
        return 1 if outcome.violation else 0
    return _run_many(_chosen(options.seeds, options.minutes), variant)


def _chosen(seeds: str | None, minutes: float | None) -> Iterator[int]:
    first, _, last = (seeds or "1-1000").partition("-")
    until_s = None if minutes is None else time.monotonic() + 60 * minutes
    number = int(first)
    while until_s is not None or number <= int(last or first):
        if until_s is not None and time.monotonic() >= until_s:
            return
        yield number
        number += 1


def _run_many(seeds: Iterator[int], variant: Variant) -> int:
    started_s, cpu_s = time.monotonic(), time.process_time()
    happened: Counter[str] = Counter()
    failed: list[Outcome] = []
    ran = steps = 0
    for seed in seeds:
        outcome = run_seed(seed, variant=variant)
        ran, steps = ran + 1, steps + outcome.steps
        happened += outcome.happened
        if outcome.violation:
            _say(f"seed {seed}: {outcome.violation}")
            failed.append(outcome)
            if len(failed) == _FAILURES_MAX:
                break
    if failed:
        _print_one(run_seed(failed[0].seed, trace=True, variant=variant), variant, trace=True)
    kinds = (*KINDS, *KEYED_KINDS) if variant.keyed else KINDS
    for kind in (*kinds, *sorted(set(happened) - set(kinds))):
        _say(f"{happened[kind]:10,}  {kind}")
    wall_s, cpu_s = time.monotonic() - started_s, time.process_time() - cpu_s
    _say(
        f"{ran:,} seeds, {steps:,} steps, {len(failed)} with a violation; {wall_s:.1f} s"
        f" ({60 * ran / wall_s:,.0f} seeds a minute), {cpu_s:.1f} s of CPU"
        f" ({60 * ran / cpu_s:,.0f} a minute)"
    )
    return 1 if failed else 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _print_one(outcome: Outcome, variant: Variant, *, trace: bool) -> None:
    if trace:
        _say("\n".join(outcome.trace))
    said = outcome.violation or "no violation"
    _say(f"seed {outcome.seed}: {outcome.steps} steps, digest {outcome.digest:016x}: {said}")
    if outcome.violation:
        keyed = " --keyed" if variant.keyed else ""
        _say(f"replay: python -m tests.simulation --seed {outcome.seed} --trace{keyed}")


if __name__ == "__main__":
    sys.exit(main())
