"""Scans of a table at its last rounds: at the worst of them, and right after a compaction.

Spark scans the snapshot of each round once. What seemed worst is then scanned again, in turns with
the copy, and so is what the largest compaction left. Medians are compared, because one scan alone
may take twice its time. The other engines answer at the same two snapshots.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.lake.lake_readers import SPARK, Scan
from bench.lake.lake_sizes import sizes
from bench.lake.table_scans import Ask, Tables, asking, check_answer, report_scan
from bench.measure import Line, report
from sluice.model import TablePath
from sluice.rounds.records.result import RoundResult

LAST = 50
"""Rounds whose snapshots are scanned."""
SCANS = 5
"""Scans of which the median counts, after one that does not."""
WORST = 3
"""So many of the rounds that seemed worst are scanned again to find the worst."""
COPY = "copy"


@dataclass(frozen=True)
class Past:
    """What a table had after a round."""

    path: TablePath
    number: int
    """Of the round, from 1."""
    totals: list[int]
    result: RoundResult

    def ask(self, ask: Ask, limit_s: float, who: str) -> Scan:
        """Scans the snapshot. :raises SystemExit: the answer differs from the replay."""
        snapshot = self.result.lake_snapshot_id
        found = ask(limit_s, what="full", table=str(self.path), snapshot=snapshot)
        check_answer(f"{who}'s scan of {self.path} at round {self.number}", found, self.totals)
        return found


def compare_past_scans(
    engines: Sequence[str], tables: Tables, rounds: Sequence[Past], copy: Past
) -> None:
    """Reports what scans cost at the worst of these rounds, and after a compaction.

    :param engines: Spark, which finds the worst, and others.
    :param copy: the copy after its only round.
    :raises SystemExit: an answer differs from the replay.
    """
    with asking(SPARK, tables.home) as ask:
        singles = [past.ask(ask, tables.limit_s, SPARK) for past in rounds]
        chosen = candidates(rounds, singles)
        medians = median_scans(ask, tables.limit_s, SPARK, {COPY: copy, **chosen})
        name = worst_of(medians)
        named = {"worst": chosen[name]}
        if "compacted" in chosen:
            named["compacted"] = chosen["compacted"]
        found = {COPY: medians[COPY], "worst": medians[name]}
        found |= {key: medians[key] for key in named if key != "worst"}
        texts = {key: _text(ask, past) for key, past in named.items()}
    spent = statistics.median(scan.cpu_s for scan in singles)
    answered = sum(1 for scan in singles if scan.answer is not None)
    text = f"median of one scan at each of the last {len(rounds)} rounds; {answered} answered"
    ratio = spent / found[COPY].cpu_s if found[COPY].cpu_s else None
    report(Line("spark_last_rounds", spent, "core-s", ratio, f"the copy; {text}"))
    _report(SPARK, found, texts)
    for engine in engines:
        if engine != SPARK:
            with asking(engine, tables.home) as ask:
                found = median_scans(ask, tables.limit_s, engine, {COPY: copy, **named})
            _report(engine, found, texts)


def candidates(rounds: Sequence[Past], singles: Sequence[Scan]) -> dict[str, Past]:
    """The rounds that seemed worst, by ``worst_N``, and that of the largest compaction."""

    def cost(number: int) -> tuple[bool, float]:
        return singles[number].answer is None, singles[number].cpu_s

    worst = sorted(range(len(rounds)), key=cost, reverse=True)[:WORST]
    found = {f"worst_{i}": rounds[number] for i, number in enumerate(worst)}
    largest = max(rounds, key=lambda past: past.result.compaction_written_bytes)
    if largest.result.files_compacted:
        found["compacted"] = largest
    return found


def worst_of(medians: Mapping[str, Scan]) -> str:
    """The name of the scan that cost the most, or had no answer."""
    worst = {name: scan for name, scan in medians.items() if name.startswith("worst_")}
    return max(worst, key=lambda name: (worst[name].answer is None, worst[name].cpu_s))


def median_scans(ask: Ask, limit_s: float, who: str, asked: Mapping[str, Past]) -> dict[str, Scan]:
    """Scans each several times, in turns, so that all of them see the same machine.

    The first scan of each is not measured. What has no answer is not asked again.
    """
    found: dict[str, list[Scan]] = {name: [] for name in asked}
    for turn in range(1 + SCANS):
        for name, past in asked.items():
            if found[name] and found[name][-1].answer is None:
                continue
            scan = past.ask(ask, limit_s, who)
            if turn or scan.answer is None:
                found[name].append(scan)
    return {name: _median(scans) for name, scans in found.items()}


def _median(scans: Sequence[Scan]) -> Scan:
    """The scan of the median cost, or the one without an answer."""
    if scans[-1].answer is None:
        return scans[-1]
    return sorted(scans, key=lambda scan: scan.cpu_s)[len(scans) // 2]


def _text(ask: Ask, past: Past) -> str:
    """Which round it is, and the number of its files."""
    files = {content: count for content, (count, _) in sizes(ask, past.path, _id(past)).items()}
    words = ", ".join(f"{count} {content}" for content, count in files.items() if count)
    return f"round {past.number}; {words}"


def _id(past: Past) -> int:
    found = past.result.lake_snapshot_id
    assert found is not None, past
    return found


def _report(engine: str, found: Mapping[str, Scan], texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        report_scan(
            f"{engine}_full_{name}", found[name], found[COPY], f"medians of {SCANS}; {text}"
        )
