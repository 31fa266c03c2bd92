"""Rounds that compact a log table: by a commit of its own, which is never the round's failure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from sluice.errors import LakeCommitOutcomeUnknown, LakeCommitRefused, LakeNotWritable
from sluice.model import Partition, Reason, TableInfo
from sluice.model import types as t
from sluice.rounds.commit.options import RoundOptions
from sluice.rounds.copy.parts import PartRules
from sluice.rounds.records.result import RoundResult
from sluice.rounds.round.round import run_round
from sluice.rounds.upkeep.compaction import CompactionOptions
from sluice.rounds.upkeep.rewrites import REWRITE_KEY
from sluice.rounds.values.attempt import RoundPorts
from sluice.rounds.values.lake_files import LiveFiles, PlannedCommit
from sluice.rounds.values.ports import SplitRunner, SplitWriterFactory
from sluice.rounds.values.types import Split, SplitFailure, SplitResult
from tests.support.models.memory_cluster import MemoryCluster
from tests.support.models.tables import table_info
from tests.unit.rounds.conftest import World
from tests.unit.rounds.in_turn import in_turn

ALWAYS = CompactionOptions(always=True, files_min=5)


@dataclass
class Compacted(World):
    """Its rounds compact."""

    options: CompactionOptions = ALWAYS
    parts: PartRules = field(default_factory=PartRules)
    fails: bool = False

    def round(self) -> RoundResult:  # type: ignore[override]
        self.attempts += 1
        return run_round(
            self.cluster.begin_round(),
            RoundPorts(self.cluster, self.lake, self.runner),
            str(self.attempts),
            RoundOptions(parts=self.parts, compaction=self.options),
        )

    def runner(self, info: TableInfo, writers: SplitWriterFactory) -> SplitRunner:
        run = in_turn(self.cluster, writers)
        if not self.fails:
            return run

        def failing(splits: Sequence[Split]) -> Iterator[SplitResult | SplitFailure]:
            for outcome in run(splits):
                if outcome.is_rewrite:
                    reason = Reason.from_text("no disk")
                    yield SplitFailure(outcome.bucket, reason, is_rewrite=True)
                else:
                    yield outcome

        return failing

    def rounds(self, count: int) -> list[RoundResult]:
        found = []
        for _ in range(count):
            self.append(0, 3)
            found.append(self.round())
        return found


@pytest.fixture
def world() -> Compacted:
    return Compacted(MemoryCluster(table_info({"a": t.BIGINT}, buckets=2)))


def test_small_files_become_one_by_a_commit_of_its_own(world: Compacted) -> None:
    *earlier, last = world.rounds(6)
    world.assert_exactly_once()
    assert [one.files_compacted for one in (*earlier, last)] == [0, 0, 0, 0, 0, 5]
    assert last.compacted == "5 data files of 1 bucket were rewritten as 1"
    assert len(world.table.paths()) == 2
    newest, rewrite, *_ = world.table.snapshots()
    assert newest.snapshot_id == last.lake_snapshot_id
    assert (rewrite.summary["operation"], REWRITE_KEY in rewrite.summary) == ("replace", True)
    assert last.seconds["rewrite"] >= 0
    [compacted] = [path for path in world.table.paths() if path.endswith("-compacted")]
    offsets = [offset for _, _, offset in world.table.files[compacted]]
    assert offsets == list(range(15))


def test_many_rounds_leave_few_files(world: Compacted) -> None:
    for _ in range(60):
        world.append(1, 2)
        world.rounds(1)
    world.assert_exactly_once()
    assert len(world.table.paths()) <= 14


def test_windows_in_parts_are_joined_beside_rewrites(world: Compacted) -> None:
    world.rounds(5)
    world.parts = PartRules(4, 1)
    for _ in range(8):
        world.append(0, 3)
    result = world.round()
    world.assert_exactly_once()
    assert result.files_compacted == 5


def test_a_partition_is_compacted_by_itself(partitioned: World) -> None:
    world = Compacted(partitioned.cluster)
    for partition in (5, 6):
        for _ in range(5):
            world.append(0, 2, partition)
            world.round()
    world.append(0, 1, 5)
    world.append(0, 1, 6)
    assert world.round().files_compacted == 10
    world.assert_exactly_once()


def test_files_of_a_partition_that_was_created_again_are_not_compacted(partitioned: World) -> None:
    """The round's commit deletes them."""
    world = Compacted(partitioned.cluster)
    for _ in range(5):
        world.append(0, 2, 5)
        world.round()
    world.cluster.drop_partition(5)
    world.cluster.add_partition(Partition(7, ("mon",)))
    world.append(0, 1, 7)
    result = world.round()
    assert any("mon was dropped and created again" in note for note in result.notes)
    assert (result.files_compacted, len(world.table.paths())) == (0, 1)


def test_without_the_option_files_stay(world: Compacted) -> None:
    world.options = CompactionOptions()
    assert {one.compacted for one in world.rounds(8)} == {""}
    assert len(world.table.paths()) == 8


def test_a_failed_rewrite_is_no_failure_of_the_round(world: Compacted) -> None:
    world.rounds(5)
    world.fails = True
    [result] = world.rounds(1)
    world.assert_exactly_once()
    assert (result.files_compacted, result.compacted) == (0, "1 bucket left out: no disk")
    world.fails = False
    assert world.rounds(1)[0].files_compacted == 6


def test_files_that_cannot_be_listed_are_left_alone(
    world: Compacted, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.rounds(5)

    def unreadable(*_args: object) -> LiveFiles:
        raise LakeCommitRefused("another partition spec")

    monkeypatch.setattr(type(world.table), "live_files", unreadable)
    [result] = world.rounds(1)
    world.assert_exactly_once()
    said = "no small files were compacted: another partition spec"
    assert said in result.notes


def test_files_that_others_replaced_are_left_to_them(world: Compacted) -> None:
    world.rounds(5)
    table, rewrite = world.table, type(world.table).rewrite
    one = min(table.paths())

    def late(self: object, *what: object) -> None:
        kept = table.paths() - {one}
        table.files["foreign"] = table.files[one]
        table._put(frozenset({*kept, "foreign"}), {"operation": "replace"})
        rewrite(table, *what)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(table), "rewrite", late)
        [result] = world.rounds(1)
    world.assert_exactly_once()
    assert result.files_compacted == 0
    assert "missing data files" in result.compacted
    assert world.table.unreferenced_files() == set()


def test_a_lake_that_refuses_the_rewritten_files_gets_the_round_all_the_same(
    world: Compacted, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.rounds(5)

    def refuse(*_args: object) -> None:
        raise LakeNotWritable("no such manifest")

    monkeypatch.setattr(type(world.table), "rewrite", refuse)
    [result] = world.rounds(1)
    world.assert_exactly_once()
    assert (result.outcome, result.files_compacted) == ("committed", 0)
    assert "the commit of the compaction: no such manifest" in result.compacted
    assert world.table.unreferenced_files() == set()


def test_an_older_round_may_not_rewrite(world: Compacted) -> None:
    """Clean-up may have deleted its files by then."""
    world.rounds(5)
    base = world.table.newest_tiering_snapshot()
    world.options = CompactionOptions()
    world.rounds(1)
    planned = PlannedCommit(LiveFiles(None, {}))
    with pytest.raises(LakeCommitRefused):
        world.table.rewrite([], base, {}, planned)


@pytest.mark.parametrize("landed", [False, True])
def test_files_of_an_unknown_outcome_are_left_to_clean_up(
    world: Compacted, monkeypatch: pytest.MonkeyPatch, landed: bool
) -> None:
    world.rounds(5)
    rewrite: Callable[..., None] = type(world.table).rewrite

    def lost(self: object, *what: object) -> None:
        if landed:
            rewrite(self, *what)
        raise LakeCommitOutcomeUnknown("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(type(world.table), "rewrite", lost)
        [result] = world.rounds(1)
    world.assert_exactly_once()
    assert "no answer" in result.compacted
    assert len(world.table.unreferenced_files()) == (0 if landed else 1)
    world.rounds(3)
    world.assert_exactly_once()


def test_a_round_that_fails_before_its_commit_leaves_no_file(
    world: Compacted, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.rounds(5)
    kept = set(world.table.files)
    world.append(0, 3)

    def refused(*_args: object, **_named: object) -> str:
        raise LakeCommitRefused("no")

    monkeypatch.setattr(type(world.cluster), "prepare_lake_snapshot", refused)
    with pytest.raises(LakeCommitRefused):
        world.round()
    assert set(world.table.files) == kept
