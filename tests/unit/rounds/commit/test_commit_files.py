"""A round whose data files others rewrite before its commit: it looks up only what changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from sluice.errors import LakeNotWritable, SluiceError
from sluice.model import LOG_OFFSET, Reason, TableBucket, TableInfo
from sluice.rounds.commit.files import DELETES_KEY, DeletesReport, Lookups, RoundFiles
from sluice.rounds.records.result import RoundResult
from sluice.rounds.values.lake_files import (
    DataFile,
    FileContent,
    LiveFiles,
    PlannedCommit,
    RowMarks,
    WrittenCompaction,
    WrittenDeletes,
)
from sluice.rounds.values.limits import LookupBudget
from sluice.rounds.values.ports import SplitRunner, SplitWriterFactory
from sluice.rounds.values.types import Split, SplitFailure, SplitResult
from tests.support.models.memory_writer import BUCKET, KeyedFile
from tests.unit.rounds.keyed_world import KeyedWorld


@dataclass
class Shared(KeyedWorld):
    """Another writer acts before the commits of a round."""

    runs: list[list[TableBucket]] = field(default_factory=list)
    """The buckets of each run of the engine."""
    spoil: Callable[[Split], SplitFailure | None] = lambda split: None
    """What becomes of a split of a later run; None: it runs."""

    def runner(self, info: TableInfo, writers: SplitWriterFactory) -> SplitRunner:
        run = super().runner(info, writers)

        def noted(splits: Sequence[Split]) -> Iterator[SplitResult | SplitFailure]:
            again = bool(self.runs)
            self.runs.append(sorted((split.bucket for split in splits), key=lambda b: b.bucket))
            for split in splits:
                failure = self.spoil(split) if again else None
                yield from run([split]) if failure is None else [failure]

        return noted

    def round_beside(self, *acts: Callable[[], object]) -> RoundResult:
        """A round; before each of its commits comes the next act."""
        left = [*acts]

        def meddle() -> None:
            left.pop(0)()
            self.table.before_commit = meddle if left else None

        self.runs.clear()
        self.table.before_commit = meddle
        result = self.round()
        assert left == []
        return result

    def rewrite(self, number: int) -> None:
        """Another writer rewrites the rows of one bucket, and changes no row."""
        table, partition = self.table, (str(number),)
        rows = [(key, row) for (_, key), row in table.keyed_rows().items() if row[BUCKET] == number]
        old = {
            p for p in table.paths() if p in table.keyed and table.keyed[p].partition == partition
        }
        path = f"{table.location}/rewritten-{len(table.files)}"
        table.files[path] = [((), number, row[LOG_OFFSET]) for _, row in rows]
        table.keyed[path] = KeyedFile(partition, tuple(rows))
        table._put((table.paths() - old) | {path}, {"operation": "replace"})

    def append(self) -> None:
        """Another writer adds a file without rows of any key."""
        self.table.foreign_commit()

    def summary(self) -> dict[str, Any]:
        newest = self.table.newest_tiering_snapshot()
        assert newest is not None
        return json.loads(newest.summary[DELETES_KEY])

    def check(self) -> None:
        """Right rows, and no file that nobody references."""
        self.assert_equal()
        assert self.table.unreferenced_files() == set()


@pytest.fixture(params=[False, True], ids=["v2", "v3"])
def world(request: pytest.FixtureRequest) -> Shared:
    """Two buckets with rows, and with positions of an earlier round."""
    made = Shared()
    one, two = made.bucket(0), made.bucket(1)
    made.put(one, k1=1, k2=2, k3=3)
    made.put(two, k11=1, k12=2, k13=3)
    made.round()
    made.table.as_vectors = request.param
    made.put(one, k1=10)
    made.put(two, k11=10)
    made.round()
    assert made.summary()["kinds"] == ["position"]
    made.put(one, k1=100, k4=4)
    made.delete(two, 12)
    made.put(two, k11=100)
    return made


def test_an_undisturbed_round_looks_up_once(world: Shared) -> None:
    result = world.round_beside(lambda: None)
    assert (result.deletes, result.deletes_as) == (3, "positions")
    assert len(world.runs) == 1
    found = world.summary()
    assert found.pop("cpu-ms") >= 0
    assert found == {
        "kinds": ["position"],
        "position-buckets": 2,
        "equality-buckets": 0,
        "files-read": result.lookup_files,
        "bytes-read": result.lookup_bytes,
        "lookups": 1,
    }
    world.check()


def test_only_the_buckets_of_rewritten_files_are_looked_up_again(world: Shared) -> None:
    result = world.round_beside(lambda: world.rewrite(1))
    assert world.runs == [[world.bucket(0), world.bucket(1)], [world.bucket(1)]]
    assert (result.deletes_as, world.summary()["lookups"]) == ("positions", 2)
    [note] = [note for note in result.notes if "looked up again" in note]
    assert "missing data files" in note
    world.check()


def test_a_second_rewrite_is_followed_too(world: Shared) -> None:
    result = world.round_beside(lambda: world.rewrite(1), lambda: world.rewrite(0))
    assert world.runs[1:] == [[world.bucket(1)], [world.bucket(0)]]
    assert (result.deletes_as, world.summary()["lookups"]) == ("positions", 3)
    world.check()


def test_after_three_look_ups_the_keys_are_deleted_as_such(world: Shared) -> None:
    result = world.round_beside(*[world.table.foreign_compaction] * 3)
    assert len(world.runs) == 3
    assert result.deletes_as.startswith(
        "equality deletes (the lake refused positions 3 times, at last: "
    )
    assert "missing data files" in result.deletes_as
    found = world.summary()
    assert (found["kinds"], found["equality-buckets"], found["lookups"]) == (["equality"], 2, 3)
    assert sum(path.endswith("-deletes") for path in world.table.paths()) == 2
    world.check()
    world.put(world.bucket(0), k1=1_000)
    assert world.round().deletes_as == "positions"
    world.check()


def test_a_compaction_after_the_third_look_up_refuses_no_equality_deletes(world: Shared) -> None:
    world.round_beside(*[world.table.foreign_compaction] * 4)
    world.check()


def test_an_append_of_others_is_looked_at(world: Shared) -> None:
    """It may have a row of the same key, which no look-up has seen."""
    result = world.round_beside(world.append)
    assert len(world.runs) == 2
    assert (result.deletes_as, world.summary()["lookups"]) == ("positions", 2)
    world.assert_equal()


def test_a_planned_snapshot_that_has_expired_is_no_reason_to_give_up(world: Shared) -> None:
    def expire() -> None:
        world.append()
        world.append()
        _, middle, *_ = [s.snapshot_id for s in world.table.snapshots()]
        world.table.expire(middle)

    assert world.round_beside(expire).deletes_as == "positions"
    world.assert_equal()


def fail(split: Split) -> SplitFailure:
    return SplitFailure(split.bucket, Reason("SparkJobFailed", "the executor was lost"))


def test_a_look_up_that_fails_leaves_equality_deletes_in_its_bucket(world: Shared) -> None:
    world.spoil = fail
    result = world.round_beside(lambda: world.rewrite(1))
    assert result.deletes_as == (
        "positions in 1 of 2 buckets, equality deletes in the others (bucket 1: the look-up failed:"
        " the executor was lost)"
    )
    assert world.summary()["kinds"] == ["position", "equality"]
    world.check()


def test_an_engine_that_fails_leaves_equality_deletes_and_no_file(world: Shared) -> None:
    """The first bucket's positions have arrived already when the engine gives up."""
    run: list[Split] = []

    def give_up(split: Split) -> None:
        run.append(split)
        if len(run) == 2:
            raise LakeNotWritable("the cluster has gone away")

    world.spoil = give_up
    result = world.round_beside(world.table.foreign_compaction)
    why = "the rows could not be looked up again: the cluster has gone away"
    assert result.deletes_as == f"equality deletes ({why})"
    assert len(run) == 2
    world.check()


def test_a_lake_that_cannot_be_read_again_leaves_equality_deletes(
    world: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    def once(splits: Sequence[Split]) -> None:
        raise LakeNotWritable("a manifest is missing")

    def compact() -> None:
        world.table.foreign_compaction()
        monkeypatch.setattr(world.table, "live_files", once, raising=False)

    result = world.round_beside(compact)
    why = "the rows could not be looked up again: a manifest is missing"
    assert result.deletes_as == f"equality deletes ({why})"
    world.check()


@pytest.mark.parametrize("acts", range(4))
def test_a_round_that_another_tier_overtakes_leaves_no_file(world: Shared, acts: int) -> None:
    """It looks up no more, also if its data files were rewritten, which Iceberg checks first."""

    def overtake() -> None:
        world.table.foreign_compaction()
        newest = world.table.newest_tiering_snapshot()
        assert newest is not None
        world.table._put(world.table.paths(), {**newest.summary, "sluice.write-id": "other"})

    before = world.table.paths()
    with pytest.raises(SluiceError):
        world.round_beside(*[world.table.foreign_compaction] * acts, overtake)
    assert len(world.runs) == min(acts + 1, 3)
    unreferenced = world.table.unreferenced_files() - before
    assert unreferenced == set()


def test_a_claim_that_ends_during_a_second_look_up_commits_nothing(world: Shared) -> None:
    """The fence would let it pass: the other round has not committed yet."""
    before = world.table.newest_tiering_snapshot()

    def lose_the_claim(split: Split) -> None:
        world.cluster.begin_round()

    world.spoil = lose_the_claim
    assert world.round_beside(lambda: world.rewrite(1)).outcome == "claim_lost"
    assert len(world.runs) == 2
    assert world.table.newest_tiering_snapshot() == before
    assert world.table.unreferenced_files() == set()
    world.runs.clear()
    world.round()
    world.check()


REPORTS = [
    (DeletesReport(), "", None),
    (DeletesReport(position_buckets=3), "positions", ["position"]),
    (DeletesReport(0, 2, "too many"), "equality deletes (too many)", ["equality"]),
    (DeletesReport(0, 2), "equality deletes", ["equality"]),
    (
        DeletesReport(1, 2, "too many"),
        "positions in 1 of 3 buckets, equality deletes in the others (too many)",
        ["position", "equality"],
    ),
]


@pytest.mark.parametrize(("report", "text", "kinds"), REPORTS)
def test_the_report_says_how_rows_were_deleted(
    report: DeletesReport, text: str, kinds: list[str] | None
) -> None:
    report = replace(report, files_read=5, bytes_read=700, seconds=1.2345, lookups=2)
    assert str(report) == text
    if kinds is None:
        assert report.summary() == {}
        return
    assert json.loads(report.summary()[DELETES_KEY]) == {
        "kinds": kinds,
        "position-buckets": report.position_buckets,
        "equality-buckets": report.equality_buckets,
        "files-read": 5,
        "bytes-read": 700,
        "cpu-ms": 1234,
        "lookups": 2,
    }


def test_a_round_without_deletes_has_no_positions() -> None:
    files = RoundFiles([SplitResult(TableBucket(1, None, 0), (), 1, 0, 0, -1)])
    assert (files.positions, files.unused, files.all) == (None, [], [])
    assert files.report() == DeletesReport()


def test_a_compaction_that_is_given_up_leaves_none_of_its_files(world: Shared) -> None:
    """A bucket without changed keys: what marks rows of the files that were to stay goes, too."""
    bucket, where = world.bucket(0), ("0",)
    own, new = DataFile("own", 2, 16, where), DataFile("new", 9, 72, where)
    tidied = DataFile("tidied", 1, 8, where, FileContent.POSITION_DELETES, (RowMarks("b", 1, 0),))
    result = SplitResult(
        bucket,
        (new, tidied),
        1,
        2,
        0,
        -1,
        deleted=WrittenDeletes(files=(tidied,)),
        compacted=WrittenCompaction(("a",), (new,), (own,)),
    )
    live = LiveFiles(1, {})
    files = RoundFiles([result], Lookups((), live, LookupBudget(), lambda splits: iter(())))
    assert files.positions == PlannedCommit(live, removed=("a",))
    assert files.unused == [own]
    files.look_up_again(world.table, "a is missing")
    assert (files.files, files.positions) == ([own], None)
    assert {file.path for file in files.unused} == {"new", "tidied"}
