"""What counts of a lake table say about its health."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluice.model import TableBucket
from sluice.rounds.upkeep.health import MANY_FILES, MANY_MANIFESTS, TableHealth
from sluice.rounds.upkeep.maintenance import MaintenanceReport, standing_words
from sluice.rounds.values.lake_files import (
    BucketFiles,
    LiveFile,
    LiveFiles,
    StoredKeys,
    StoredMarks,
)

ONE, TWO = TableBucket(1, None, 0), TableBucket(1, None, 1)
HEALTHY = TableHealth(buckets=2, data_files=4, data_bytes=4_000, rows=100, files_of_worst=2)


def data(path: str, rows: int = 100, sequence: int = 1) -> LiveFile:
    return LiveFile(path, rows, 1_000, 100, sequence=sequence)


def test_files_rows_and_deletes_are_counted() -> None:
    first = BucketFiles(
        (data("a"), data("b", 50, sequence=3)),
        (StoredMarks("p", 20, 10, "a"),),
        keys=(StoredKeys("k", 10, 20, 2),),
    )
    live = LiveFiles(7, {ONE: first, TWO: BucketFiles((data("c"),))})
    found = TableHealth.of(live, snapshots=3, data_manifests=2, metadata_bytes=500)
    assert (found.buckets, found.data_files, found.data_bytes) == (2, 3, 3_000)
    assert (found.rows, found.files_of_worst) == (250, 2)
    assert found.dead_rows == 30  # the equality deletes are older than b
    assert found.dead_share == 0.12
    assert (found.position_files, found.equality_files, found.equality_rows) == (1, 1, 10)
    assert str(found) == (
        "3 data files in 2 buckets, at most 2 in one, 3.0 kB, 12% deleted rows, 1 with positions,"
        " 1 with equality deletes, 3 snapshots, 2 manifests, 500 bytes of metadata"
    )
    assert list(found.needs()) == [
        "1 equality delete file: PyIceberg, polars and Snowflake refuse the table"
    ]


def test_an_empty_table_needs_nothing() -> None:
    found = TableHealth.of(LiveFiles(None, {}))
    assert list(found.needs()) == []
    assert (found.dead_share, found.is_scattered) == (0.0, False)


@pytest.mark.parametrize(
    ("changes", "words", "is_scattered"),
    [
        ({"small_files_of_worst": MANY_FILES}, "", False),
        ({"small_files_of_worst": MANY_FILES + 1}, "up to 17 small data files in a bucket", True),
        ({"files_of_worst": MANY_FILES + 1}, "", False),
        ({"keeps_files": True}, "", False),
        ({"dead_rows": 30}, "", False),
        ({"dead_rows": 31}, "about 31% of its rows are deleted", True),
        ({"equality_files": 1}, "1 equality delete file: ", False),
        ({"useless_equality_files": 2}, "2 equality delete files: ", False),
        ({"data_manifests": MANY_MANIFESTS + 1}, "", False),
        ({"small_data_manifests": MANY_MANIFESTS}, "", False),
        ({"small_data_manifests": MANY_MANIFESTS + 1}, "21 small manifests of data files", False),
        ({"unknown": "too many"}, "its files could not be counted: too many", False),
    ],
)
def test_each_need_has_a_bound(changes: dict[str, int], words: str, is_scattered: bool) -> None:
    found = replace(HEALTHY, **changes)
    needs = list(found.needs())
    assert len(needs) == bool(words)
    assert all(need.startswith(words) for need in needs)
    assert found.is_scattered == is_scattered


def test_full_files_are_not_worth_rewriting() -> None:
    full = [LiveFile(f"f{i}", 100, 450 << 20, 100) for i in range(20)]
    small = [data(f"s{i}") for i in range(3)]
    found = TableHealth.of(LiveFiles(7, {ONE: BucketFiles((*full, *small))}))
    assert (found.files_of_worst, found.small_files_of_worst) == (23, 3)
    assert not found.is_scattered


def test_files_that_no_round_rewrites_ask_for_no_compaction() -> None:
    small = tuple(data(f"s{i}") for i in range(MANY_FILES + 1))
    why = "a user has chosen its partition fields"
    found = TableHealth.of(LiveFiles(7, {ONE: BucketFiles(small, not_rewritable=why)}))
    assert (found.is_scattered, list(found.needs())) == (False, [])
    report = MaintenanceReport("shop.clicks", found)
    assert standing_words(report) == [f"rounds do not compact it: {why}"]
