"""What many rounds of one table cost, and how much of that compaction wrote again."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial

from bench.measure import Cost, Line, report
from sluice.rounds.records.result import POSITIONS, RoundResult

EDGE = 10
"""Number of the first and of the last rounds whose medians are compared."""
COLUMN = "core-s a round"
MB = 1e6

MeasuredRound = tuple[Cost, RoundResult]


def report_rounds(name: str, measured: Sequence[MeasuredRound], text: str) -> None:
    """:param text: what the rounds did."""
    edge = min(EDGE, max(1, len(measured) // 2))

    def mean(what: Callable[[MeasuredRound], float]) -> float:
        return statistics.mean(map(what, measured))

    def medians(what: Callable[[MeasuredRound], float]) -> tuple[float, float]:
        parts = (measured[:edge], measured[-edge:])
        before, after = (statistics.median(map(what, part)) for part in parts)
        return before, after

    report(Line(name, mean(_cpu_s), COLUMN, None, f"mean of {text}"))
    most = max(range(len(measured)), key=lambda number: measured[number][0].cpu_s)
    report(Line("  most", _cpu_s(measured[most]), COLUMN, None, f"round {most + 1}"))
    before, after = medians(_cpu_s)
    report(Line("  first_rounds", before, COLUMN, None, f"median of the first {edge}"))
    text = f"the first {edge}; median of the last {edge}"
    report(Line("  last_rounds", after, COLUMN, after / before if before else None, text))
    server = mean(lambda m: sum(m[0].others_s.values()))
    report(Line("  server_cpu", server, COLUMN, None, "measured separately; mean"))
    for phase in measured[0][1].seconds:
        before, after = medians(partial(_phase_ms, phase))
        text = f"the first {edge} ({before:.0f}); medians"
        ratio = after / before if before else None
        report(Line(f"  phase: {phase}", after, "ms wall", ratio, text))
    files, written = mean(lambda m: m[1].files), mean(lambda m: m[1].bytes_written)
    report(Line("  files_written", files, "files a round", None, "mean"))
    report(Line("  bytes_written", written / 1000, "KB a round", None, "mean"))


def report_compactions(results: Sequence[RoundResult], has_key: bool) -> None:
    """Reports what the compactions of a table's rounds wrote and needed.

    :param has_key: whether the table has a primary key.
    """
    done = [one for one in results if one.files_compacted]
    files = sum(one.files_compacted for one in done)
    left_out = [one.compacted for one in results if "left out" in one.compacted]
    text = f"of {len(results)} rewrote {files:,} data files; {len(left_out)} left some out"
    text += "".join(f": {why}" for why in left_out[:1])
    report(Line("  compactions", len(done), "rounds", None, text))
    others = sum(1 for one in results if one.deletes and one.deletes_as != POSITIONS)
    report(Line("  with_equality_deletes", others, "rounds", None, ""))
    if not done:
        return
    unit = "bytes for each changed"
    text = "of compacted files, for each byte of all other files of the rounds"
    report(Line("  bytes_rewritten", rewritten(results, has_key), unit, None, text))
    if has_key:
        text = "for each byte that all rounds had written without compactions (an estimate)"
        report(Line("  bytes_rewritten_of_plain", rewritten_of_plain(results), unit, None, text))
    cpu_ms = statistics.mean(one.compaction_cpu_ms for one in results)
    report(Line("  compaction_cpu", cpu_ms / 1000, COLUMN, None, "mean of all rounds"))
    most = {
        "read": (max(one.compaction_read_bytes for one in done) / MB, "MB"),
        "memory": (max(one.compaction_memory_bytes for one in done) / MB, "MB"),
        "spilled": (max(one.compaction_spilled_bytes for one in done) / MB, "MB"),
        "wall": (max(one.compaction_ms for one in done), "ms"),
    }
    for name, (value, unit) in most.items():
        report(Line(f"  compaction_{name}", value, unit, None, "the most of a round"))


def rewritten(results: Sequence[RoundResult], has_key: bool) -> float | None:
    """Bytes of compacted files for each byte of the other files of the rounds.

    In a table with a primary key, compacted files have the round's own rows, too. So this is more
    than what was rewritten for each changed byte. None: there are no other files.
    """
    again = sum(one.compaction_written_bytes for one in results)
    written = sum(one.bytes_written for one in results)  # of a log table, without compacted files
    others = written - again if has_key else written
    return again / others if others else None


def rewritten_of_plain(results: Sequence[RoundResult]) -> float | None:
    """The same for each byte that the rounds had written if none had compacted.

    That is estimated by the rounds that compacted nothing. None: there are no such rounds.
    """
    plain = [one.bytes_written for one in results if not one.files_compacted]
    again = sum(one.compaction_written_bytes for one in results)
    return again / (statistics.mean(plain) * len(results)) if sum(plain) else None


def _cpu_s(measured: MeasuredRound) -> float:
    return measured[0].cpu_s


def _phase_ms(phase: str, measured: MeasuredRound) -> float:
    return 1000 * measured[1].seconds.get(phase, 0.0)
