"""Clean-up behind a lake table: what is dead goes, what may still count stays."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence, Set

import pytest

from sluice.errors import LakeCommitRefused, LakeNotWritable
from sluice.lake.iceberg.write.split_writer import bucket_file_prefix
from sluice.model import Claim, TableBucket, TablePath
from sluice.rounds.records.result import RoundResult
from sluice.rounds.upkeep import orphans as cleaning
from sluice.rounds.upkeep.orphans import CleanReport, References, StoredFile, clean
from sluice.rounds.values.offsets import offsets_file_name
from sluice.rounds.values.types import LakeSnapshot, Split, SplitPart
from sluice.rounds.values.write_ids import new_write_id, write_ids_in
from tests.docs.blocks import claimed_blocks
from tests.support.models.memory_lake import MemoryLakeTable
from tests.unit.rounds.conftest import World

Arm = Callable[[str], None]
PATH = TablePath("db", "t")
UNIQUE = "5b1c6c1e-0f4e-5d7c-9a63-1d8a8f1c7e11"


def test_the_page_shows_the_parts_of_a_file_name() -> None:
    [shown] = claimed_blocks("docs/clean-up.md", __file__)
    name, *below = shown.content.splitlines()
    table = "9f3a1c22d0e14b6f"
    assert name == f"{bucket_file_prefix(3, 17, f'42-{table}-{UNIQUE}')}-00001.parquet"
    assert [(each.base, each.table) for each in write_ids_in(name)] == [(42, table)]
    parts = {
        "bucket": "00003",
        "task": "17",
        "base": "42",
        "lake table": table,
        "uuid5 of this try": UNIQUE,
        "file": "00001",
    }
    words = [found for line in below for found in re.finditer(r"\S+( \S+)*", line)]
    assert {word[0]: word.start() for word in words} == {
        word: name.index(part) for word, part in parts.items()
    }


def cleaned(world: World, *, apply: bool = True) -> CleanReport:
    return clean(PATH, world.table, apply=apply)


def paths(found: Sequence[object]) -> list[str]:
    return sorted(entry.path for entry in found)  # type: ignore[attr-defined]


class Driver:
    """A round that stands still between its copy and its commit, until it is told to go on."""

    def __init__(self, world: World) -> None:
        self._go, self._held = threading.Event(), threading.Event()
        self._outcome: list[RoundResult | BaseException] = []
        before = set(world.table.files)
        world.table.before_commit = self._hold
        claim = world.cluster.begin_round()
        self._thread = threading.Thread(target=self._run, args=(world, claim))
        self._thread.start()
        assert self._held.wait(120)
        self.files = set(world.table.files) - before

    def finish(self) -> RoundResult:
        self._go.set()
        self._thread.join(120)
        [outcome] = self._outcome
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def _run(self, world: World, claim: Claim) -> None:
        try:
            self._outcome.append(world.round(claim))
        except BaseException as error:
            self._outcome.append(error)

    def _hold(self) -> None:
        self._held.set()
        assert self._go.wait(120)


def killed(world: World, arm: Arm, step: str = "round.lake_commit.before") -> set[str]:
    """A round dies there; the files that it leaves."""
    before = set(world.table.files)
    arm(f"{step}=raise")
    with pytest.raises(RuntimeError, match=step):
        world.round()
    arm("")
    return set(world.table.files) - before


@pytest.fixture
def begun(world: World) -> World:
    """A table with one commit."""
    world.append(0, 3)
    world.round()
    return world


def test_a_name_says_what_its_round_was_planned_from() -> None:
    claim = Claim(7, PATH, 3, 2)
    uuid = "9f3a1c22-d0e1-4b6f-8a63-1d8a8f1c7e11"
    base = LakeSnapshot(4711, 17, {})
    write_id = new_write_id(claim, "a", uuid, base)
    assert (write_id.base, write_id.table) == (17, "9f3a1c22d0e14b6f")
    assert new_write_id(claim, "a", uuid, base) != write_id, "another one at every call"
    assert new_write_id(claim, "a", uuid, None).base == 0
    assert write_id.is_of(uuid)
    a_part = Split(TableBucket(7, None, 0), (), 0, 1, part=SplitPart(2, 9))
    assert not write_id.is_of(uuid.replace("9f", "8f"))
    for name in (
        f"00000-7-{write_id}-00001.parquet",
        f".00000-7-{write_id}-00001.parquet.{'0' * 32}.tmp",
        f".00000-7-{write_id}-p3-again1-00001-deletes.puffin.{'0' * 32}.tmp",
        f"00000-7-{write_id}{a_part.file_suffix}-00001.parquet",
        offsets_file_name(str(write_id)),
    ):
        assert write_ids_in(name) == [write_id]


@pytest.mark.parametrize(
    "name",
    [
        f"00000-0-{UNIQUE}-00001.parquet",  # Iceberg's own form: Flink, Spark
        f"00000-0-17-9f3a1c22d0e14b6-{UNIQUE}-00001.parquet",  # 15 digits
        f"00000-0-17-9f3a1c22d0e14b6fa-{UNIQUE}-00001.parquet",  # 17 digits
        f"00000-0-x17-9f3a1c22d0e14b6f-{UNIQUE}-00001.parquet",
        f"00000-0-17-9F3A1C22D0E14B6F-{UNIQUE}-00001.parquet",
        f"00000-0-17-9f3a1c22d0e14b6f-{UNIQUE.replace('-5', '-4')}-00001.parquet",
        f"00000-0-17-9f3a1c22d0e14b6f-{UNIQUE}a-00001.parquet",
    ],
)
def test_names_of_others_say_nothing(name: str) -> None:
    assert write_ids_in(name) == []


def test_what_a_dead_round_left_goes_after_the_next_commit(begun: World, arm: Arm) -> None:
    begun.append(0, 2)
    left = killed(begun, arm)
    assert len(left) == 1
    held = cleaned(begun)  # its base is the newest of ours: it could go on
    assert (held.removed, held.dead) == ([], [])
    assert paths(held.kept) == sorted(left)
    assert "its round may still commit" in held.kept[0].reason
    begun.round()
    shown = cleaned(begun, apply=False)
    assert paths(shown.dead) == sorted(left)
    assert "can never commit" in shown.dead[0].reason
    assert left <= set(begun.table.files), "a dry run removes nothing"
    done = cleaned(begun)
    assert set(done.removed) == left
    assert begun.table.unreferenced_files() == set()
    assert cleaned(begun).dead == []
    begun.assert_exactly_once()


def test_the_first_rounds_of_a_table(world: World, arm: Arm) -> None:
    world.append(0, 2)
    world.append(1, 2)
    arm("round.lake_commit.before=raise")
    with pytest.raises(RuntimeError):
        world.round()
    arm("")
    assert len(world.table.files) == 2
    assert "the table has no tiering snapshot" in cleaned(world).kept[0].reason
    world.round()
    assert len(cleaned(world).removed) == 2
    world.assert_exactly_once()


@pytest.mark.parametrize("first", [True, False])
def test_clean_up_between_copy_and_commit_takes_nothing_of_the_round(
    world: World, first: bool
) -> None:
    world.lake.create(world.cluster.info)  # type: ignore[arg-type]
    if not first:
        world.append(0, 3)
        world.round()
    world.append(1, 2)
    driver = Driver(world)
    report = cleaned(world)
    assert report.removed == []
    assert set(paths(report.kept)) == driver.files != set()
    assert driver.finish().outcome == "committed"
    world.assert_exactly_once()


def test_naive_clean_up_between_copy_and_commit_destroys_what_is_then_committed(
    begun: World,
) -> None:
    """The control: 'everything unreferenced' is what a snapshot needs a moment later."""
    begun.append(0, 5)
    driver = Driver(begun)
    for path in begun.table.unreferenced_files():
        del begun.table.files[path]
    assert driver.finish().outcome == "committed"
    referenced, _ = begun.table.referenced()
    assert referenced - set(begun.table.files) == driver.files != set()
    with pytest.raises(KeyError):
        begun.table.rows()


def test_a_driver_that_wakes_up_after_its_files_were_cleaned_is_refused(begun: World) -> None:
    """Its base is not the newest any more, whatever the claim says: so nothing is missing."""
    begun.append(0, 5)
    driver = Driver(begun)
    begun.append(1, 1)
    begun.round()  # another round takes over
    assert set(cleaned(begun).removed) == driver.files
    with pytest.raises(LakeCommitRefused):
        driver.finish()
    begun.assert_exactly_once()


class Interrupted:
    """The TableFiles port of a table on which something happens just after one of the steps."""

    def __init__(self, table: MemoryLakeTable, step: str, what: Callable[[], object]) -> None:
        self.table, self.step, self.what = table, step, what
        self.uuid = table.uuid
        self.gone: list[str] = []

    def stored_files(self) -> Iterator[StoredFile]:
        yield from list(self.table.stored_files())
        self._after("stored_files")

    def newest_tiering_snapshot(self) -> LakeSnapshot | None:
        found = self.table.newest_tiering_snapshot()
        self._after("newest_tiering_snapshot")
        return found

    def references(self, names: Set[str]) -> References:
        real, after = self.table.references(names), self._after

        class Looking:
            def read(self) -> Set[str]:
                found = set(real.read())
                after("read")
                return found

        return Looking()

    def remove(self, paths: Sequence[str]) -> Mapping[str, str]:
        self.gone += paths
        self._after("remove")
        return self.table.remove(paths)

    def _after(self, step: str) -> None:
        if step == self.step:
            self.step = ""
            self.what()


@pytest.mark.parametrize("step", ["stored_files", "newest_tiering_snapshot", "read", "remove"])
def test_a_commit_at_any_moment_of_the_clean_up_loses_nothing(
    begun: World, arm: Arm, step: str
) -> None:
    begun.append(1, 2)
    dead = killed(begun, arm)
    begun.append(1, 2)
    begun.round()
    begun.append(0, 4)
    driver = Driver(begun)
    view = Interrupted(begun.table, step, driver.finish)
    report = clean(PATH, view, apply=True)
    assert view.step == "", "it happened"
    assert set(paths(report.dead)) == set(report.removed) == dead
    assert driver.files <= set(begun.table.files)
    begun.assert_exactly_once()


def test_the_other_order_of_looks_would_lose_a_commit_in_between(begun: World) -> None:
    """The control of the order: references first, then the newest commit."""
    begun.append(0, 4)
    driver = Driver(begun)
    names = {path.rpartition("/")[2] for path in driver.files}
    used = begun.table.references(names).read()
    driver.finish()
    newest = begun.table.newest_tiering_snapshot()
    assert newest is not None
    doomed = [n for n in names - used if write_ids_in(n)[0].base < newest.sequence_number]
    assert set(doomed) == names, "committed, and yet it looks dead and unreferenced"


def test_a_snapshot_that_only_another_branch_or_tag_holds_still_counts(begun: World) -> None:
    """Rolled back: its files are referenced, its own line is not main's."""
    before = begun.table.newest_tiering_snapshot()
    assert before is not None
    begun.append(0, 2)
    begun.round()
    begun.table.roll_back_to(before.snapshot_id)
    begun.append(1, 2)
    assert (cleaned(begun).dead, cleaned(begun).kept) == ([], [])


def test_a_round_whose_base_was_rolled_back_is_kept(begun: World, arm: Arm) -> None:
    """Bringing the lake forward again would bring it to life."""
    first = begun.table.newest_tiering_snapshot()
    assert first is not None
    begun.append(0, 2)
    begun.round()
    begun.append(0, 2)
    left = killed(begun, arm)
    begun.table.roll_back_to(first.snapshot_id)
    report = cleaned(begun)
    assert (report.removed, paths(report.kept)) == ([], sorted(left))
    assert "the table was rolled back" in report.kept[0].reason


def test_files_of_another_table_in_the_same_folder_are_none_of_ours(begun: World, arm: Arm) -> None:
    """A table was renamed and one of its name created, in the folder that it still uses."""
    begun.append(0, 2)
    left = killed(begun, arm)
    begun.round()
    begun.table.uuid = "ffffffff-0000-4000-8000-000000000000"
    report = cleaned(begun)
    assert (report.removed, paths(report.kept)) == ([], sorted(left))
    assert "another lake table" in report.kept[0].reason


def test_unreferenced_files_of_other_writers_are_counted_and_stay(begun: World) -> None:
    foreign = f"mem:/db.t/data/00000-0-{UNIQUE}-00001.parquet"
    begun.table.files[foreign] = [((), 0, 99)]
    begun.table.files["mem:/db.t/metadata/snap-1.avro"] = []
    report = cleaned(begun)
    assert (report.foreign_files, report.foreign_bytes, report.removed) == (1, 8, [])
    assert foreign in begun.table.files


def test_what_a_lost_executor_left_goes_though_its_round_has_committed(begun: World) -> None:
    """Another execution of its split has brought the rows."""
    begun.append(0, 2)
    driver = Driver(begun)
    [file] = driver.files
    zombie = file.replace("-0-1:0", "-7-1:0")
    assert zombie != file
    begun.table.files[zombie] = [((), 0, 3)]
    assert cleaned(begun).removed == []
    driver.finish()
    assert cleaned(begun).removed == [zombie]
    begun.assert_exactly_once()


def test_offsets_files_stay_with_their_snapshot_and_go_with_a_dead_round(
    begun: World, monkeypatch: pytest.MonkeyPatch, arm: Arm
) -> None:
    monkeypatch.setattr("sluice.rounds.values.offsets.SUMMARY_BYTES_MAX", 10)
    begun.append(0, 2)
    killed(begun, arm)
    [dead] = begun.table.beside
    begun.append(0, 2)
    begun.round()
    [living] = set(begun.table.beside) - {dead}
    assert dead in cleaned(begun).removed
    assert list(begun.table.beside) == [living]
    newest = begun.table.newest_tiering_snapshot()
    assert newest is not None
    assert newest.summary["sluice.offsets-file"] == living
    # Later rounds and the expiry of the snapshot make it a leftover as well.
    begun.append(0, 2)
    begun.round()
    assert cleaned(begun).removed == []
    begun.table.expire(newest.snapshot_id)
    assert cleaned(begun).removed == [living]


def test_age_is_a_further_condition_and_never_a_reason(begun: World, arm: Arm) -> None:
    begun.append(0, 2)
    left = killed(begun, arm)

    class Dated(Interrupted):
        modified_ms: int | None = 1_000

        def stored_files(self) -> Iterator[StoredFile]:
            for file in self.table.stored_files():
                yield StoredFile(file.path, file.size_bytes, self.modified_ms)

    view = Dated(begun.table, "", lambda: None)
    old = clean(PATH, view, apply=True, older_than_ms=1, now_ms=10**15)
    assert (old.removed, old.dead) == ([], []), "old, but it could still commit"
    begun.round()
    young = clean(PATH, view, apply=True, older_than_ms=5_000, now_ms=5_999)
    assert (young.removed, young.kept[0].reason) == ([], "it is younger than --older-than")
    view.modified_ms = None
    assert clean(PATH, view, apply=True, older_than_ms=5_000, now_ms=10**15).removed == []
    view.modified_ms = 1_000
    done = clean(PATH, view, apply=True, older_than_ms=5_000, now_ms=6_000)
    assert set(done.removed) == left


@pytest.fixture
def littered(begun: World, arm: Arm, monkeypatch: pytest.MonkeyPatch) -> World:
    """Five dead rounds, cleaned up in batches of two."""
    monkeypatch.setattr(cleaning, "BATCH_FILES", 2)
    for _ in range(5):
        begun.append(0, 1)
        killed(begun, arm)
    begun.round()
    return begun


def test_clean_up_that_dies_halfway_leaves_nothing_worse(littered: World, arm: Arm) -> None:
    arm("clean.batch.after=raise@2")
    with pytest.raises(RuntimeError):
        cleaned(littered)
    arm("")
    littered.assert_exactly_once()
    assert len(cleaned(littered).removed) == 1
    assert littered.table.unreferenced_files() == set()


def test_the_table_is_looked_at_again_before_each_batch(littered: World) -> None:
    """A rollback by hand while the clean-up runs: what it has not removed yet, it leaves."""
    base = littered.table.snapshots()[-1]

    def roll_back() -> None:
        littered.table.roll_back_to(base.snapshot_id)

    view = Interrupted(littered.table, "remove", roll_back)
    report = clean(PATH, view, apply=True)
    assert (len(report.removed), len(report.failed)) == (2, 3)
    assert set(report.failed.values()) == {
        "the table changed during clean-up: run `sluice clean` again"
    }


def test_a_table_that_cannot_be_read_loses_nothing(littered: World) -> None:
    files = set(littered.table.files)
    littered.table.blind = True
    with pytest.raises(LakeNotWritable):
        cleaned(littered)
    assert set(littered.table.files) == files


def test_what_cannot_be_removed_is_told_with_its_reason(littered: World) -> None:
    class Stubborn(Interrupted):
        def remove(self, paths: Sequence[str]) -> Mapping[str, str]:
            self.table.remove(paths[1:])
            return {paths[0]: "PermissionError: no"}

    report = clean(PATH, Stubborn(littered.table, "", lambda: None), apply=True)
    assert (len(report.removed), len(report.failed)) == (2, 3)
    assert littered.table.unreferenced_files() == set(report.failed)
