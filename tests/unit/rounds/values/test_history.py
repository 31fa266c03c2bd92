"""What is known of a history whose oldest snapshot has no parent: it may be hidden."""

from __future__ import annotations

import pytest

from sluice.rounds.values.history import HistoryEntry, LakeHistory

TOTALS = ("total-records", "added-records", "deleted-records")


def entry(number: int, *counts: int, parent: int | None = None) -> HistoryEntry:
    """:param counts: total, added and deleted rows, as far as its writer recorded them."""
    summary = {name: str(count) for name, count in zip(TOTALS, counts, strict=False)}
    return HistoryEntry(100 + number, parent, number, summary)


def history(*entries: HistoryEntry) -> LakeHistory:
    return LakeHistory(entries[0].snapshot_id, None, {one.snapshot_id: one for one in entries})


@pytest.mark.parametrize(
    ("counts", "rows"),
    [((), None), ((7,), 7), ((7, 7), 0), ((7, 3), 4), ((4, 0, 3), 7)],
)
def test_rows_with_which_a_commit_began(counts: tuple[int, ...], rows: int | None) -> None:
    assert entry(3, *counts).rows_before == rows
    only_added = HistoryEntry(1, None, 3, {"added-records": "3"})
    assert only_added.rows_before is None
    assert HistoryEntry(1, None, 3, {"total-records": "many"}).rows_before is None


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([entry(1, 5, 5)], True),
        ([entry(1)], True),
        ([entry(6, 5, 5)], True),  # CREATE OR REPLACE TABLE: a new first snapshot
        ([entry(6, 5)], False),
        ([entry(6, 8, 3)], False),
        ([entry(6)], False),  # nothing says that the table was empty
        ([entry(0, 5, 5)], True),  # Iceberg's first format
        ([entry(0, 8, 3)], False),
        ([entry(2, 8, 3, parent=101), entry(1, 5, 5)], True),
        ([entry(2, 8, 3, parent=101)], False),
    ],
)
def test_a_complete_history_begins_with_an_empty_table(
    entries: list[HistoryEntry], expected: bool
) -> None:
    assert history(*entries).is_complete() is expected


@pytest.mark.parametrize(
    ("entries", "hidden"),
    [
        ([], False),
        ([entry(6, 8, 3)], True),
        ([entry(6)], True),
        ([entry(6, 5, 5)], False),
        ([entry(2, 8, 3, parent=101), entry(1, 5, 5)], False),
        ([entry(2, 8, 3, parent=101)], False),  # expired, not hidden
    ],
)
def test_rows_of_commits_that_the_catalog_hides(entries: list[HistoryEntry], hidden: bool) -> None:
    found = history(*entries) if entries else LakeHistory(None, None, {})
    assert found.began_with_hidden_rows() == (entries[-1] if hidden else None)


@pytest.mark.parametrize(
    ("entries", "since", "expected"),
    [
        ([entry(1, 5, 5)], 0, True),
        ([entry(2, 8, 3)], 0, False),  # snapshot 1 may be this driver's own commit
        ([entry(2, 8, 3)], 1, True),
        ([entry(3, 8, 3)], 1, False),
        ([entry(2, 8, 3, parent=101), entry(1, 5, 5)], 0, True),
        ([entry(0, 5, 5)], 0, True),
    ],
)
def test_a_hidden_ancestor_is_not_known(
    entries: list[HistoryEntry], since: int, expected: bool
) -> None:
    assert history(*entries).is_known_since(since) is expected


def test_nothing_was_ever_committed() -> None:
    assert LakeHistory(None, None, {}).is_complete()
    assert LakeHistory(None, None, {}).is_known_since(0)
