"""Rounds that repair a lake that is behind Fluss: copied again from the logs, or marked again."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from sluice.errors import LakeCommitRefused, LakeRolledBack, SplitFailed
from sluice.model import LakeSnapshotInfo, Partition, TableBucket
from sluice.model import types as t
from sluice.rounds.commit.commit import commit_round
from sluice.rounds.commit.files import RoundFiles
from sluice.rounds.commit.recover import LakeComparison, LakeStatus
from sluice.rounds.plan.bucket_repairs import GAPS_KEY
from sluice.rounds.plan.plan import RoundPlan
from sluice.rounds.repair.diagnose import diagnose, read_table_state
from sluice.rounds.repair.retier import plan_retier
from sluice.rounds.values.attempt import Attempt, RoundPorts
from sluice.rounds.values.history import LakeHistory
from sluice.rounds.values.limits import RoundLimits
from sluice.rounds.values.ports import Cluster
from sluice.rounds.values.types import RepairMode
from tests.simulation.clock import ManualClock
from tests.support.models.tables import table_info
from tests.unit.rounds.conftest import World
from tests.unit.rounds.repairs import forget_ours, found, lose_newer, mended, shown, ways

# ---- copied again from the logs ----


def test_what_the_lake_lacks_is_copied_again_where_the_snapshot_has_expired(
    rolled_back: World,
) -> None:
    lose_newer(rolled_back)
    assert ways(rolled_back) == {"retier": True}
    assert "has expired" in found(rolled_back).advice[0]
    assert "7 offsets" in found(rolled_back).actions[0].effect
    rolled_back.append(0, 1)
    with pytest.raises(LakeRolledBack):
        rolled_back.round()
    result = mended(rolled_back, RepairMode.RETIER)
    assert (result.outcome, result.rows) == ("committed", 7)
    assert "7 offsets that the lake lacked" in result.notes[0]
    assert "the next round copies the other rows" in result.forced
    assert (result.lag_rows_before, result.lag_rows_after) == (8, 1)
    rolled_back.round()
    rolled_back.assert_exactly_once()
    assert found(rolled_back).healthy


def test_rows_of_other_writers_stay_when_the_logs_are_copied_again(rolled_back: World) -> None:
    rolled_back.table.foreign_commit([((), 0, -1)])
    mended(rolled_back, RepairMode.RETIER)
    assert rolled_back.table.rows().count(((), 0, -1)) == 1
    assert rolled_back.offsets_in_lake() == [-1, 0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "step",
    [
        f"round.{name}.{when}"
        for name in ("recover", "plan", "copy", "prepare", "lake_commit", "fluss_commit")
        for when in ("before", "after")
    ],
)
@pytest.mark.parametrize("repair_mode", [RepairMode.RETIER, RepairMode.ADOPT])
def test_a_mending_round_that_dies_anywhere_leaves_each_row_once(
    world: World, arm: Callable[[str], None], repair_mode: RepairMode, step: str
) -> None:
    world.append(0, 3)
    first = world.round()
    world.append(0, 2)
    world.append(1, 4)
    second = world.round()
    if repair_mode is RepairMode.RETIER:
        world.table.roll_back_to(first.lake_snapshot_id)
        lose_newer(world)
    else:
        forget_ours(world, second)
    arm(f"{step}=raise")
    world.append(1, 2)
    with pytest.raises(RuntimeError, match=step):
        mended(world, repair_mode)
    arm("")
    while repair_mode.value in ways(world):
        mended(world, repair_mode)
    world.append(0, 1)
    world.round()
    world.assert_exactly_once()


def test_a_mending_round_is_not_cut_below_what_fluss_has(rolled_back: World) -> None:
    lose_newer(rolled_back)
    result = mended(rolled_back, RepairMode.RETIER, RoundLimits(max_bytes=1))
    assert (result.rows, result.forced) == (7, "")
    rolled_back.assert_exactly_once()


def test_a_commit_below_what_fluss_has_is_refused_before_the_lake_has_it(
    rolled_back: World,
) -> None:
    """Nothing may end there, whatever a runner does."""
    lose_newer(rolled_back)
    world, make_runner = rolled_back, rolled_back.runner

    def short(info: Any, writers: Any) -> Any:
        run = make_runner(info, writers)
        return lambda splits: (
            replace(outcome, next_offset=outcome.next_offset - 1)  # type: ignore[type-var]
            for outcome in run(splits)
        )

    world.runner = short  # type: ignore[method-assign]
    files = set(world.table.files)
    with pytest.raises(LakeRolledBack, match="Fluss has registered"):
        mended(world, RepairMode.RETIER)
    assert len(world.table.snapshots()) == 1
    assert set(world.table.files) == files


def test_what_no_log_holds_any_more_is_named_and_must_be_wanted(rolled_back: World) -> None:
    lose_newer(rolled_back)
    rolled_back.cluster.truncate_before(rolled_back.bucket(1), 4)
    assert ways(rolled_back) == {"retier": False}
    answer = found(rolled_back)
    assert answer.recommended is None
    assert answer.actions[0].risks == (
        "lost for good: bucket 1:1: offsets 0 to 3 (its log starts at 4)",
    )
    result = mended(rolled_back, RepairMode.RETIER)
    assert result.accepted == "bucket 1: offsets 0 to 3 were no longer in the log"
    assert result.accepted in result.notes
    newest = rolled_back.table.newest_tiering_snapshot()
    assert newest is not None
    assert json.loads(newest.summary[GAPS_KEY]) == {"1": [0, 4]}
    assert result.forced == ""
    assert rolled_back.offsets_in_lake(0) == [0, 1, 2, 3, 4]
    assert rolled_back.offsets_in_lake(1) == [4]
    assert found(rolled_back).healthy


@pytest.mark.parametrize("begun", [True, False])
def test_what_nobody_accepted_is_not_lost(rolled_back: World, begun: bool) -> None:
    """Retention, between the diagnosis and the round: a bucket that main has, or never had."""
    world = rolled_back
    lose_newer(world)
    safe = shown(world, RepairMode.RETIER)
    assert safe is not None
    assert not safe.risks
    bucket, start, rest = (0, 5, "offsets 3 to 4") if begun else (1, 4, "offsets 0 to 3")
    world.cluster.truncate_before(world.bucket(bucket), start)
    before = world.table.snapshots()
    message = rf"new risk: lost for good: bucket {bucket}: {rest}\. .*Run `sluice repair db\.t`"
    with pytest.raises(LakeRolledBack, match=message):
        mended(world, RepairMode.RETIER, accepted=safe)
    assert world.table.snapshots() == before
    assert mended(world, RepairMode.RETIER).accepted  # the losses as they are now


def test_a_log_that_shrinks_during_a_repair_fails_it(
    rolled_back: World, at: Callable[[str, Callable[[], None]], None]
) -> None:
    world = rolled_back
    lose_newer(world)
    before = world.table.snapshots()
    at("copy.before", lambda: world.cluster.truncate_before(world.bucket(1), 4))
    with pytest.raises(SplitFailed, match="LogOffsetOutOfRange: bucket 1:1: 0 is before 4"):
        mended(world, RepairMode.RETIER)
    assert world.table.snapshots() == before


def test_adopting_must_still_be_without_risk(world: World) -> None:
    world.append(0, 3)
    forget_ours(world, world.round())
    safe = shown(world, RepairMode.ADOPT)
    world.table.forget_expired()
    with pytest.raises(LakeRolledBack, match="new risk: no metadata file shows"):
        mended(world, RepairMode.ADOPT, accepted=safe)
    assert world.table.newest_tiering_snapshot() is None


def test_where_the_logs_hold_nothing_any_more_an_empty_commit_mends(rolled_back: World) -> None:
    lose_newer(rolled_back)
    for bucket in (0, 1):
        rolled_back.cluster.truncate_before(rolled_back.bucket(bucket), 5)
    result = mended(rolled_back, RepairMode.RETIER)
    assert (result.outcome, result.rows) == ("committed", 0)
    assert found(rolled_back).healthy
    rolled_back.append(0, 2)
    assert rolled_back.round().rows == 2
    assert rolled_back.offsets_in_lake(0) == [0, 1, 2, 5, 6]


def test_a_log_that_has_lost_rows_is_no_way_out(rolled_back: World) -> None:
    lose_newer(rolled_back)
    rolled_back.cluster.lose_from(rolled_back.bucket(1), 4)
    answer = found(rolled_back)
    assert answer.actions == ()
    assert any("ends at offset 4" in text for text in answer.advice)
    with pytest.raises(LakeRolledBack, match="does not repair this table"):
        mended(rolled_back, RepairMode.RETIER)


def test_a_dropped_partitions_rows_are_lost_with_a_word(partitioned: World) -> None:
    partitioned.append(0, 3, partition_id=5)
    first = partitioned.round()
    partitioned.append(0, 2, partition_id=5)
    partitioned.append(0, 4, partition_id=6)
    partitioned.round()
    partitioned.table.roll_back_to(first.lake_snapshot_id)
    lose_newer(partitioned)
    partitioned.cluster.drop_partition(5)
    [way] = found(partitioned).actions
    assert way.risks == (
        "lost for good: bucket 1(p=5):0: offsets 3 to 4 (its partition was dropped)",
    )
    assert mended(partitioned, RepairMode.RETIER).rows == 4
    assert found(partitioned).healthy
    assert partitioned.round().outcome == "nothing_new"


def test_rows_of_an_earlier_partition_of_the_name_still_go(partitioned: World) -> None:
    """Its first round is among what the lake has lost."""
    partitioned.append(0, 3, partition_id=5)
    first = partitioned.round()
    partitioned.cluster.drop_partition(5)
    partitioned.cluster.add_partition(Partition(9, ("mon",)))
    del partitioned.cluster.logs[partitioned.bucket(0, 5)]
    partitioned.append(0, 2, partition_id=9)
    partitioned.round()
    partitioned.table.roll_back_to(first.lake_snapshot_id)
    lose_newer(partitioned)
    result = mended(partitioned, RepairMode.RETIER)
    assert partitioned.table.rows() == [(("mon",), 0, 0), (("mon",), 0, 1)]
    assert any("created again" in note for note in result.notes)


def lose_partition(world: World) -> None:
    """Rolls the lake back before the first round of the partition tue."""
    world.append(0, 3, partition_id=5)
    first = world.round()
    world.append(0, 4, partition_id=6)
    world.round()
    world.table.roll_back_to(first.lake_snapshot_id)


@pytest.mark.parametrize("expired", [False, True])
def test_rows_of_other_writers_in_a_lost_partition_do_not_go_without_a_word(
    partitioned: World, expired: bool
) -> None:
    """Its first round is among what the lake has lost, and somebody has written there since."""
    lose_partition(partitioned)
    assert ways(partitioned)["retier"], "nobody else has written"
    partitioned.table.foreign_commit([(("mon",), 0, -1)])
    assert ways(partitioned)["retier"], "not in that partition"
    partitioned.table.foreign_commit([(("tue",), 0, -1)])
    if expired:
        lose_newer(partitioned)
    [retier] = [way for way in found(partitioned).actions if way.name == "retier"]
    assert retier.risks == (
        "main loses all its rows of partition tue, including other writers' rows",
    )
    mended(partitioned, RepairMode.RETIER)
    assert (("mon",), 0, -1) in partitioned.table.rows()
    assert (("tue",), 0, -1) not in partitioned.table.rows()


def test_rows_that_others_add_to_a_lost_partition_during_the_copy_refuse_the_repair(
    partitioned: World, at: Callable[[str, Callable[[], None]], None]
) -> None:
    """The user has seen no risk, because the partition was empty."""
    lose_partition(partitioned)
    table = partitioned.table
    at("copy.before", lambda: table.foreign_commit([(("tue",), 0, -1)]) and None)
    with pytest.raises(LakeCommitRefused, match="another writer has committed snapshot"):
        mended(partitioned, RepairMode.RETIER)
    assert (("tue",), 0, -1) in table.rows()
    assert table.unreferenced_files() == set()
    [retier] = [one for one in found(partitioned).actions if one.name == "retier"]
    assert "main loses all its rows of partition tue" in retier.risks[0]
    at("copy.before", lambda: table.foreign_commit(summary={"operation": "replace"}) and None)
    assert mended(partitioned, RepairMode.RETIER).outcome == "committed"
    assert (("tue",), 0, -1) not in table.rows()


def test_where_to_begin_again() -> None:
    """Each kind of bucket in one table, against what a person would say."""

    class Logs:
        def earliest_offsets(self, *_: Any) -> Mapping[int, int]:
            return {0: 0, 1: 4, 2: 6, 3: 5, 4: 0}

        def latest_offsets(self, *_: Any) -> Mapping[int, int]:
            return {0: 9, 1: 9, 2: 6, 3: 9, 4: 9}

    def of(numbers: dict[int, int]) -> dict[TableBucket, int]:
        return {TableBucket(1, None, n): offset for n, offset in numbers.items()}

    cluster: Cluster = Logs()  # type: ignore[assignment]
    registered = LakeSnapshotInfo(1, 7, of({0: 5, 1: 5, 2: 6, 3: 7, 4: 8}))
    start = plan_retier(
        table_info({"a": t.BIGINT}, buckets=5), cluster, of({0: 2, 1: 1, 4: 9, 2: 3}), registered
    )
    assert start.start_offsets == of({0: 2, 1: 4, 2: 6, 4: 9})
    assert start.minimum_offsets == registered.offsets
    assert start.repeated_offsets == 3 + 1 + 0 + 2 + 0
    assert [text.split(" (")[0] for text in start.lost_texts] == [
        "bucket 1:1: offsets 1 to 3",
        "bucket 1:2: offsets 3 to 5",
        "bucket 1:3: offsets 0 to 4",
    ]


# ---- the registered snapshot has expired, and main came from it ----


def test_an_expired_mark_is_set_again(world: World) -> None:
    world.append(0, 3)
    forget_ours(world, world.round())
    world.append(0, 2)
    with pytest.raises(LakeRolledBack, match="no tiering snapshot"):
        world.round()
    assert ways(world) == {"adopt": True}
    result = mended(world, RepairMode.ADOPT)
    assert (result.outcome, result.rows) == ("committed", 2)
    world.assert_exactly_once()
    assert found(world).healthy


def test_adopting_alone_is_a_commit_too(world: World) -> None:
    world.append(0, 3)
    forget_ours(world, world.round())
    result = mended(world, RepairMode.ADOPT)
    assert (result.outcome, result.rows) == ("committed", 0)
    assert result.lake_snapshot_id == world.table.tagged
    world.assert_exactly_once()


def test_without_proof_adopting_must_be_wanted(world: World) -> None:
    world.append(0, 3)
    forget_ours(world, world.round())
    world.table.forget_expired()
    assert ways(world) == {"adopt": False}
    assert "the offsets that main holds are unknown" in " ".join(found(world).advice)
    with pytest.raises(LakeRolledBack, match="does not repair this table"):
        mended(world, RepairMode.RETIER)  # it would double what main holds
    mended(world, RepairMode.ADOPT)
    world.assert_exactly_once()


def test_a_copy_put_in_place_is_not_taken_for_an_empty_table(world: World) -> None:
    """Somebody restored the rows by a query: no snapshot of ours, and all of the rows."""
    world.append(0, 3)
    world.round()
    rows = world.table.rows()
    table = world.lake.create(world.cluster.table_info(world.cluster.begin_round().path))
    table._ids = itertools.count(50)
    table.foreign_commit(rows)
    assert ways(world) == {"adopt": False, "retier": False}
    mended(world, RepairMode.ADOPT)
    world.assert_exactly_once()


def test_a_catalog_that_hides_snapshots_does_not_make_a_table_empty(world: World) -> None:
    """Only the newest snapshot is known, without its parent, as on Nessie."""
    world.append(0, 3)
    world.round()
    main = world.table.foreign_commit()
    state = read_table_state(world.cluster.begin_round().path, world.cluster, world.lake)
    shown = replace(state.history.snapshots[main], parent_id=None)
    hidden = replace(state, ours=None, history=LakeHistory(main, None, {main: shown}))
    told = diagnose(replace(hidden, comparison=LakeComparison(LakeStatus.BEHIND)), world.cluster)
    assert [action.name for action in told.actions] == ["adopt"]  # retier would double the rows
    assert told.recommended is None
    assert any("or the catalog hides them" in one for one in told.advice)


def test_main_set_back_to_before_the_first_round(world: World) -> None:
    world.append(0, 3)
    world.round()
    world.table.roll_back_to(None)
    lose_newer(world)
    assert ways(world) == {"retier": True, "adopt": False}
    recommended = found(world).recommended
    assert recommended is not None
    assert recommended.name == "retier"
    mended(world, RepairMode.RETIER)
    world.assert_exactly_once()


def test_an_expired_snapshot_still_says_from_where_to_copy_again(rolled_back: World) -> None:
    """Rolled back, compacted, expired: main is made of a snapshot of ours that is gone."""
    world = rolled_back
    for _ in range(2):
        world.table.foreign_commit(summary={"operation": "replace"})
    lose_newer(world)
    assert world.table.newest_tiering_snapshot() is None
    assert ways(world) == {"retier": True, "adopt": False}
    assert "not from snapshot" in found(world).actions[1].risks[0]
    assert mended(world, RepairMode.RETIER).rows == 7
    world.assert_exactly_once()


def test_a_commit_that_slips_in_between_look_and_commit_refuses_the_repair(
    rolled_back: World,
) -> None:
    """Two people repair at once: one of them is refused, and no row is there twice."""
    world = rolled_back
    lose_newer(world)
    world.table.before_commit = lambda: mended(world, RepairMode.RETIER) and None
    with pytest.raises(LakeCommitRefused):
        mended(world, RepairMode.RETIER)
    world.assert_exactly_once()


@pytest.mark.parametrize("copied", [{}, {1: 2}, {1: 4}])
def test_a_bucket_that_was_not_copied_again_to_its_registered_offset_commits_nothing(
    world: World, copied: dict[int, int]
) -> None:
    """No offset at all is the least: the lake would lack the bucket."""
    world.append(0, 3)
    world.append(1, 1)
    world.round()
    info, table = world.cluster.info, world.table
    assert info is not None
    base, before = table.newest_tiering_snapshot(), len(table.snapshots())
    known = {world.bucket(0): 3, **{world.bucket(n): end for n, end in copied.items()}}
    registered = world.cluster.lake_snapshot(info.path)
    assert registered is not None
    plan = RoundPlan(info, base, replace(registered, offsets=known), (), 0)
    floor = {world.bucket(0): 3, world.bucket(1): 4}
    ports = RoundPorts(world.cluster, world.lake, world.runner, ManualClock())
    attempt = Attempt.begun(world.cluster.begin_round(), ports, "again")
    rest = (table, plan, RoundFiles([]), "again", floor)
    if copied == {1: 4}:
        assert commit_round(attempt, *rest).offsets == floor
        return
    why = f"only up to offset {copied.get(1, 'none')}, but Fluss has registered offset 4"
    with pytest.raises(LakeRolledBack, match=why):
        commit_round(attempt, *rest)
    assert len(table.snapshots()) == before
