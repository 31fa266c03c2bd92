"""A bucket that cannot be copied fails the round, but the other buckets are committed."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

from sluice.errors import (
    ClaimLost,
    LakeRolledBack,
    LogOffsetOutOfRange,
    NetworkError,
    SplitFailed,
    StorageError,
)
from sluice.model import TableInfo, TablePath
from sluice.rounds.records.result import RoundFailure
from sluice.rounds.repair.request import RepairRequest
from sluice.rounds.repair.round import run_repair
from sluice.rounds.round.round import run_round
from sluice.rounds.values.attempt import RoundPorts
from sluice.rounds.values.ports import SplitRunner, SplitWriterFactory
from sluice.rounds.values.reasons import failure_of
from sluice.rounds.values.types import LogRecords, RepairMode, Split
from tests.support.models.memory_cluster import MemoryCluster
from tests.unit.rounds.conftest import World


class Broken(MemoryCluster):
    """Buckets that cannot be read, with their errors."""

    broken: dict[int, Exception]

    def read(self, split: Split) -> Iterator[LogRecords]:
        if split.bucket.bucket in self.broken:
            raise self.broken[split.bucket.bucket]
        yield from super().read(split)


def with_broken(world: World, broken: dict[int, Exception]) -> None:
    world.cluster.__class__ = Broken
    world.cluster.broken = broken  # type: ignore[attr-defined]


def ends(world: World) -> dict[int, int]:
    assert world.cluster.info is not None
    registered = world.cluster.lake_snapshot(world.cluster.info.path)
    return {b.bucket: end for b, end in registered.offsets.items()} if registered else {}


def test_the_other_buckets_are_committed_and_the_round_fails(world: World) -> None:
    world.append(0, 3)
    world.append(1, 2)
    world.round()
    world.append(0, 4)
    world.append(1, 5)
    with_broken(world, {1: StorageError("disk on fire")})
    with pytest.raises(SplitFailed) as caught:
        world.round()
    assert str(caught.value) == (
        "bucket 1 of table db.t failed, 1 other bucket was committed: StorageError: disk on fire"
    )
    assert ends(world) == {0: 7, 1: 2}
    assert world.offsets_in_lake(0) == list(range(7))
    assert world.offsets_in_lake(1) == [0, 1]
    assert world.table.unreferenced_files() == set()
    failure = RoundFailure.from_json(failure_of(caught.value).to_json())
    details = failure.details("me")
    newest = world.table.newest_tiering_snapshot()
    assert newest is not None
    assert (details.rows_written, details.files_written, details.worker) == (4, 1, "me")
    assert details.lake_snapshot_id == newest.snapshot_id
    assert (details.lag_rows_before, details.lag_rows_after) == (9, 5)
    assert details.fluss_commit_ms is not None
    assert details.outcome is None
    assert failure_of(pickle.loads(pickle.dumps(caught.value))).committed == failure.committed
    with_broken(world, {})
    assert world.round().rows == 5
    world.assert_exactly_once()


def test_another_try_of_the_same_round_copies_only_the_failed_bucket(world: World) -> None:
    world.append(0, 3)
    world.append(1, 2)
    claim = world.cluster.begin_round()
    with_broken(world, {1: StorageError("disk on fire")})
    for _ in range(2):  # the second has nothing to commit
        with pytest.raises(SplitFailed):
            world.round(claim)
    assert len(world.table.snapshots()) == 1
    with_broken(world, {})
    result = world.round(claim)
    assert (result.outcome, result.rows) == ("committed", 2)
    world.assert_exactly_once()


def test_if_all_buckets_fail_nothing_is_committed(world: World) -> None:
    world.append(0, 3)
    world.append(1, 2)
    with_broken(world, {0: StorageError("no 0"), 1: StorageError("no 1")})
    with pytest.raises(SplitFailed) as caught:
        world.round()
    assert str(caught.value) == (
        "bucket 0 of table db.t and 1 other bucket failed: StorageError: no 0"
    )
    assert failure_of(caught.value).committed is None
    assert world.table.snapshots() == []


def test_the_named_bucket_is_one_that_no_retry_repairs(world: World) -> None:
    world.append(0, 3)
    world.append(1, 2)
    with_broken(world, {0: StorageError("no 0"), 1: LogOffsetOutOfRange("no 1")})
    with pytest.raises(SplitFailed, match="bucket 1 .* LogOffsetOutOfRange: no 1") as caught:
        world.round()
    assert failure_of(caught.value).reason.retryable  # bucket 0 may succeed


def test_a_lost_claim_in_a_split_commits_nothing(world: World) -> None:
    world.append(0, 3)
    world.append(1, 2)
    with_broken(world, {1: ClaimLost("the round was cancelled")})
    with pytest.raises(SplitFailed, match="the round was cancelled") as caught:
        world.round()
    assert failure_of(caught.value).committed is None
    assert world.table.snapshots() == []
    assert world.table.files == {}


def test_a_claim_lost_before_the_commit_commits_nothing(world: World) -> None:
    world.append(0, 3)
    world.append(1, 2)
    claim = world.cluster.begin_round()
    world.cluster.begin_round()
    with_broken(world, {1: StorageError("disk on fire")})
    assert world.round(claim).is_given_up
    assert world.table.files == {}


def test_if_the_coordinator_does_not_answer_after_a_failure_nothing_is_committed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.append(0, 3)
    world.append(1, 2)
    with_broken(world, {1: StorageError("disk on fire")})

    def silent(path: TablePath) -> TableInfo:
        raise NetworkError(f"no answer about {path}")

    def runner(info: TableInfo, writers: SplitWriterFactory) -> SplitRunner:
        monkeypatch.setattr(world.cluster, "table_info", silent)
        return world.runner(info, writers)

    claim = world.cluster.begin_round()
    with pytest.raises(SplitFailed, match=r"bucket 1 .*: disk on fire"):
        run_round(claim, RoundPorts(world.cluster, world.lake, runner), "x")
    assert world.table.files == {}


def test_a_repair_commits_all_buckets_or_none(rolled_back: World) -> None:
    world, before = rolled_back, ends(rolled_back)
    files = set(world.table.files)
    with_broken(world, {0: StorageError("disk on fire")})
    with pytest.raises(SplitFailed, match="disk on fire"):
        run_repair(
            world.cluster.begin_round(),
            RoundPorts(world.cluster, world.lake, world.runner),
            "x",
            RepairRequest(mode=RepairMode.RETIER),
        )
    assert ends(world) == before
    assert set(world.table.files) == files
    with pytest.raises(LakeRolledBack):
        world.round()
