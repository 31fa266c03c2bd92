"""What is kept of the reports of maintenance runs."""

from __future__ import annotations

from dataclasses import replace

from sluice.model import TablePath, TieringStatus
from sluice.page.maintenance_models import MaintainedTable
from sluice.page.maintenance_runs import SeenRun, slim
from sluice.page.maintenance_tables import MaintenanceListing, table_model
from sluice.page.seen import Seen, SeenTable
from sluice.rounds.maintenance_files import TableReport
from sluice.rounds.maintenance_runs import MaintenanceRun
from tests.unit.page.test_maintenance_reads import converted


def seen_run(began_ms: int, *names: str, applied: bool) -> SeenRun:
    run = MaintenanceRun(folder=f"f{began_ms}", attempt="a", began_ms=began_ms, applied=applied)
    report = TableReport.of(converted("x"), applied=applied)
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
    assert [each.totals for each in kept] == [each.totals for each in runs]
    assert {report.numbers is None for each in kept for report in each.tables.values()} == {True}
    assert [*slim(kept)] == kept
    paths = [TablePath("shop", name) for name in "abc"]
    seen = Seen({p: SeenTable(TieringStatus(p, 1, "Tiered", 1), 1) for p in paths}, 1, True)

    def shown(of: list[SeenRun]) -> list[MaintainedTable]:
        return [table_model(row) for row in MaintenanceListing(seen, of, {}).rows]

    assert shown(kept) == shown(runs)
    unfinished = [replace(each, is_whole=False) for each in runs]
    assert [*slim(unfinished)] == unfinished, "its totals are counted again"
