"""The worst of the last rounds and that of the largest compaction are found, and medians count."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.lake import table_scans
from bench.lake.lake_readers import Scan
from bench.lake.past_scans import COPY, SCANS, Past, candidates, median_scans, worst_of
from bench.lake.table_scans import asking
from sluice.model import Claim, TablePath
from sluice.rounds.records.result import RoundResult

TABLE = TablePath("bench", "changed")
LIMIT_S = 1.0


def past(number: int, compacted: int = 0) -> Past:
    """A round whose snapshot has the id 10 x its number."""
    result = RoundResult.of(
        Claim(1, TABLE, number, 1),
        "committed",
        lake_snapshot_id=10 * number,
        files_compacted=4 * (compacted > 0),
        compaction_written_bytes=compacted,
    )
    return Past(TABLE, number, [1, 2, number], result)


def scans(*spent_s: float) -> list[Scan]:
    return [Scan(cpu_s, cpu_s, [1]) for cpu_s in spent_s]


class Engine:
    """Answers as the replay has it; the Nth scan of a snapshot costs its Nth number."""

    def __init__(self, spent_s: dict[int, list[float]], wrong: int = 0) -> None:
        self.asked: list[int] = []
        self._left = {snapshot: iter(spent) for snapshot, spent in spent_s.items()}
        self._wrong = wrong

    def ask(self, limit_s: float, what: str, table: str, snapshot: int) -> Scan:
        assert (limit_s, what, table) == (LIMIT_S, "full", str(TABLE))
        self.asked.append(snapshot)
        spent = next(self._left[snapshot], None)
        if spent is None:
            return Scan(LIMIT_S, LIMIT_S, why="over 1 s")
        return Scan(spent, spent, [1, 2, snapshot // 10 + (snapshot == self._wrong)])


def test_the_worst_rounds_and_the_largest_compaction_are_scanned_again() -> None:
    rounds = [past(1), past(2, 50), past(3, 70), past(4), past(5, 60)]
    found = candidates(rounds, scans(5, 4, 1, 6, 3))
    numbers = {name: one.number for name, one in found.items()}
    assert numbers == {"worst_0": 4, "worst_1": 1, "worst_2": 2, "compacted": 3}


def test_without_a_compaction_there_are_only_the_worst_rounds() -> None:
    assert candidates([past(1), past(2)], scans(1, 2)).keys() == {"worst_0", "worst_1"}


def test_a_round_without_an_answer_is_worst() -> None:
    none = Scan(0.5, 0.5, why="over 1 s")
    found = candidates([past(1), past(2), past(3)], [*scans(7), none, *scans(9)])
    assert found["worst_0"].number == 2
    medians = {COPY: scans(99)[0], "worst_0": scans(3)[0], "worst_1": scans(4)[0]}
    assert worst_of(medians) == "worst_1"
    assert worst_of({**medians, "worst_0": none}) == "worst_0"


def test_medians_are_of_scans_in_turns_without_the_first() -> None:
    engine = Engine({10: [99, 5, 1, 4, 2, 3], 20: [99, 7, 7, 9, 8, 8]})
    found = median_scans(engine.ask, LIMIT_S, "spark", {COPY: past(1), "worst": past(2)})
    assert {name: scan.cpu_s for name, scan in found.items()} == {COPY: 3, "worst": 8}
    assert engine.asked == [10, 20] * (1 + SCANS)


def test_what_has_no_answer_is_not_asked_again() -> None:
    engine = Engine({10: [1] * 6, 20: [1, 1], 30: []})
    rounds = {COPY: past(1), "worst": past(2), "compacted": past(3)}
    found = median_scans(engine.ask, LIMIT_S, "spark", rounds)
    assert [found[name].why for name in rounds] == ["", "over 1 s", "over 1 s"]
    assert [engine.asked.count(snapshot) for snapshot in (10, 20, 30)] == [6, 3, 1]


def test_another_snapshots_answer_fails_the_benchmark() -> None:
    engine = Engine({20: [1]}, wrong=20)
    said = re.escape("duckdb's scan of bench.changed at round 2 answered [1, 2, 3]")
    with pytest.raises(SystemExit, match=said):
        past(2).ask(engine.ask, LIMIT_S, "duckdb")


def test_an_engine_starts_again_after_an_answer_that_took_too_long(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    engines: list[Any] = []

    @contextmanager
    def started(name: str, home: Path) -> Iterator[Any]:
        assert (name, home) == ("polars", tmp_path)
        engine = SimpleNamespace(is_closed=False, ask=lambda limit_s, **_: limit_s)
        engines.append(engine)
        yield engine
        engine.is_closed = True

    monkeypatch.setattr(table_scans, "started", started)
    with asking("polars", tmp_path) as ask:
        assert ask(1.0, what="full") == 1.0
        ask(1.0, what="full")
        assert len(engines) == 1
        engines[0].is_closed = True
        assert ask(2.0, what="full") == 2.0
        assert len(engines) == 2
    assert engines[1].is_closed
