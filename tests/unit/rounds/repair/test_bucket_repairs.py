"""Logs that begin late and batches that cannot be read, and what a person decides, on models."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NoReturn

import pytest

from sluice.errors import (
    ConfigurationError,
    CorruptRecord,
    LakeCommitRefused,
    LogBeginsAfterLake,
    NetworkError,
    PartitionNotExists,
    SluiceError,
    SplitFailed,
)
from sluice.model import TablePath
from sluice.rounds.commit.failures import named_batch
from sluice.rounds.plan.bucket_repairs import GAPS_KEY, REBUILT_KEY, SKIPPED_KEY
from sluice.rounds.repair.bucket_diagnoses import diagnose_unreadable
from sluice.rounds.repair.diagnose import read_table_state
from sluice.rounds.repair.request import RepairRequest
from sluice.rounds.repair.round import run_repair
from sluice.rounds.values.attempt import RoundPorts
from sluice.rounds.values.reasons import reason_of
from sluice.rounds.values.types import LogRecords, OffsetRange, RepairMode, Split
from tests.simulation.fluss.log_damage import named_gaps
from tests.support.models.memory_cluster import MemoryCluster
from tests.unit.rounds.conftest import World
from tests.unit.rounds.keyed_world import KeyedWorld
from tests.unit.rounds.repairs import found, mended, seen, shown, skipped, ways


@pytest.fixture
def late(world: World) -> World:
    """Bucket 0 was tiered up to 3, and its log begins at 5; bucket 1 has new rows too."""
    world.append(0, 3)
    world.append(1, 1)
    world.round()
    world.append(0, 2)
    world.append(0, 4)
    world.append(1, 2)
    world.cluster.truncate_before(world.bucket(0), 5)
    return world


def test_a_round_names_the_gap_and_the_command(late: World) -> None:
    with pytest.raises(LogBeginsAfterLake) as failed:
        late.round()
    assert "begins at offset 5, the lake ends at offset 3" in str(failed.value)
    assert "`sluice repair db.t`" in str(failed.value)
    assert not failed.value.retryable


def test_repair_names_the_range_and_changes_nothing(late: World) -> None:
    answer = found(late)
    assert not answer.healthy
    assert "begins at offset 5, the lake ends at offset 3" in answer.state
    [accept] = answer.actions
    assert (accept.name, accept.risks) == (
        "accept-gap",
        (
            "lost for good: bucket 0: offsets 3 to 4 (its log starts at 5)",
            "if a tablet server has just restarted, check again in a minute",
        ),
    )
    assert answer.recommended is None
    assert answer.error is LogBeginsAfterLake


def test_an_accepted_gap_is_recorded_and_rounds_continue(late: World) -> None:
    result = mended(late, RepairMode.ACCEPT_GAP)
    assert (result.outcome, result.rows) == ("committed", 0)
    assert "the next round copies the other rows" in result.forced
    assert (result.lag_rows_before, result.lag_rows_after) == (8, 6)
    late.round()
    assert late.offsets_in_lake(0) == [0, 1, 2, 5, 6, 7, 8]
    assert late.offsets_in_lake(1) == [0, 1, 2]
    _, repaired, *_ = late.table.snapshots()
    assert json.loads(repaired.summary[GAPS_KEY]) == {"0": [3, 5]}
    assert result.accepted == "bucket 0: offsets 3 to 4 were no longer in the log"
    assert result.repaired_buckets == 1
    assert found(late).healthy
    late.append(0, 1)
    assert late.round().rows == 1
    newest = late.table.newest_tiering_snapshot()
    assert newest is not None
    assert GAPS_KEY not in newest.summary


def test_a_claim_lost_after_the_lake_commit_says_what_the_lake_lacks(late: World) -> None:
    late.table.before_commit = late.cluster.fail_over
    result = mended(late, RepairMode.ACCEPT_GAP)
    [note] = result.notes
    assert (result.outcome, result.is_given_up) == ("claim_lost", False)
    assert note.endswith(
        "that round registers it. Missing in the lake, as accepted: bucket 0: offsets 3 to 4 were"
        " no longer in the log"
    )
    assert result.repaired_buckets == 1
    assert late.round().accepted == "bucket 0: offsets 3 to 4 were no longer in the log"


def test_a_claim_lost_after_a_commit_that_repaired_nothing_counts_no_repair(late: World) -> None:
    chosen = shown(late, RepairMode.ACCEPT_GAP)
    mended(late, RepairMode.ACCEPT_GAP)  # by another user
    late.append(0, 2)
    late.table.before_commit = late.cluster.fail_over
    result = mended(late, RepairMode.ACCEPT_GAP, accepted=chosen)
    assert (result.outcome, result.repaired_buckets) == ("claim_lost", 0)


def test_a_gap_that_has_grown_is_not_accepted(late: World) -> None:
    chosen = shown(late, RepairMode.ACCEPT_GAP)
    late.append(0, 2)
    late.cluster.truncate_before(late.bucket(0), 9)
    with pytest.raises(LogBeginsAfterLake) as failed:
        mended(late, RepairMode.ACCEPT_GAP, accepted=chosen)
    assert str(failed.value) == (
        "the log of bucket 0 of table db.t has lost more rows since you chose this repair: it now"
        " begins at offset 9, the lake ends at offset 3. Nothing was committed. Run `sluice repair"
        " db.t` with the same --warehouse or --config again"
    )
    assert failed.value.details["log_start_offset"] == 9
    assert late.offsets_in_lake(0) == [0, 1, 2]


def test_a_gap_that_nobody_saw_is_not_accepted(late: World) -> None:
    chosen = shown(late, RepairMode.ACCEPT_GAP)
    late.cluster.truncate_before(late.bucket(1), 3)
    with pytest.raises(LogBeginsAfterLake, match="bucket 1 of table .* now begins at offset 3"):
        mended(late, RepairMode.ACCEPT_GAP, accepted=chosen)


def test_a_repair_of_a_table_that_has_another_damage_now_names_its_gaps(late: World) -> None:
    """Another user has put the lake right that was behind Fluss; the logs were short before."""
    late.cluster.truncate_before(late.bucket(1), 3)
    with pytest.raises(LogBeginsAfterLake, match="^--by retier does not repair") as failed:
        mended(late, RepairMode.RETIER)
    gaps = [OffsetRange(late.bucket(0), 3, 5), OffsetRange(late.bucket(1), 1, 3)]
    assert named_gaps(failed.value, late.bucket(0).table_id) == gaps
    late.cluster.truncate_before(late.bucket(0), 9)
    with pytest.raises(LogBeginsAfterLake) as failed:
        late.round()
    assert named_gaps(failed.value, late.bucket(0).table_id) == [OffsetRange(late.bucket(0), 3, 9)]


def test_a_tablet_servers_answer_alone_closes_no_gap(partitioned: World) -> None:
    """The server has just started and does not know the partition yet."""
    world = partitioned
    world.append(0, 2, 5)
    world.append(0, 2, 6)
    world.round()
    world.append(0, 2, 5)
    world.cluster.truncate_before(world.bucket(0, 5), 4)

    class Stale(MemoryCluster):
        def earliest_offsets(
            self, path: TablePath, table_id: int, partition_id: int | None, buckets: Sequence[int]
        ) -> dict[int, int]:
            if partition_id == 5:
                raise PartitionNotExists("unknown")
            return super().earliest_offsets(path, table_id, partition_id, buckets)

    world.cluster.__class__ = Stale
    with pytest.raises(PartitionNotExists):
        found(world)
    world.cluster.drop_partition(5)
    assert found(world).healthy


def test_a_gap_without_newer_rows_is_committed_too(world: World) -> None:
    world.append(0, 3)
    world.round()
    world.append(0, 2)
    world.cluster.truncate_before(world.bucket(0), 5)
    result = mended(world, RepairMode.ACCEPT_GAP)
    assert (result.offsets, result.forced, result.lag_rows_after) == ({"0": 5}, "", 0)
    assert found(world).healthy
    assert world.round().outcome == "nothing_new"


def test_without_a_gap_a_repair_is_an_ordinary_round(world: World) -> None:
    world.append(0, 3)
    world.round()
    world.append(0, 1)
    result = mended(world, RepairMode.ACCEPT_GAP)
    assert (result.outcome, result.accepted) == ("committed", "")
    world.assert_exactly_once()


@pytest.mark.parametrize(
    "step", ["lake_commit.before", "fluss_commit.before", "fluss_commit.after"]
)
def test_a_killed_acceptance_leaves_the_old_state_or_the_new_one(
    late: World, arm: Callable[[str], None], step: str
) -> None:
    arm(f"round.{step}=raise")
    with pytest.raises(RuntimeError):
        mended(late, RepairMode.ACCEPT_GAP)
    arm("")
    landed = step != "lake_commit.before"
    state = {
        "lake_commit.before": {"accept-gap": False},
        "fluss_commit.before": {"register": True},
        "fluss_commit.after": {},
    }
    assert ways(late) == state[step]
    result = late.round() if landed else mended(late, RepairMode.ACCEPT_GAP)
    assert result.accepted == "bucket 0: offsets 3 to 4 were no longer in the log"
    late.round()
    assert late.round().accepted == ""
    assert late.offsets_in_lake(0) == [0, 1, 2, 5, 6, 7, 8]


# ---- batches that cannot be read ----


@pytest.fixture
def damaged(world: World) -> World:
    """Bucket 0 was tiered up to 3; its batches at 5 and 11 cannot be read."""
    world.append(0, 3)
    world.round()
    for rows in (2, 4, 2, 3, 1):
        world.append(0, rows)
    world.append(1, 2)
    world.cluster.unreadable = {(world.bucket(0), 5), (world.bucket(0), 11)}
    return world


def test_the_error_names_the_batch_and_the_command(damaged: World) -> None:
    with pytest.raises(SplitFailed) as failed:
        damaged.round()
    assert str(failed.value) == (
        "bucket 0 of table db.t failed, 1 other bucket was committed: the batch at offset 5 cannot"
        " be read: wrong checksum. Run `sluice repair db.t --skip 0:5` with the same --warehouse or"
        " --config: it lists the possible repairs"
    )
    assert failed.value.details["bucket"] == damaged.bucket(0)
    assert failed.value.details["unreadable_offset"] == 5


def test_the_error_names_the_partition(partitioned: World) -> None:
    partitioned.append(0, 2, 5)
    partitioned.cluster.unreadable = {(partitioned.bucket(0, 5), 0)}
    with pytest.raises(SplitFailed) as failed:
        partitioned.round()
    assert str(failed.value).startswith(
        "bucket 0 of partition mon of table db.t: the batch at offset 0 cannot be read:"
        " wrong checksum. Run `sluice repair db.t --skip 5/0:0`"
    )


def test_each_batch_is_skipped_by_itself_and_everything_else_is_copied(damaged: World) -> None:
    first = skipped(damaged, 5, 9)
    assert (first.rows, first.offsets, first.repaired_buckets) == (2, {"0": 9}, 1)
    assert first.accepted == "bucket 0: offsets 5 to 8 were skipped"
    assert (first.lag_rows_before, first.lag_rows_after) == (14, 8)
    newest = damaged.table.newest_tiering_snapshot()
    assert newest is not None
    assert json.loads(newest.summary[SKIPPED_KEY]) == {"0": [5, 9]}
    with pytest.raises(SplitFailed, match="--skip 0:11`"):
        damaged.round()
    assert skipped(damaged, 11, 14).accepted == "bucket 0: offsets 11 to 13 were skipped"
    assert damaged.round().rows == 1  # the failed round has committed the other bucket
    assert damaged.offsets_in_lake(0) == [0, 1, 2, 3, 4, 9, 10, 14]
    assert damaged.offsets_in_lake(1) == [0, 1]


def test_a_batch_that_the_lake_has_is_not_skipped(damaged: World) -> None:
    damaged.cluster.unreadable = set()
    damaged.round()
    result = skipped(damaged, 5, 9)
    assert (result.outcome, result.accepted, result.repaired_buckets) == ("nothing_new", "", 0)


def test_the_risk_of_a_skip_names_replicas_and_an_unknown_end_the_next_step(
    damaged: World,
) -> None:
    bucket = damaged.bucket(0)
    [skip] = diagnose_unreadable(seen(damaged), OffsetRange(bucket, 5, 9), "why").actions
    assert any("another replica" in risk for risk in skip.risks)
    unknown = diagnose_unreadable(seen(damaged), OffsetRange(bucket, 5, 5), "why")
    assert (unknown.actions, unknown.batch) == ((), "0:5")
    for part in (
        "Otherwise, set table.datalake.enabled to false until the server has deleted the batch",
        "`sluice repair db.t --by accept-gap --yes` with the same --warehouse or --config",
    ):
        assert part in unknown.advice[0]


def test_an_unknown_end_in_a_keyed_table_leaves_only_a_rebuild(keyed: KeyedWorld) -> None:
    assert keyed.cluster.info is not None
    state = read_table_state(keyed.cluster.info.path, keyed.cluster, keyed.lake)
    answer = diagnose_unreadable(state, OffsetRange(keyed.bucket(0), 5, 5), "why")
    assert [one.name for one in answer.actions] == ["rebuild"]
    assert "accept-gap" not in answer.advice[0]


def test_a_skip_beyond_the_end_of_the_log_is_refused(damaged: World) -> None:
    with pytest.raises(ConfigurationError, match="5 to 99, but the log of bucket 0 ends at off"):
        skipped(damaged, 5, 100)
    assert damaged.offsets_in_lake(0) == [0, 1, 2]


@pytest.mark.parametrize("rows", [3, 0])
def test_a_repair_of_a_dropped_partition_leaves_the_other_rows_to_the_next_round(
    partitioned: World, rows: int
) -> None:
    world = partitioned
    world.append(0, 2, 5)
    if rows:
        world.append(0, rows, 6)

    class Dropping(MemoryCluster):
        def read(self, split: Split) -> Iterator[LogRecords]:
            self.drop_partition(5)
            yield from super().read(split)

    world.cluster.__class__ = Dropping
    result = run_repair(
        world.cluster.begin_round(),
        RoundPorts(world.cluster, world.lake, world.runner),
        "1",
        RepairRequest(mode=RepairMode.SKIP, unreadable=OffsetRange(world.bucket(0, 5), 0, 2)),
    )
    assert (result.outcome, result.lag_rows_after) == ("nothing_new", rows)
    assert ("the next round copies the other rows" in result.forced) == bool(rows)
    assert world.round().offsets == ({"6/0": rows} if rows else {})


@pytest.mark.parametrize("step", ["copy.after", "lake_commit.before", "fluss_commit.before"])
def test_a_killed_skip_leaves_the_old_state_or_the_new_one(
    damaged: World, arm: Callable[[str], None], step: str
) -> None:
    arm(f"round.{step}=raise")
    with pytest.raises(RuntimeError):
        skipped(damaged, 5, 9)
    arm("")
    if step == "fluss_commit.before":
        with pytest.raises(SplitFailed, match="--skip 0:11`") as failed:
            damaged.round()  # it registers the snapshot first, and commits bucket 1
        committed = failed.value.details["committed"]
        assert committed.accepted == "bucket 0: offsets 5 to 8 were skipped"
    else:
        assert damaged.offsets_in_lake(0) == [0, 1, 2]
        skipped(damaged, 5, 9)
    assert damaged.offsets_in_lake(0) == [0, 1, 2, 3, 4]


# ---- tables with a primary key ----


@pytest.fixture
def keyed() -> KeyedWorld:
    """Two buckets were tiered; bucket 0 then changed and its log lost the changes."""
    world = KeyedWorld()
    zero, one = world.bucket(0), world.bucket(1)
    world.put(zero, k2=1, k4=1, k6=1)
    world.put(one, k1=1, k3=1)
    world.round()
    world.delete(zero, 2)
    world.put(zero, k4=2)
    lost = world.cluster.logs[zero][-1].next_offset
    world.put(zero, k8=1)
    world.put(one, k3=2)
    world.cluster.truncate_before(zero, lost)
    return world


def rebuilt(world: KeyedWorld) -> dict[str, int]:
    newest = world.table.newest_tiering_snapshot()
    assert newest is not None
    content = json.loads(newest.summary[REBUILT_KEY])
    assert isinstance(content, dict)
    return content


def test_a_keyed_bucket_is_read_again_from_its_snapshot(keyed: KeyedWorld) -> None:
    with pytest.raises(LogBeginsAfterLake):
        keyed.round()
    keyed.snapshot(keyed.bucket(0))
    keyed.put(keyed.bucket(0), k6=3)
    result = keyed.round(repair_mode=RepairMode.REBUILD)
    assert result.outcome == "committed"
    record = rebuilt(keyed)
    keyed.round()
    keyed.assert_equal()  # key 2, whose delete was lost, is gone
    assert record == {"0": [3, 6]}
    assert result.accepted == ""
    keyed.put(keyed.bucket(0), k4=5)
    keyed.round()
    keyed.assert_equal()


ANY = "main loses any rows that other writers have added to bucket 0"


@pytest.mark.parametrize(
    ("operation", "is_known", "risks"),
    [
        ("replace", True, ()),
        ("append", True, (ANY,)),
        (
            "replace",
            False,
            (f"{ANY}; its oldest snapshots have expired, so these rows are unknown",),
        ),
    ],
)
def test_the_risk_of_a_rebuild_is_that_of_the_lakes_history(
    keyed: KeyedWorld, operation: str, is_known: bool, risks: tuple[str, ...]
) -> None:
    """A rebuild removes all files of the bucket; a compaction by another writer adds no rows."""
    keyed.table.foreign_commit(summary={"operation": operation})
    assert keyed.cluster.info is not None
    state = read_table_state(keyed.cluster.info.path, keyed.cluster, keyed.lake)
    main = state.history.main
    assert main is not None
    if not is_known:
        known = {main: state.history.snapshots[main]}
        state = replace(state, history=replace(state.history, snapshots=known))
    batch = OffsetRange(keyed.bucket(0), 5, 5)
    [rebuild] = diagnose_unreadable(state, batch, "why").actions
    assert rebuild.risks == risks


def test_the_files_of_other_buckets_stay(keyed: KeyedWorld) -> None:
    keyed.snapshot(keyed.bucket(0))
    before = {p for p in keyed.table.paths() if keyed.table.keyed[p].partition == ("1",)}
    old = {p for p in keyed.table.paths() if keyed.table.keyed[p].partition == ("0",)}
    keyed.round(repair_mode=RepairMode.REBUILD)
    assert before <= keyed.table.paths()
    assert not old & keyed.table.paths()


def test_a_snapshot_older_than_the_logs_start_is_not_used(keyed: KeyedWorld) -> None:
    old = keyed.cluster.put_snapshot(keyed.bucket(0), keyed._batch(keyed.bucket(0), []))
    keyed.leased[keyed.bucket(0)] = type(old)(old.bucket, old.snapshot_id, 4)
    reason = "its newest KV snapshot ends at offset 4, and one that ends at 6 or later is needed"
    with pytest.raises(Exception, match=f"KeyedSplitOptions.*{reason}"):  # no scans in the model
        keyed.round(repair_mode=RepairMode.REBUILD)


def test_rows_that_arrive_during_a_rebuild_are_not_deleted(keyed: KeyedWorld) -> None:
    keyed.snapshot(keyed.bucket(0))

    def other_writer() -> None:
        keyed.table.foreign_commit(summary={"operation": "append"})

    keyed.table.before_commit = other_writer
    before = keyed.table.paths()
    with pytest.raises(LakeCommitRefused, match="another writer has committed snapshot"):
        keyed.round(repair_mode=RepairMode.REBUILD)
    assert before < keyed.table.paths()
    assert keyed.round(repair_mode=RepairMode.REBUILD).outcome == "committed"  # seen by the user


def test_a_compaction_during_a_rebuild_does_not_prevent_it(keyed: KeyedWorld) -> None:
    keyed.snapshot(keyed.bucket(0))

    def other_writer() -> None:
        keyed.table.foreign_commit(summary={"operation": "replace"})

    keyed.table.before_commit = other_writer
    assert keyed.round(repair_mode=RepairMode.REBUILD).outcome == "committed"


def test_damage_after_the_snapshot_does_not_prevent_a_rebuild(keyed: KeyedWorld) -> None:
    zero = keyed.bucket(0)
    snapshot = keyed.snapshot(zero)
    keyed.put(zero, k6=3)
    keyed.cluster.unreadable = {(zero, snapshot.log_offset)}
    result = keyed.round(repair_mode=RepairMode.REBUILD)
    assert result.outcome == "committed"
    assert result.offsets is not None
    assert result.offsets["0"] == snapshot.log_offset
    assert "the next round copies the other rows" in result.forced
    assert result.lag_rows_after == 4  # two changes of each bucket
    with pytest.raises(SplitFailed, match=f"--skip 0:{snapshot.log_offset}`"):
        keyed.round()


def test_a_repair_that_leaves_no_row_announces_no_other_rows(keyed: KeyedWorld) -> None:
    keyed.snapshot(keyed.bucket(0))
    keyed.cluster.logs[keyed.bucket(1)].pop()
    result = keyed.round(repair_mode=RepairMode.REBUILD)
    assert (result.outcome, result.repaired_buckets) == ("committed", 1)
    assert (result.forced, result.lag_rows_after) == ("", 0)


def test_a_snapshot_before_a_batch_of_unknown_end_is_not_used(keyed: KeyedWorld) -> None:
    """With that snapshot the next round would meet the same batch again."""
    zero = keyed.bucket(0)
    snapshot = keyed.snapshot(zero)
    keyed.put(zero, k6=3)
    keyed.cluster.unreadable = {(zero, snapshot.log_offset)}
    end = snapshot.log_offset
    batch = OffsetRange(zero, end, end)
    reason = f"ends at offset {end}, and one that ends at {end + 1} or later is needed"
    with pytest.raises(Exception, match=f"KeyedSplitOptions.*{reason}"):  # no scans in the model
        keyed.round(repair_mode=RepairMode.REBUILD, unreadable=batch)


def test_a_rebuild_without_a_snapshot_scans_for_that_reason(keyed: KeyedWorld) -> None:
    with pytest.raises(Exception, match=r"KeyedSplitOptions.*it has no KV snapshot"):
        keyed.round(repair_mode=RepairMode.REBUILD)


RUN = "Run `sluice repair db.t --skip 0:5` with the same --warehouse or --config: it lists the"
SKIP_TOO = "and --by skip leaves the batch out"


@pytest.mark.parametrize(
    ("error", "stop", "text"),
    [
        (
            CorruptRecord("log batch at offset 5: wrong checksum"),
            6,
            "and the server cannot read the rows of the bucket either: CorruptRecord: log batch at"
            f" offset 5: wrong checksum. {RUN} possible repairs, {SKIP_TOO}",
        ),
        (
            CorruptRecord("log batch at offset 5: wrong checksum"),
            5,
            "and the server cannot read the rows of the bucket either: CorruptRecord: log batch at"
            f" offset 5: wrong checksum. {RUN} possible repairs",
        ),
        (
            NetworkError("no answer"),
            6,
            f"and the rebuild of the bucket failed: NetworkError: no answer. {RUN} possible"
            f" repairs, {SKIP_TOO}",
        ),
    ],
)
def test_a_failed_rebuild_names_the_batch_and_the_command(
    keyed: KeyedWorld, error: SluiceError, stop: int, text: str
) -> None:
    """After a crash the server itself has to replay the batch, so the scan fails too."""

    class Replaying(MemoryCluster):
        def rows(self, split: Split) -> NoReturn:
            raise error

    keyed.cluster.__class__ = Replaying
    with pytest.raises(SplitFailed) as failed:
        keyed.round(
            repair_mode=RepairMode.REBUILD, unreadable=OffsetRange(keyed.bucket(0), 5, stop)
        )
    assert str(failed.value) == (
        f"bucket 0 of table db.t: the batch at offset 5 cannot be read, {text}"
    )
    assert named_batch(str(failed.value)) == (TablePath("db", "t"), "0", 5)
    assert reason_of(failed.value).retryable
    assert failed.value.details["unreadable_offset"] == 5


@pytest.mark.parametrize("step", ["copy.after", "lake_commit.before", "fluss_commit.before"])
def test_a_killed_rebuild_leaves_the_old_state_or_the_new_one(
    keyed: KeyedWorld, arm: Callable[[str], None], step: str
) -> None:
    keyed.snapshot(keyed.bucket(0))
    before = keyed.in_lake()
    arm(f"round.{step}=raise")
    with pytest.raises(RuntimeError):
        keyed.round(repair_mode=RepairMode.REBUILD)
    arm("")
    if step == "fluss_commit.before":
        assert keyed.round().recovered_snapshot_id is not None
    else:
        assert keyed.in_lake() == before
        keyed.round(repair_mode=RepairMode.REBUILD)
    keyed.round()
    keyed.assert_equal()
