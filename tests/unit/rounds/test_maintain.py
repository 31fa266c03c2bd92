"""What maintenance does to a table that rounds work on: what they may still need stays."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from sluice.model import TablePath
from sluice.rounds.clean import StoredFile
from sluice.rounds.conversion import ConversionRunner
from sluice.rounds.history import HistoryEntry
from sluice.rounds.maintain import MaintenanceOptions, maintain
from sluice.rounds.maintenance import Conversion, TableHealth
from sluice.rounds.maintenance_names import MAINTENANCE_KEY, new_maintenance_id, orphans_in
from sluice.rounds.types import COMMIT_USER, COMMIT_USER_KEY
from sluice.testing.memory_lake import MemoryLakeTable

PATH = TablePath("db", "t")
MINUTE_MS = 60_000


class NothingToDo:
    """A table that needs nothing but expiry."""

    def health(self) -> TableHealth:
        return TableHealth()

    def convert(self, memory_bytes: int, run: ConversionRunner | None = None) -> Conversion:
        return Conversion()

    def merge_manifests(self) -> int:
        return 0

    def remove_metadata_orphans(self, before_ms: int) -> tuple[int, int]:
        return 0, 0


@dataclass
class Table(MemoryLakeTable):
    """A table with a snapshot of a round a minute."""

    at_ms: int = 0
    properties: dict[str, str] = field(
        default_factory=lambda: {
            "history.expire.max-snapshot-age-ms": "1",
            "history.expire.min-snapshots-to-keep": "1",
        }
    )

    def __post_init__(self) -> None:
        self.now_ms = lambda: self.at_ms
        for _ in range(30):
            self.at_ms += MINUTE_MS
            self.tagged = self.foreign_commit((), {COMMIT_USER_KEY: COMMIT_USER})

    def maintenance(self) -> NothingToDo:
        return NothingToDo()


@pytest.mark.parametrize(("round_ms", "kept"), [(0, 1), (5 * MINUTE_MS, 11)])
def test_snapshots_stay_that_a_running_round_may_read(round_ms: int, kept: int) -> None:
    """Those of twice its time, though no round that has ended took as long."""
    table = Table("mem:/t")
    report = maintain(PATH, table, MaintenanceOptions(1, table.at_ms, round_ms), apply=True)
    assert report.notes == []
    assert len(table.stored_snapshots().entries) == kept
    assert report.snapshots_expired == 30 - kept


def test_a_conversion_changes_no_rows() -> None:
    """So a repair neither asks about it, nor is refused because of it."""
    summary = {"operation": "delete"}
    assert HistoryEntry(1, None, 1, summary).changes_rows
    converted = {**summary, MAINTENANCE_KEY: "maintenance-1"}
    assert not HistoryEntry(1, None, 1, converted).changes_rows


def test_old_files_of_another_table_in_the_same_folder_stay() -> None:
    ours, theirs = (f"0000000{n}-0000-4000-8000-000000000000" for n in (1, 2))
    names = [f"00000-0-{new_maintenance_id(one)}-00001.parquet" for one in (ours, theirs)]
    files = [StoredFile(f"mem:/t/{name}", 1, 10) for name in names]
    assert orphans_in(files, frozenset(), 11, ours) == files[:1]
    assert orphans_in(files, frozenset(), 10, ours) == []
    assert orphans_in(files, {names[0]}, 11, ours) == []
    assert orphans_in([StoredFile(files[0].path, 1, None)], frozenset(), 11, ours) == []
