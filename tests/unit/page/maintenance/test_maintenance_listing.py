"""The list of tables for the maintenance, without a cluster."""

from __future__ import annotations

from dataclasses import replace

from sluice.model import TablePath, TieringRound, TieringStatus
from sluice.page.cluster.seen import Seen, SeenTable
from sluice.page.cluster.wanted import Wanted
from sluice.page.maintenance.history import RoundFacts, SeenRun, facts_of
from sluice.page.maintenance.tables import MaintenanceListing, matching, table_model
from sluice.rounds.records.maintenance import MaintenanceRun
from sluice.rounds.upkeep.conversion import Conversion
from sluice.rounds.upkeep.health import TableHealth
from sluice.rounds.upkeep.maintenance import MaintenanceReport, table_report
from tests.support.programs.own_cpu import least_cpu_s

COMPACTED = TieringRound(
    outcome="committed",
    compacted="bucket 0: 5 files became 1",
    files_compacted=5,
    lake_files=3,
)
EXPIRED = TieringRound(outcome="committed", snapshots_expired=4, files_expired=9)
CONVERTED = MaintenanceReport(
    "x",
    TableHealth(equality_files=2, data_manifests=5),
    TableHealth(data_manifests=2),
    conversion=Conversion(files_removed=2, rows=6),
)

PLAIN = TablePath("shop", "d")


def test_facts_begin_again_with_a_table_that_was_dropped_and_created() -> None:
    known = RoundFacts(7, 30, compacted=COMPACTED)
    status = TieringStatus(TablePath("shop", "a"), 8, "Tiered", 3, rounds=2)
    assert facts_of(known, status, []).compacted is None
    same = replace(status, table_id=7, rounds=31)
    assert facts_of(known, same, [EXPIRED]).compacted == COMPACTED
    long = replace(COMPACTED, compacted="a few words " * 1_000)
    kept = facts_of(known, same, [long]).compacted
    assert kept is not None
    assert 480 < len(kept.compacted or "") <= 500


def test_a_request_is_found_whatever_else_the_table_needs() -> None:
    asked = TieringStatus(TablePath("shop", "a"), 1, "Tiered", 3, compaction_requested_ms=7)
    others = (replace(asked, path=TablePath("shop", name)) for name in ("b", "c"))
    statuses = (asked, *others, replace(asked, path=PLAIN, compaction_requested_ms=None))
    seen = Seen({each.path: SeenTable(each, 1_000) for each in statuses}, 1_000, True)
    report = table_report(CONVERTED, applied=True)
    reports = (
        replace(report, table="shop.a", problems=("refused",)),
        replace(report, table="shop.b", needs_now=("needs it",)),
    )
    run = SeenRun.of(MaintenanceRun(folder="sluice-x", attempt="a", began_ms=1), reports)
    listing = MaintenanceListing(seen, [run], {})
    assert [row.state for row in listing.rows] == ["problem", "needs", "requested", "unknown"]
    assert listing.by_state == {"problem": 1, "needs": 1, "requested": 3, "unknown": 1}
    for state, paths in (("requested", "abc"), ("problem", "a"), ("unknown", "d")):
        found = matching(listing.rows, Wanted(states=(state,)))
        assert [row.path for row in found] == [f"shop.{name}" for name in paths]


def test_5000_tables_are_answered_at_once() -> None:
    paths = [TablePath("shop", f"table_{at:04d}") for at in range(5_000)]
    statuses = {
        path: SeenTable(TieringStatus(path, at, "Tiered", 1, rounds=9), 1_000)
        for at, path in enumerate(paths)
    }
    report = table_report(CONVERTED, applied=True)
    reports = [replace(report, table=str(path)) for path in paths]
    run = SeenRun.of(MaintenanceRun(folder="sluice-x", attempt="a", began_ms=1), reports)
    facts = {path: RoundFacts(at, 9, compacted=COMPACTED) for at, path in enumerate(paths)}
    seen = Seen(statuses, 1_000, True)
    listing = MaintenanceListing(seen, [run] * 10, facts)

    def answered() -> int:
        rows = matching(listing.rows, Wanted("table 49", sort="last_compacted", descending=True))
        return len([table_model(row).model_dump_json() for row in rows[:100]])

    assert answered() == 100
    assert least_cpu_s(lambda: MaintenanceListing(seen, [run] * 10, facts)) < 1, "about 50 ms"
    assert least_cpu_s(answered) < 0.25, "about 10 ms"
