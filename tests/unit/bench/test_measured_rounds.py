"""What is said of many rounds: their mean, the dearest, and how much was rewritten."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.lake.measured_rounds import (
    report_compactions,
    report_rounds,
    rewritten,
    rewritten_of_plain,
)
from bench.measure import Cost
from sluice.model import Claim, TablePath
from sluice.rounds.records.result import RoundResult

CLAIM = Claim(1, TablePath("bench", "changed"), 1, 1)


def result(written: int, rewritten_bytes: int = 0, **more: Any) -> RoundResult:
    facts = {
        "bytes_written": written,
        "files_compacted": 4 * (rewritten_bytes > 0),
        "compaction_written_bytes": rewritten_bytes,
        "seconds": {"total": 0.5},
    }
    return RoundResult.of(CLAIM, "committed", **{**facts, **more})


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("BENCH_JSON", str(tmp_path / "lines"))
    return tmp_path / "lines"


def values(lines: Path) -> dict[str, float]:
    found = map(json.loads, lines.read_text().splitlines())
    return {line["name"].strip(): line["value"] for line in found}


def test_the_mean_and_the_dearest_round_are_reported(lines: Path) -> None:
    measured = [(Cost(cpu_s), result(1000)) for cpu_s in (1.0, 4.0, 1.0, 2.0)]
    report_rounds("lake_scans", measured, "4 rounds")
    found = values(lines)
    assert (found["lake_scans"], found["most"]) == (2.0, 4.0)
    assert (found["first_rounds"], found["last_rounds"]) == (2.5, 1.5)
    assert found["phase: total"] == 500


def test_bytes_rewritten_are_those_of_compacted_files() -> None:
    """Only of a table with a primary key does a round count them among all that it has written."""
    keyed = [result(100), result(400, 350), result(100), result(100)]
    assert rewritten(keyed, has_key=True) == 350 / 350
    assert rewritten_of_plain(keyed) == 350 / 400
    log = [result(100), result(100, 300)]
    assert rewritten(log, has_key=False) == 300 / 200


def test_rounds_that_wrote_nothing_else_have_no_ratio() -> None:
    assert rewritten([result(300, 300)], has_key=True) is None
    assert rewritten_of_plain([result(300, 300)]) is None
    assert rewritten([], has_key=False) is None


def test_what_compactions_needed_is_the_most_of_a_round(lines: Path) -> None:
    told = [
        result(1, deletes=3, deletes_as="equality deletes (too many files)"),
        result(9, 8, compaction_memory_bytes=5_000_000, compaction_ms=20, compaction_cpu_ms=600),
        result(9, 8, compaction_memory_bytes=2_000_000, compaction_spilled_bytes=1_000_000),
        result(1, compacted="1 bucket left out: no time", deletes=1, deletes_as="positions"),
    ]
    report_compactions(told, has_key=True)
    found = values(lines)
    assert found["compactions"] == 2
    assert found["with_equality_deletes"] == 1
    assert found["compaction_cpu"] == 0.15
    most = {name: found[f"compaction_{name}"] for name in ("memory", "spilled", "wall")}
    assert most == {"memory": 5, "spilled": 1, "wall": 20}
    assert "1 left some out: 1 bucket left out: no time" in lines.read_text()


def test_rounds_without_compactions_say_so(lines: Path) -> None:
    report_compactions([result(1)], has_key=True)
    assert values(lines) == {"compactions": 0, "with_equality_deletes": 0}
