"""What `sluice doctor` says about a table that needs work."""

from __future__ import annotations

import pytest

from sluice.driver.table_health import _finding
from sluice.rounds.maintain import MaintenanceReport
from sluice.rounds.maintenance import TableHealth

SCATTERED = TableHealth(small_files_of_worst=90)
BOTH = TableHealth(small_files_of_worst=90, equality_files=2)
COMMAND = "`sluice maintain shop.stock --yes`, with the same --config or --warehouse, helps"
REQUESTED = "A compaction is requested: the table's next round makes it"


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (MaintenanceReport("shop.stock", SCATTERED, compaction_due=True), f"metadata. {COMMAND}"),
        (MaintenanceReport("shop.stock", SCATTERED, compaction_is_open=True), REQUESTED),
        (MaintenanceReport("shop.stock", BOTH, compaction_is_open=True), f"{REQUESTED}. {COMMAND}"),
        (
            MaintenanceReport("shop.stock", SCATTERED, is_rewritten=False),
            "metadata. No round rewrites it: the table is not tiered, or tiering.compaction_bytes"
            " is 0",
        ),
        (MaintenanceReport("shop.stock", SCATTERED, notes=["no answer"]), "metadata. no answer"),
        (MaintenanceReport("shop.stock", TableHealth(unknown="too many")), "of metadata"),
    ],
)
def test_a_table_that_needs_work_is_told_what_helps(report: MaintenanceReport, said: str) -> None:
    finding = _finding(report)
    assert (finding.ok, finding.result) == (True, "needs work")
    assert finding.seen.endswith(said)


def test_a_healthy_table_needs_no_help() -> None:
    finding = _finding(MaintenanceReport("shop.stock"))
    assert (finding.ok, finding.result, finding.seen) == (True, "", str(TableHealth()))
