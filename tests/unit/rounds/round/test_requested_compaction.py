"""A compaction that was requested: the next round makes it, also of buckets without new rows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from sluice.errors import LakeTableMismatch, NetworkError, SluiceError, SplitFailed
from sluice.model import Claim
from sluice.model import types as t
from sluice.rounds.copy import keyed as copy_keyed
from sluice.rounds.copy import log_ranges
from sluice.rounds.copy.log_ranges import ReadProgress
from sluice.rounds.round.compaction import NOTHING_TO_DO
from sluice.rounds.upkeep.compacted import CompactionReport
from sluice.rounds.upkeep.compaction import CompactionOptions
from sluice.rounds.upkeep.requested import (
    REQUEST_MS_MAX,
    CompactionRequest,
    request_ms_max,
)
from sluice.rounds.values.lake_files import BucketFiles, LiveFiles
from sluice.rounds.values.limits import LookupBudget, RoundLimits
from sluice.rounds.values.types import RepairMode, Split
from tests.support.models.memory_cluster import MemoryCluster
from tests.support.models.memory_lake import MemoryLakeTable
from tests.support.models.tables import table_info
from tests.unit.rounds.conftest import World
from tests.unit.rounds.keyed_world import KeyedWorld
from tests.unit.rounds.upkeep.test_compacted_rounds import data_files
from tests.unit.rounds.upkeep.test_rewrites import Compacted


def now_ms() -> int:
    return time.time_ns() // 1_000_000


REQUEST_MS = now_ms()


@pytest.fixture
def keyed() -> KeyedWorld:
    """Two buckets with three data files each, of rounds that compact nothing."""
    found = KeyedWorld()
    for number in range(3):
        for place in (0, 1):
            keys = {f"k{place}": number, f"k{10 + 2 * number + place}": number}
            found.put(found.bucket(place), **keys)
        found.round()
    assert len(data_files(found)) == 6
    return found


@pytest.fixture
def log() -> Compacted:
    info = table_info({"a": t.BIGINT}, buckets=1)
    found = Compacted(MemoryCluster(info), options=CompactionOptions())
    found.rounds(3)
    assert len(found.table.paths()) == 3
    return found


def test_a_round_without_new_rows_compacts_all_buckets(keyed: KeyedWorld) -> None:
    keyed.cluster.compaction_request_ms = REQUEST_MS
    snapshots = len(keyed.table.snapshots())
    result = keyed.round()
    assert result.outcome == "committed"
    assert result.compacted == "6 data files of 2 buckets were rewritten as 2"
    assert result.details().compaction_request_ms == REQUEST_MS
    assert len(data_files(keyed)) == 2
    assert len(keyed.table.snapshots()) == snapshots + 1
    assert keyed.table.unreferenced_files() == set()
    keyed.assert_equal()
    assert keyed.round().outcome == "nothing_new"  # not an empty snapshot
    assert len(keyed.table.snapshots()) == snapshots + 1


def test_a_round_compacts_besides_its_new_rows(keyed: KeyedWorld) -> None:
    keyed.cluster.compaction_request_ms = REQUEST_MS
    keyed.put(keyed.bucket(0), k0=50)
    result = keyed.round()
    assert result.files_compacted == 6
    assert result.deletes_as == "positions"
    keyed.assert_equal()
    keyed.cluster.compaction_request_ms = None
    keyed.put(keyed.bucket(0), k0=51)
    after = keyed.round()
    assert (after.files_compacted, after.compaction_request_ms) == (0, None)


def test_a_log_table_is_compacted_without_a_round_snapshot(log: Compacted) -> None:
    log.cluster.compaction_request_ms = REQUEST_MS
    registered = len(log.cluster.registered)
    result = log.round()
    assert result.outcome == "nothing_new"
    assert result.compacted == "3 data files of 1 bucket were rewritten as 1"
    assert result.compaction_request_ms == REQUEST_MS
    assert len(log.table.paths()) == 1
    assert len(log.cluster.registered) == registered
    log.append(0, 3)
    assert log.round().outcome == "committed"


def test_what_is_beyond_the_budget_waits_for_the_next_round(keyed: KeyedWorld) -> None:
    keyed.cluster.compaction_request_ms = REQUEST_MS
    keyed.compaction = CompactionOptions(bytes_max=8 * 11)  # for the files of one bucket
    first = keyed.round()
    assert (first.files_compacted, first.compaction_request_ms) == (3, None)
    second = keyed.round()
    assert (second.files_compacted, second.compaction_request_ms) == (3, REQUEST_MS)
    keyed.assert_equal()


@pytest.mark.parametrize("world", ["keyed", "log"])
def test_without_a_budget_the_request_ends_with_the_reason(
    world: str, request: pytest.FixtureRequest
) -> None:
    found: KeyedWorld | World = request.getfixturevalue(world)
    found.cluster.compaction_request_ms = REQUEST_MS
    none = CompactionOptions(bytes_max=0)
    if isinstance(found, KeyedWorld):
        found.compaction = none
    else:
        assert isinstance(found, Compacted)
        found.options = none
    result = found.round()
    assert result.outcome == "nothing_new"
    assert result.compaction_request_ms == REQUEST_MS
    why = "the requested compaction was left out: tiering.compaction_bytes is 0"
    assert result.details().compacted == why
    assert not any("compaction" in note for note in result.notes), "it is said once"


def test_a_compaction_that_others_refuse_is_tried_again(keyed: KeyedWorld) -> None:
    keyed.cluster.compaction_request_ms = REQUEST_MS
    keyed.put(keyed.bucket(0), k0=60)
    keyed.table.before_commit = lambda: keyed.table.foreign_compaction() and None
    result = keyed.round()
    assert result.compaction_request_ms is None, result.compacted
    assert "others have changed files meanwhile" in result.compacted
    keyed.assert_equal()
    assert keyed.round().compaction_request_ms == REQUEST_MS
    keyed.assert_equal()


def test_one_file_was_rewritten() -> None:
    one = CompactionReport(1, files_removed=1, files_written=1)
    assert str(one) == "1 data file of 1 bucket was rewritten as 1"


def test_a_request_stays_while_something_is_left() -> None:
    asked, refused = CompactionRequest(7), CompactionReport(left_out=1, why_not="no disk")
    assert asked.completed_ms(refused, 0) is None
    assert asked.completed_ms(CompactionReport(), 1) is None
    assert asked.completed_ms(CompactionReport(), 0) == 7


@pytest.mark.parametrize("age_ms", [REQUEST_MS_MAX - 60_000, REQUEST_MS_MAX + 60_000])
def test_a_request_ends_after_a_day(keyed: KeyedWorld, age_ms: int) -> None:
    is_old = age_ms > REQUEST_MS_MAX
    keyed.cluster.compaction_request_ms = asked_ms = now_ms() - age_ms
    result = keyed.round()
    assert (result.files_compacted, result.compaction_request_ms) == (0 if is_old else 6, asked_ms)
    assert ("it is too old" in result.compacted) == is_old


def test_a_request_of_a_table_with_seldom_rounds_stays_as_long() -> None:
    """Else the round that should carry it out would end it."""
    days = {"table.datalake.freshness": "2d"}
    assert request_ms_max(table_info({"a": t.BIGINT}, properties=days)) == 4 * REQUEST_MS_MAX
    assert request_ms_max(table_info({"a": t.BIGINT})) == REQUEST_MS_MAX


@pytest.mark.parametrize("fault", ["other spec", "too many"])
def test_a_listing_that_fails_is_no_failure_of_the_round(keyed: KeyedWorld, fault: str) -> None:
    """Only because of the request are buckets without new rows listed."""

    class Unlisted(MemoryLakeTable):
        def live_files(self, splits: Sequence[Split]) -> LiveFiles:
            found = super().live_files(splits)
            if len(found.buckets) < 2:
                return found
            if fault == "other spec":
                raise LakeTableMismatch("file x has another partition spec")
            unusable = BucketFiles(unusable="too many files")
            return replace(found, buckets=dict.fromkeys(found.buckets, unusable))

    keyed.table.__class__ = Unlisted
    keyed.cluster.compaction_request_ms = REQUEST_MS
    keyed.put(keyed.bucket(0), k0=50)
    result = keyed.round()
    assert (result.outcome, result.deletes_as) == ("committed", "positions")
    assert (result.files_compacted, result.compaction_request_ms) == (3, None)
    assert any("only buckets with new rows are compacted: " in note for note in result.notes)
    keyed.assert_equal()


def test_a_bucket_that_fails_leaves_the_request(
    keyed: KeyedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = log_ranges.read_log_range

    def failing(window: Split, *others: Any) -> ReadProgress:
        if window.bucket == keyed.bucket(0):
            raise SluiceError("no leader")
        return read(window, *others)

    monkeypatch.setattr(copy_keyed, "read_log_range", failing)
    keyed.cluster.compaction_request_ms = REQUEST_MS
    keyed.put(keyed.bucket(0), k0=50)
    with pytest.raises(SplitFailed) as failed:
        keyed.round()
    committed = failed.value.details["committed"]
    assert (committed.files_compacted, committed.compaction_request_ms) == (3, None)


def test_buckets_without_new_rows_take_no_part_of_the_look_up_budget(keyed: KeyedWorld) -> None:
    keyed.cluster.compaction_request_ms = REQUEST_MS
    keyed.put(keyed.bucket(0), k0=50)
    keyed.compaction = CompactionOptions(bytes_max=1)  # nothing fits
    keyed.lookups = LookupBudget(8 * 6)  # for the files of one bucket
    assert keyed.round().deletes_as == "positions"


def test_equality_deletes_go_with_all_older_files(keyed: KeyedWorld) -> None:
    keyed.lookups = LookupBudget(0)
    keyed.put(keyed.bucket(0), k0=70)
    keyed.round()
    keyed.lookups = LookupBudget()
    keyed.compaction = CompactionOptions(files_min=9)
    keyed.cluster.compaction_request_ms = REQUEST_MS
    assert keyed.round().compaction_request_ms == REQUEST_MS
    assert not any(keyed.table.keyed[path].deletes for path in keyed.table.paths())
    keyed.assert_equal()


def test_a_status_that_cannot_be_read_is_no_failure(keyed: KeyedWorld) -> None:
    class Unanswering(MemoryCluster):
        def compaction_requested_ms(self, claim: Claim) -> int | None:
            raise NetworkError(f"no answer about {claim.path}")

    keyed.cluster.__class__ = Unanswering
    keyed.put(keyed.bucket(0), k0=70)
    result = keyed.round()
    assert result.outcome == "committed"
    assert "not known whether a compaction was requested: no answer about db.t" in result.notes
    keyed.assert_equal()


def test_a_repair_leaves_the_request_to_the_next_round(keyed: KeyedWorld) -> None:
    keyed.cluster.compaction_request_ms = REQUEST_MS
    keyed.table.roll_back_to(keyed.table.snapshots()[1].snapshot_id)
    result = keyed.round(repair_mode=RepairMode.RETIER)
    assert result.compaction_request_ms is None
    assert keyed.round().compaction_request_ms == REQUEST_MS
    keyed.assert_equal()


def test_a_request_that_finds_nothing_says_so(keyed: KeyedWorld) -> None:
    keyed.cluster.compaction_request_ms = REQUEST_MS
    keyed.round()
    keyed.cluster.compaction_request_ms = later_ms = REQUEST_MS + 1
    result = keyed.round()
    assert (result.outcome, result.compaction_request_ms) == ("nothing_new", later_ms)
    assert result.details().compacted == NOTHING_TO_DO
    keyed.cluster.compaction_request_ms = None
    assert keyed.round().details().compacted is None


def test_a_request_that_no_round_can_carry_out_ends_with_the_reason(
    keyed: KeyedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluice.rounds.upkeep.compaction.ROW_S", 1e6)
    keyed.cluster.compaction_request_ms = REQUEST_MS
    keyed.limits = RoundLimits()
    result = keyed.round()
    assert (result.files_compacted, result.compaction_request_ms) == (0, REQUEST_MS)
    assert "cannot be compacted: 1 file of 16 bytes would take about" in result.compacted


@pytest.mark.parametrize("error", [None, NetworkError("no answer")])
def test_a_round_that_has_lost_its_claim_completes_no_request(
    log: Compacted, monkeypatch: pytest.MonkeyPatch, error: SluiceError | None
) -> None:
    """What it has rewritten is deleted."""

    def still_claimed(_self: MemoryCluster, _claim: Claim) -> bool:
        if error is not None:
            raise error
        return False

    monkeypatch.setattr(MemoryCluster, "still_claimed", still_claimed)
    log.cluster.compaction_request_ms = REQUEST_MS
    if error is not None:
        with pytest.raises(NetworkError):
            log.round()
    else:
        result = log.round()
        assert (result.outcome, result.compaction_request_ms) == ("claim_lost", None)
        assert (result.compacted, result.files_compacted) == ("", 0)
    assert len(log.table.paths()) == 3
    assert log.table.unreferenced_files() == set()
