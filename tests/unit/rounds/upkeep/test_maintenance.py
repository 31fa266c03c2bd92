"""What maintenance does to a table that rounds work on: what they may still need stays."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import pytest

from sluice.errors import LakeCommitRefused
from sluice.model import TablePath
from sluice.rounds.upkeep.compaction import DEFAULT_COMPACTIONS, CompactionOptions
from sluice.rounds.upkeep.conversion import Conversion, ConversionRunner
from sluice.rounds.upkeep.health import TableHealth
from sluice.rounds.upkeep.maintenance import (
    NOT_REWRITTEN,
    MaintenanceOptions,
    due_words,
    maintain,
    report_line,
    standing_words,
)
from sluice.rounds.upkeep.orphans import StoredFile, new_maintenance_id, orphans_in
from sluice.rounds.values.expiry import Expired, ExpiryRule
from sluice.rounds.values.history import MAINTENANCE_KEY, HistoryEntry
from sluice.rounds.values.types import COMMIT_USER, COMMIT_USER_KEY
from tests.support.models.memory_lake import MemoryLakeTable

PATH = TablePath("db", "t")
MINUTE_MS = 60_000


class NothingToDo:
    """A table that needs nothing but expiry."""

    def __init__(self, table: MemoryLakeTable) -> None:
        self._table = table

    def health(self, options: CompactionOptions = DEFAULT_COMPACTIONS) -> TableHealth:
        return TableHealth()

    def convert(
        self, memory_bytes: int, run: ConversionRunner | None = None, done: Conversion | None = None
    ) -> Conversion:
        return Conversion()

    def merge_manifests(self) -> int:
        return 0

    def due_snapshots(self, rule: ExpiryRule) -> int:
        return len(rule.choose(self._table.stored_snapshots()))

    def remove_metadata_orphans(self, before_ms: int, *, apply: bool = True) -> tuple[int, int]:
        return 0, 0


@dataclass
class Table(MemoryLakeTable):
    """A table with a snapshot of a round a minute."""

    at_ms: int = 0
    count: int = 30
    properties: dict[str, str] = field(
        default_factory=lambda: {
            "history.expire.max-snapshot-age-ms": "1",
            "history.expire.min-snapshots-to-keep": "1",
        }
    )

    def __post_init__(self) -> None:
        self.now_ms = lambda: self.at_ms
        for _ in range(self.count):
            self.at_ms += MINUTE_MS
            self.tagged = self.foreign_commit((), {COMMIT_USER_KEY: COMMIT_USER})

    def maintenance(self) -> NothingToDo:
        return NothingToDo(self)


@pytest.mark.parametrize(("round_ms", "kept"), [(0, 1), (5 * MINUTE_MS, 11)])
def test_snapshots_stay_that_a_running_round_may_read(round_ms: int, kept: int) -> None:
    """Those of twice its time, though no round that has ended took as long."""
    table = Table("mem:/t")
    report = maintain(PATH, table, MaintenanceOptions(1, table.at_ms, round_ms), apply=True)
    assert report.notes == []
    assert len(table.stored_snapshots().entries) == kept
    assert report.snapshots_expired == 30 - kept


def test_the_registered_snapshot_stays_though_main_has_gone_on() -> None:
    """A round that died between its two commits: the next one compares both snapshots."""
    table = Table("mem:/t")
    registered = table.snapshots()[20].snapshot_id
    options = MaintenanceOptions(1, table.at_ms, 0, registered=registered)
    report = maintain(PATH, table, options, apply=True)
    newest = table.snapshots()[0].snapshot_id
    assert set(table.stored_snapshots().entries) == {registered, newest}
    assert report.snapshots_expired == 28
    again = maintain(PATH, table, options, apply=False)
    assert again.snapshots_due == 0


def test_all_snapshots_that_may_expire_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if they are more than expire together. A report says how many there are."""
    monkeypatch.setattr("sluice.rounds.upkeep.maintenance.EXPIRED_MAX", 100)
    table = Table("mem:/t", count=250)
    options = MaintenanceOptions(1, table.at_ms, 0)
    seen = maintain(PATH, table, options, apply=False)
    assert (seen.snapshots_due, seen.snapshots_expired) == (249, 0)
    assert due_words(seen) == ["249 snapshots may expire"]
    kept = replace(options, expires=False)
    assert maintain(PATH, table, kept, apply=False).snapshots_due == 0
    report = maintain(PATH, table, options, apply=True)
    assert report.snapshots_expired == 249
    assert len(table.stored_snapshots().entries) == 1


def test_others_that_are_faster_are_no_problem_of_an_expiry() -> None:
    class Busy(Table):
        def expire_by(self, rule: ExpiryRule) -> Expired:
            if len(self.stored_snapshots().entries) < 20:
                raise LakeCommitRefused("too late", conflict=True)
            return super().expire_by(replace(rule, going_max=20))

    table = Busy("mem:/t")
    report = maintain(PATH, table, MaintenanceOptions(1, table.at_ms, 0), apply=True)
    assert (report.notes, report.snapshots_expired) == ([], 20)


def test_whatever_ends_a_step_the_others_follow() -> None:
    """What a step has done before its error is reported."""

    class Bad(NothingToDo):
        def health(self, options: CompactionOptions = DEFAULT_COMPACTIONS) -> TableHealth:
            return TableHealth(equality_files=4)

        def convert(
            self,
            memory_bytes: int,
            run: ConversionRunner | None = None,
            done: Conversion | None = None,
        ) -> Conversion:
            assert done is not None
            done.files_removed = 3
            raise OSError("no space left")

    class Broken(Table):
        def maintenance(self) -> NothingToDo:
            return Bad(self)

    table = Broken("mem:/t")
    table.properties["history.expire.max-snapshot-age-ms"] = "5d"
    requests = Requests()
    options = MaintenanceOptions(1, table.at_ms, 0, requests=requests)
    report = maintain(PATH, table, options, apply=True)
    assert report.notes == [
        "could not convert equality deletes: OSError: no space left",
        "could not expire snapshots: ValueError: table property"
        " history.expire.max-snapshot-age-ms='5d' is not a whole number",
    ]
    assert report.conversion is not None
    assert report.conversion.files_removed == 3
    assert (report.compaction_requested, requests.made) == (True, 1)


@dataclass
class Requests:
    """The request with a table's status."""

    made: int = 0

    def is_open(self) -> bool:
        return self.made > 0

    def make(self) -> None:
        self.made += 1


class OfRounds(NothingToDo):
    """A table whose rounds add equality deletes while others are converted."""

    left: ClassVar[dict[str, str]] = {}
    later = TableHealth(equality_files=2)

    def __init__(self, table: MemoryLakeTable) -> None:
        super().__init__(table)
        self.seen = [self.later, TableHealth(equality_files=4)]

    def health(self, options: CompactionOptions = DEFAULT_COMPACTIONS) -> TableHealth:
        return self.seen.pop()

    def convert(
        self, memory_bytes: int, run: ConversionRunner | None = None, done: Conversion | None = None
    ) -> Conversion:
        assert done is not None
        done.left, done.is_complete = self.left, not self.left
        return done


@pytest.mark.parametrize(
    ("left", "later", "is_requested"),
    [
        ({}, TableHealth(equality_files=2), False),
        ({}, TableHealth(equality_files=2, rows=10, dead_rows=4), True),
        ({"bucket 0": "memory"}, TableHealth(equality_files=2), True),
        ({"bucket 0": "memory"}, TableHealth(), False),  # a round has rewritten it meanwhile
    ],
)
def test_deletes_that_rounds_add_meanwhile_need_no_compaction(
    left: dict[str, str], later: TableHealth, is_requested: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OfRounds, "left", left)
    monkeypatch.setattr(OfRounds, "later", later)
    monkeypatch.setattr(Table, "maintenance", lambda table: OfRounds(table))
    table, requests = Table("mem:/t"), Requests()
    options = MaintenanceOptions(1, table.at_ms, 0, requests=requests)
    report = maintain(PATH, table, options, apply=True)
    assert (report.compaction_requested, requests.made) == (is_requested, int(is_requested))
    assert not report.compaction_is_open
    assert report.notes == []


def test_a_request_that_is_open_is_shown_and_not_made_again() -> None:
    class Scattered(NothingToDo):
        def health(self, options: CompactionOptions = DEFAULT_COMPACTIONS) -> TableHealth:
            return TableHealth(small_files_of_worst=90)

    class Small(Table):
        def maintenance(self) -> NothingToDo:
            return Scattered(self)

    table, requests = Small("mem:/t"), Requests()
    options = MaintenanceOptions(1, table.at_ms, 0, requests=requests, expires=False)
    seen = maintain(PATH, table, options, apply=False)
    assert (seen.compaction_due, seen.compaction_is_open) == (True, False)
    assert maintain(PATH, table, options, apply=True).compaction_requested
    seen = maintain(PATH, table, options, apply=False)
    assert (seen.compaction_due, seen.compaction_is_open) == (False, True)
    open_words = "a compaction is requested already: the table's next round makes it"
    assert standing_words(seen) == [open_words]
    assert report_line(seen, applied=False).endswith(f"; {open_words}")
    again = maintain(PATH, table, options, apply=True)
    assert (again.compaction_requested, again.compaction_is_open) == (False, True)
    assert requests.made == 1
    nobody = replace(options, requests=None)
    for apply in (False, True):
        without = maintain(PATH, table, nobody, apply=apply)
        assert (without.compaction_due, without.compaction_requested) == (False, False)
        assert NOT_REWRITTEN in report_line(without, applied=apply)


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
