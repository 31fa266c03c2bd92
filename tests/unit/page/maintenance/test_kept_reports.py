"""What is kept of the reports of maintenance runs."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from sluice.clock import SystemClock
from sluice.model import TablePath, TieringStatus
from sluice.page.cluster.seen import Seen, SeenTable
from sluice.page.maintenance.history import TASKS_MAX, RunReader, SeenRun, slim
from sluice.page.maintenance.tables import MaintainedTable, MaintenanceListing, table_model
from sluice.rounds.records.maintenance import MaintenanceRun, note_run
from sluice.rounds.upkeep.maintenance import table_report
from tests.unit.page.maintenance.test_maintenance_reads import converted, maintain


def seen_run(began_ms: int, *names: str, applied: bool) -> SeenRun:
    run = MaintenanceRun(folder=f"f{began_ms}", attempt="a", began_ms=began_ms, applied=applied)
    report = table_report(converted("x"), applied=applied)
    return SeenRun.of(run, [replace(report, table=f"shop.{one}") for one in names], is_whole=True)


def test_of_older_runs_only_what_is_shown_is_kept() -> None:
    runs = [
        seen_run(4, "a", "b", applied=False),
        seen_run(3, "a", applied=True),
        seen_run(2, "a", "c", applied=False),
        seen_run(1, "a", "b", "c", applied=True),
    ]
    kept = [*slim(runs)]
    tables = [[*each.tables] for each in kept]
    assert tables == [["shop.a", "shop.b"], ["shop.a"], ["shop.c"], ["shop.b", "shop.c"]]
    assert [each.reported for each in kept] == [2, 1, 2, 3]
    totals = [[(each.needed, each.problems, each.numbers) for each in of] for of in (kept, runs)]
    assert totals[0] == totals[1]
    assert {report.numbers is None for each in kept for report in each.tables.values()} == {True}
    assert [*slim(kept)] == kept
    paths = [TablePath("shop", name) for name in "abc"]
    seen = Seen({p: SeenTable(TieringStatus(p, 1, "Tiered", 1), 1) for p in paths}, 1, True)

    def shown(of: list[SeenRun]) -> list[MaintainedTable]:
        return [table_model(row) for row in MaintenanceListing(seen, of, {}).rows]

    assert shown(kept) == shown(runs)
    unfinished = [replace(each, is_whole=False) for each in runs]
    assert [*slim(unfinished)] == unfinished, "its totals are counted again"


class Reads:
    """A work folder and its reader, which has read two runs of the same two tables."""

    def __init__(self, tmp_path: Path) -> None:
        self.work = f"file://{tmp_path}/work"
        self.runs = [
            maintain(self.work, converted("shop.a"), converted("shop.b"), began_ms=began_ms)
            for began_ms in (1_000, 2_000)
        ]
        self._reader = RunReader(self.work, SystemClock())

    def told(self, seconds: float = 60) -> list[tuple[int, str, int, str]]:
        """Of each run when it began, its state, its tables that are shown, and its problem."""
        found, _ = self._reader.read(time.monotonic() + seconds)
        return [
            (one.run.began_ms, one.state, len(one.tables), one.problem.partition(":")[0])
            for one in found
        ]

    def note(self, run: MaintenanceRun) -> None:
        note_run(self.work, run.dag_id, run)


BOTH = [(2_000, "ended", 2, ""), (1_000, "ended", 0, "")]


def test_an_end_that_is_noted_late_reads_nothing_again(tmp_path: Path) -> None:
    """A driver writes its end file seconds before its operator notes the end of the run."""
    reads = Reads(tmp_path)
    reads.note(replace(reads.runs[1], ended_ms=None))
    assert reads.told() == BOTH
    reads.note(reads.runs[1])
    (tmp_path / "work/sluice-west-2000").rename(tmp_path / "elsewhere")
    assert reads.told(-1) == BOTH
    assert reads.told() == BOTH


def test_a_run_that_is_read_again_is_shown_until_then(tmp_path: Path) -> None:
    """A second try has the same folder. Storage is slow first, and then it fails."""
    reads = Reads(tmp_path)
    assert reads.told() == BOTH
    reads.note(replace(reads.runs[1], attempt="b", began_ms=3_000, ended_ms=None))
    assert reads.told(-1) == BOTH
    folder = tmp_path / "work/sluice-west-2000/maintenance"
    end = folder / "b-ended.json"
    end.mkdir()
    assert reads.told() == [(2_000, "ended", 2, "IsADirectoryError"), BOTH[1]]
    end.rmdir()
    assert reads.told() == [(3_000, "running", 2, ""), BOTH[1]]


def test_older_runs_are_shown_until_they_tell_what_a_gone_one_did(tmp_path: Path) -> None:
    reads = Reads(tmp_path)
    maintain(reads.work, converted("shop.b"), converted("shop.c"), began_ms=1_500, dag_id="other")
    assert reads.told() == [BOTH[0], (1_500, "ended", 1, ""), BOTH[1]]
    (tmp_path / "work/maintenance/own.json").unlink()
    reads.note(reads.runs[0])
    assert reads.told(-1) == [(1_500, "ended", 1, ""), BOTH[1]]
    assert reads.told() == [(1_500, "ended", 2, ""), (1_000, "ended", 1, "")]


def test_a_mapped_task_of_many_instances_hides_no_other_dag(tmp_path: Path) -> None:
    work = f"file://{tmp_path}/work"
    maintain(work, converted("shop.a"), began_ms=1_000, dag_id="daily")
    for index in range(TASKS_MAX + 1):
        run = MaintenanceRun(folder=f"f{index}", attempt="a", began_ms=2_000 + index, by="x")
        mapped = replace(run, dag_id="own", run_id="r", task_id="t", map_index=index)
        note_run(work, "own", mapped)
    found, _ = RunReader(work, SystemClock()).read(time.monotonic() + 60)
    assert len(found) == TASKS_MAX
    assert (found[0].run.map_index, found[-1].run.dag_id) == (TASKS_MAX, "daily")
