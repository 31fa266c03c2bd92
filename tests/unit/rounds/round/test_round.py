"""What must always hold of a round of a log table, on the models of cluster and lake."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from sluice.errors import (
    FlussError,
    LakeCommitOutcomeUnknown,
    LakeCommitRefused,
    LogBeginsAfterLake,
    NetworkError,
    SplitFailed,
    UnsupportedLakeOption,
)
from sluice.model import Claim, TableBucket, TableInfo, TablePath, offsets_from_text
from sluice.rounds.round.round import run_round
from sluice.rounds.values.attempt import RoundPorts
from sluice.rounds.values.offsets import SUMMARY_BYTES_MAX
from sluice.rounds.values.phases import seconds_of
from sluice.rounds.values.ports import SplitRunner, SplitWriterFactory
from sluice.rounds.values.reasons import failure_of
from sluice.rounds.values.types import Split, SplitFailure, SplitResult
from tests.support.models.memory_cluster import MemoryCluster
from tests.unit.rounds.conftest import World

STEPS = [
    f"round.{step}.{when}"
    for step in ("recover", "plan", "copy", "prepare", "lake_commit", "fluss_commit")
    for when in ("before", "after")
]


def test_a_round_commits_what_is_new(world: World) -> None:
    world.append(0, 3)
    world.append(1, 2)
    first = world.round()
    assert (first.outcome, first.rows, first.files) == ("committed", 5, 2)
    assert first.offsets == {"0": 3, "1": 2}
    assert set(first.seconds) == {
        "recover", "plan", "copy", "prepare", "lake_commit", "fluss_commit", "total",
    }  # fmt: skip
    world.append(0, 4)
    second = world.round()
    assert (second.rows, second.offsets) == (4, {"0": 7, "1": 2})
    world.assert_exactly_once()


def test_the_summary_says_whose_snapshot_it_is(world: World) -> None:
    world.append(0, 3)
    claim = world.cluster.begin_round()
    world.round(claim)
    summary = dict(world.table.snapshots()[0].summary)
    assert summary["commit-user"] == "__fluss_lake_tiering"
    assert world.cluster.offsets_files[summary["fluss-offsets"]] == {world.bucket(0): 3}
    assert summary["sluice.table-id"] == "1"
    assert summary["sluice.tiering-epoch"] == str(claim.tiering_epoch)
    assert summary["sluice.coordinator-epoch"] == str(claim.coordinator_epoch)
    assert offsets_from_text(summary["sluice.offsets"]) == (1, {world.bucket(0): 3})


def test_a_commit_keeps_the_previous_snapshot_so_that_a_repeat_discards_nothing(
    world: World,
) -> None:
    for _ in range(3):
        world.append(0, 1)
        world.round()
    ids = [commit[0] for commit in world.cluster.commits]
    assert [commit[2] for commit in world.cluster.commits] == [-1, ids[0], ids[1]]


def test_nothing_new_makes_no_commit(world: World) -> None:
    world.append(0, 3)
    world.round()
    result = world.round()
    assert (result.outcome, result.offsets) == ("nothing_new", {"0": 3})
    assert len(world.table.snapshots()) == 1


def test_an_empty_table_is_created_in_the_lake_and_has_nothing_new(world: World) -> None:
    assert world.round().outcome == "nothing_new"
    assert world.table.snapshots() == []


def test_offsets_that_advance_without_rows_make_an_empty_commit(world: World) -> None:
    world.append(0, 0)
    result = world.round()
    assert (result.outcome, result.rows, result.files) == ("committed", 0, 0)
    assert result.offsets == {"0": 1}
    world.assert_exactly_once()


@pytest.mark.parametrize("step", STEPS)
def test_a_round_that_dies_anywhere_leaves_each_row_once(
    world: World, arm: Callable[[str], None], step: str
) -> None:
    world.append(0, 3)
    world.round()
    world.append(0, 2)
    world.append(1, 4)
    arm(f"{step}=raise")
    with pytest.raises(RuntimeError, match=step):
        world.round()
    world.append(1, 1)
    world.round()  # one round on, or the dead one's snapshot was registered; then the rest
    world.round()
    world.assert_exactly_once()


@pytest.mark.parametrize("step", STEPS)
def test_a_second_try_of_the_same_round_after_a_death_anywhere(
    world: World, arm: Callable[[str], None], step: str
) -> None:
    world.append(0, 3)
    claim = world.cluster.begin_round()
    arm(f"{step}=raise")
    with pytest.raises(RuntimeError, match=step):
        world.round(claim)
    landed = step in (
        "round.lake_commit.after", "round.fluss_commit.before", "round.fluss_commit.after",
    )  # fmt: skip
    result = world.round(claim)
    assert result.outcome == ("already_landed" if landed else "committed")
    assert result.offsets == {"0": 3}
    world.assert_exactly_once()


def test_rows_behind_an_old_round_of_the_same_epochs_are_copied(world: World) -> None:
    """Fluss counts epochs anew when tiering of a table is switched off and on."""
    world.append(0, 3)
    claim = world.cluster.begin_round()
    assert world.round(claim).outcome == "committed"
    world.append(0, 2)
    again = world.round(claim)
    assert (again.outcome, again.rows, again.offsets) == ("committed", 2, {"0": 5})
    world.assert_exactly_once()


def test_a_column_added_while_planning_reaches_the_lake_before_its_rows(world: World) -> None:
    world.append(0, 3)
    info = world.cluster.table_info(world.cluster.begin_round().path)

    class Altered(MemoryCluster):
        def latest_offsets(
            self, path: TablePath, table_id: int, partition_id: int | None, buckets: Sequence[int]
        ) -> dict[int, int]:
            self.info = replace(info, schema_id=2)
            return super().latest_offsets(path, table_id, partition_id, buckets)

    altered = Altered(info)
    altered.logs, world.cluster = world.cluster.logs, altered
    planned: list[int] = []
    make_runner = world.runner

    def runner(seen: TableInfo, writers: SplitWriterFactory) -> SplitRunner:
        planned.append(seen.schema_id)
        return make_runner(seen, writers)

    run_round(world.cluster.begin_round(), RoundPorts(altered, world.lake, runner), "1")
    assert world.table.checked == [1, 2]
    assert planned == [2]


def test_a_runner_that_forgets_a_split_fails_the_round(world: World) -> None:
    world.append(0, 3)
    world.append(1, 3)
    make_runner = world.runner

    def forgetful(info: TableInfo, writers: SplitWriterFactory) -> SplitRunner:
        return lambda splits: make_runner(info, writers)(splits[:1])

    claim = world.cluster.begin_round()
    with pytest.raises(SplitFailed, match="2 splits were planned, but 1 returned a result"):
        run_round(claim, RoundPorts(world.cluster, world.lake, forgetful), "1")
    assert world.table.files == {}


def test_retention_may_move_on_while_a_bucket_never_tiered_is_copied(world: World) -> None:
    world.append(0, 3)
    world.append(0, 2)
    make_runner = world.runner

    def late(info: TableInfo, writers: SplitWriterFactory) -> SplitRunner:
        world.cluster.truncate_before(world.bucket(0), 3)
        return make_runner(info, writers)

    claim = world.cluster.begin_round()
    assert run_round(claim, RoundPorts(world.cluster, world.lake, late), "1").rows == 2


def test_other_writers_are_no_conflict(world: World) -> None:
    world.append(0, 3)
    world.round()
    world.table.foreign_commit()
    world.append(0, 2)
    world.table.before_commit = lambda: world.table.foreign_commit() and None
    assert world.round().outcome == "committed"
    world.assert_exactly_once()


def test_the_fence_refuses_a_round_that_another_one_overtook(world: World) -> None:
    """The zombie's claim is checked, then it sleeps; the new round commits; the zombie wakes."""
    world.append(0, 3)
    zombie = world.cluster.begin_round()
    world.lake.create(world.cluster.table_info(zombie.path))
    overtaken: list[str] = []

    def overtake() -> None:
        overtaken.append(world.round().outcome)

    world.table.before_commit = overtake
    with pytest.raises(LakeCommitRefused):
        world.round(zombie)
    assert overtaken == ["committed"]
    world.assert_exactly_once()
    assert world.table.unreferenced_files() == set()  # the refused files are gone


def test_the_base_is_the_planned_one_not_the_newest_before_the_commit(world: World) -> None:
    """Overtaken after the last look at the claim: only the planned base still knows it."""
    world.append(0, 3)
    slow = _Slow(world.cluster.table_info(world.cluster.begin_round().path))
    slow.logs, world.cluster = world.cluster.logs, slow
    slow.between = lambda: world.round() and None
    with pytest.raises(LakeCommitRefused):
        world.round()
    world.assert_exactly_once()
    assert world.table.unreferenced_files() == set()


class _Slow(MemoryCluster):
    """A cluster where another round gets between the claim's check and the first PREPARE."""

    between: Callable[[], None] | None = None

    def prepare_lake_snapshot(
        self, table_id: int, path: TablePath, offsets: Mapping[TableBucket, int]
    ) -> str:
        between, self.between = self.between, None
        if between is not None:
            between()
        return super().prepare_lake_snapshot(table_id, path, offsets)


def test_two_tries_of_one_round_at_once_land_once(world: World) -> None:
    """They share their epochs: only the base tells them apart."""
    world.append(0, 3)
    claim = world.cluster.begin_round()
    world.lake.create(world.cluster.table_info(claim.path))
    world.table.before_commit = lambda: world.round(claim) and None
    assert world.round(claim).outcome == "already_landed"
    world.assert_exactly_once()
    assert world.table.unreferenced_files() == set()


def test_an_unknown_outcome_that_landed_is_found(world: World) -> None:
    world.append(0, 3)
    world.round()
    world.append(0, 2)
    world.table.lose_answer = True
    assert world.round().outcome == "committed"
    world.assert_exactly_once()


def test_an_unknown_outcome_that_did_not_land_deletes_nothing(world: World) -> None:
    world.append(0, 3)
    world.round()
    world.append(0, 2)
    world.table.lose_commit = True
    with pytest.raises(LakeCommitOutcomeUnknown):
        world.round()
    assert len(world.table.unreferenced_files()) == 1
    assert world.round().outcome == "committed"
    world.assert_exactly_once()


def test_a_claim_lost_while_copying_commits_nothing(world: World) -> None:
    world.append(0, 3)
    old = world.cluster.begin_round()
    new = world.cluster.begin_round()
    result = world.round(old)
    assert result.outcome == "claim_lost"
    assert "tiering epoch 1 is no longer valid" in result.notes[0]
    assert world.table.snapshots() == []
    assert world.table.files == {}
    assert world.round(new).outcome == "committed"
    world.assert_exactly_once()


def test_a_claim_lost_after_the_lake_commit_is_healed_by_the_next_round(world: World) -> None:
    world.append(0, 3)
    old = world.cluster.begin_round()
    world.lake.create(world.cluster.table_info(old.path))
    world.table.before_commit = world.cluster.fail_over
    result = world.round(old)
    assert (result.outcome, result.lake_snapshot_id) == (
        "claim_lost",
        world.table.snapshots()[0].snapshot_id,
    )
    assert world.cluster.registered == []
    assert world.round().recovered_snapshot_id == result.lake_snapshot_id
    world.assert_exactly_once()


def test_a_table_created_again_is_a_lost_claim(world: World) -> None:
    claim = world.cluster.begin_round()
    world.cluster.create_again(2)
    assert world.round(claim).outcome == "claim_lost"
    assert world.lake.tables == {}


def test_a_dropped_table_is_named(world: World) -> None:
    claim = world.cluster.begin_round()
    world.cluster.drop_table()
    result = world.round(claim)
    assert (result.outcome, result.notes) == ("claim_lost", ("table db.t with id 1 was dropped",))


def test_a_late_worker_moves_no_offsets_backwards_in_a_fluss_without_fences(world: World) -> None:
    """It sleeps between its two commits, while others register its snapshot and build on it."""
    assert world.cluster.info is not None
    unfenced = _Unfenced(world.cluster.info)
    unfenced.logs, world.cluster = world.cluster.logs, unfenced
    world.append(0, 3)
    late = world.cluster.begin_round()
    commit = world.lake.create(world.cluster.info).commit

    def slow(*arguments: Any) -> Any:
        world.table.commit = commit  # type: ignore[method-assign]
        landed = commit(*arguments)
        world.append(0, 2)
        assert world.round().recovered_snapshot_id == landed.snapshot_id
        return landed

    world.table.commit = slow  # type: ignore[method-assign]
    result = world.round(late)
    assert (result.outcome, len(world.cluster.registered)) == ("claim_lost", 2)
    world.assert_exactly_once()


class _Unfenced(MemoryCluster):
    """As a real Fluss: it takes a commit from whoever sends one."""

    def commit_lake_snapshot(self, claim: Claim, *rest: Any) -> None:
        current = replace(
            claim, tiering_epoch=self.tiering_epoch, coordinator_epoch=self.coordinator_epoch
        )
        super().commit_lake_snapshot(current, *rest)


def of(world: World, properties: dict[str, str]) -> None:
    """Gives the table further properties."""
    info = world.cluster.info
    assert info is not None
    descriptor = info.descriptor
    descriptor = replace(descriptor, properties={**descriptor.properties, **properties})
    world.cluster.info = replace(info, descriptor=descriptor)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("table.datalake.historical-partition.enabled", "true"),
        ("table.datalake.database-name", "other"),
        ("table.datalake.table-name", "other"),
    ],
)
def test_lake_options_that_are_not_honoured_are_refused(
    world: World, option: str, value: str
) -> None:
    of(world, {option: value})
    with pytest.raises(UnsupportedLakeOption, match=option):
        world.round()
    assert world.lake.tables == {}


@pytest.mark.parametrize("lake_format", ["paimon", "LANCE", "hudi"])
def test_a_table_of_another_lake_format_is_refused(world: World, lake_format: str) -> None:
    """Its buckets are not those that an Iceberg table would declare."""
    of(world, {"table.datalake.format": lake_format})
    world.append(0, 3)
    with pytest.raises(UnsupportedLakeOption, match=f"the lake format {lake_format.lower()}"):
        world.round()
    assert world.lake.tables == {}
    of(world, {"table.datalake.format": "ICEBERG"})
    assert world.round().outcome == "committed"


def test_a_log_that_lost_its_untiered_start_fails_the_round(world: World) -> None:
    world.append(0, 3)
    world.round()
    world.append(0, 2)
    world.append(0, 2)
    world.cluster.truncate_before(world.bucket(0), 5)
    with pytest.raises(LogBeginsAfterLake, match="begins at offset 5, the lake ends at") as caught:
        world.round()
    failure = failure_of(caught.value)
    assert set(failure.seconds) == {"recover", "plan", "copy", "total"}
    assert (failure.reason.kind, failure.reason.text) == ("LogBeginsAfterLake", str(caught.value))


def test_a_bucket_never_tiered_begins_at_its_earliest_offset(world: World) -> None:
    world.append(0, 3)
    world.append(0, 2)
    world.cluster.truncate_before(world.bucket(0), 3)
    assert world.round().rows == 2
    assert world.offsets_in_lake() == [3, 4]


def test_a_window_that_begins_inside_a_batch_is_cut_there(world: World) -> None:
    """Flink's tiering may stop inside a batch when its round takes too long."""
    world.append(0, 5)
    info = world.cluster.table_info(world.cluster.begin_round().path)
    table = world.lake.create(info)
    path = world.cluster.prepare_lake_snapshot(1, info.path, {world.bucket(0): 2})
    table.foreign_commit(
        [((), 0, 0), ((), 0, 1)],
        {"commit-user": "__fluss_lake_tiering", "fluss-offsets": path},
    )
    assert world.round().rows == 3
    assert world.offsets_in_lake() == [0, 1, 2, 3, 4]


def test_one_failed_split_fails_the_round_and_leaves_no_file(world: World) -> None:
    world.append(0, 3)
    world.append(1, 3)
    world.round()
    for bucket in (0, 1):
        world.append(bucket, 2)
        world.append(bucket, 2)
    world.cluster.logs[world.bucket(1)].pop(1)  # offsets 3 and 4 are missing, 5 and 6 are there
    with pytest.raises(SplitFailed, match=r"offset 5 follows where 3 was expected"):
        world.round()
    assert world.table.unreferenced_files() == set()


def test_a_cluster_that_cannot_be_asked_before_the_commit_fails_the_round_without_files(
    world: World,
) -> None:
    class Down(MemoryCluster):
        def still_claimed(self, claim: Claim) -> bool:
            raise NetworkError("the coordinator is down")

    assert world.cluster.info is not None
    world.cluster = Down(world.cluster.info)
    world.append(0, 3)
    with pytest.raises(FlussError, match="down"):
        world.round()
    assert world.table.files == {}
    assert world.table.snapshots() == []


@pytest.mark.parametrize("fault", ["lose_answer", "lose_commit", "land_and_refuse", None])
def test_an_outcome_that_cannot_be_looked_up_deletes_nothing(
    world: World, fault: str | None
) -> None:
    world.append(0, 3)
    world.round()
    world.append(0, 2)
    claim = world.cluster.begin_round()

    def be_overtaken() -> None:
        world.round()
        world.table.blind_after_commit = True

    if fault is None:  # refused by the fence, for another round's sake
        world.table.before_commit = be_overtaken
    else:
        setattr(world.table, fault, True)
        world.table.blind_after_commit = True
    with pytest.raises(LakeCommitOutcomeUnknown):
        world.round(claim)
    assert len(world.table.files) == (3 if fault is None else 2)
    world.table.blind = False
    world.round()
    world.assert_exactly_once()


def test_a_refusal_of_a_commit_that_landed_is_no_refusal(world: World) -> None:
    world.append(0, 3)
    world.round()
    world.append(0, 2)
    world.table.land_and_refuse = True
    assert world.round().outcome == "committed"
    world.assert_exactly_once()
    assert world.table.unreferenced_files() == set()


def test_a_commit_found_below_that_of_another_round_is_a_lost_claim(world: World) -> None:
    """The answer comes so late that the next round has recovered the snapshot and built on it."""
    world.append(0, 3)
    world.round()
    claim = world.cluster.begin_round()
    world.append(0, 2)
    commit = world.table.commit

    def slow(*arguments: Any) -> Any:
        world.table.commit = commit  # type: ignore[method-assign]
        commit(*arguments)
        world.append(0, 1)
        world.round()  # registers it
        world.append(0, 1)
        world.round()
        raise LakeCommitRefused("conflict")

    world.table.commit = slow  # type: ignore[method-assign]
    result = world.round(claim)
    assert (result.outcome, "has committed snapshot" in result.notes[0]) == ("claim_lost", True)
    world.assert_exactly_once()


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_runner_that_breaks_leaves_no_file(world: World, error: type[BaseException]) -> None:
    world.append(0, 3)
    world.append(1, 3)
    make_runner = world.runner

    def breaking(info: TableInfo, writers: SplitWriterFactory) -> SplitRunner:
        def run(splits: Sequence[Split]) -> Iterator[SplitResult | SplitFailure]:
            yield from make_runner(info, writers)(splits[:1])
            raise error("the engine is gone")

        return run

    claim = world.cluster.begin_round()
    with pytest.raises(error, match="the engine is gone") as caught:
        run_round(claim, RoundPorts(world.cluster, world.lake, breaking), "1")
    assert bool(seconds_of(caught.value)) == (error is RuntimeError)
    assert world.table.files == {}


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("step", ["copy.after", "claim", "prepare.after"])
@pytest.mark.parametrize("summary_bytes_max", [SUMMARY_BYTES_MAX, 10])
def test_what_breaks_before_the_commit_leaves_no_file(
    world: World,
    at: Callable[[str, Callable[[], None]], None],
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    error: type[BaseException],
    summary_bytes_max: int,
) -> None:
    """Nor the file of its offsets, where they are too long for the summary."""
    monkeypatch.setattr("sluice.rounds.values.offsets.SUMMARY_BYTES_MAX", summary_bytes_max)
    world.append(0, 3)
    world.round()
    world.append(0, 3)
    files, beside = set(world.table.files), set(world.table.beside)
    assert bool(beside) == (summary_bytes_max == 10)

    def broken(*_: Any) -> Any:
        raise error("it broke")

    at(step, broken)
    if step == "claim":
        monkeypatch.setattr(world.cluster, "still_claimed", broken)
    with pytest.raises(error, match="it broke"):
        world.round()
    assert (set(world.table.files), set(world.table.beside)) == (files, beside)


def test_an_attempt_that_is_started_again_writes_to_other_files(
    world: World, arm: Callable[[str], None]
) -> None:
    """As YARN does with a driver that died."""
    world.append(0, 3)
    claim = world.cluster.begin_round()
    arm("round.lake_commit.before=raise")
    with pytest.raises(RuntimeError):
        run_round(claim, RoundPorts(world.cluster, world.lake, world.runner), "1")
    left = set(world.table.files)
    run_round(claim, RoundPorts(world.cluster, world.lake, world.runner), "1")
    assert left == world.table.unreferenced_files()
    assert len(left) == 1
    world.assert_exactly_once()


def test_a_bucket_that_begins_late_is_named(world: World) -> None:
    """Its log lost its beginning before it was tiered; the table itself was tiered before."""
    world.append(0, 3)
    world.round()
    world.append(1, 4)
    world.append(1, 2)
    world.cluster.truncate_before(world.bucket(1), 4)
    note = "bucket 1: offsets 0 to 3 were no longer in the log when the bucket was first tiered"
    assert world.round().notes == (note,)
    assert world.round().notes == ()


def test_the_first_round_of_a_table_may_come_late(world: World) -> None:
    world.append(1, 4)
    world.append(1, 2)
    world.cluster.truncate_before(world.bucket(1), 4)
    assert world.round().notes == ()
