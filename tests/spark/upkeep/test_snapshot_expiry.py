"""Expiry of snapshots on real Iceberg tables: what goes, what stays, and what comes in between."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluice import failpoints
from sluice.driver.lakes.jvm import Jvm
from sluice.errors import LakeCommitRefused, LakeNotWritable
from sluice.lake.iceberg.catalog.java import iterate
from sluice.lake.iceberg.lake import IcebergLake
from sluice.lake.iceberg.table import IcebergTable
from sluice.model import TableBucket
from sluice.model import types as t
from sluice.rounds.upkeep.orphans import clean
from sluice.rounds.values.expiry import MAIN, NOTHING_EXPIRED, TAG, ExpiryRule, StoredSnapshots
from sluice.rounds.values.lake_files import DataFile
from sluice.rounds.values.offsets import store_offsets
from sluice.rounds.values.types import LakePart, LakeSnapshot, LogRecords, Split
from tests.support.clusters.rest_catalog import RestCatalog
from tests.support.models.tables import table_info

pytestmark = pytest.mark.spark
INFO = table_info({"a": t.BIGINT})
DAY_MS = 24 * 3_600_000
COMMITS = 8


@pytest.fixture
def lake(jvm: Jvm, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[IcebergLake]:
    """In a Hadoop catalog, or in that of the test's parameter."""
    if getattr(request, "param", "hadoop") == "hadoop":
        yield IcebergLake(jvm.gateway, {"type": "hadoop", "warehouse": str(tmp_path)})
        return
    with RestCatalog(jvm.gateway, tmp_path) as catalog:
        yield IcebergLake(jvm.gateway, catalog.options)


in_both = pytest.mark.parametrize(
    "lake", ["hadoop", pytest.param("rest", marks=pytest.mark.slow)], indirect=True
)
"""A Hadoop catalog compares the metadata at a commit, a REST catalog only what is changed."""


@dataclass(frozen=True)
class World:
    """A table with eight commits. Each one replaces the rows of the one before."""

    lake: IcebergLake
    table: IcebergTable
    snapshots: list[LakeSnapshot]
    folder: Path

    @property
    def newest(self) -> LakeSnapshot:
        return self.snapshots[-1]

    def again(self) -> IcebergTable:
        """The table as another driver sees it."""
        found = self.lake.load(INFO.path)
        assert found is not None
        return found

    def rule(self, **changes: Any) -> ExpiryRule:
        """In six days: all is old enough."""
        base, kept = self.snapshots[-2].snapshot_id, frozenset({self.newest.snapshot_id})
        rule = ExpiryRule(int(time.time() * 1000) + 6 * DAY_MS, 1, base, kept)
        return replace(rule, **changes)

    def ids(self) -> set[int]:
        self.table._loaded.java.refresh()
        return {one.snapshotId() for one in iterate(self.table._loaded.java.snapshots())}

    def refs(self) -> dict[str, int]:
        refs = self.table._loaded.java.refs()
        return {name: refs.get(name).snapshotId() for name in iterate(refs.keySet())}

    def stored(self) -> set[str]:
        """The stored files that a snapshot may reference."""
        files = (str(path) for path in self.folder.rglob("*") if path.is_file())
        return {one for one in files if one.endswith((".parquet", ".avro")) or "_sluice" in one}

    def referenced(self) -> set[str]:
        """The files of all snapshots."""
        table = self.table._loaded.java
        table.refresh()
        found = set()
        for snapshot in iterate(table.snapshots()):
            found.add(snapshot.manifestListLocation())
            found.add(snapshot.summary().get("sluice.offsets-file"))
            for manifest in iterate(snapshot.allManifests(table.io())):
                found.add(manifest.path())
                found.update(self.table.references(set())._paths_in(manifest))
        names = {Path(one).name for one in found if one}
        return {one for one in self.stored() if Path(one).name in names} | (
            names - {Path(one).name for one in self.stored()}
        )


def file_of(table: IcebergTable, base: LakeSnapshot | None, first: int) -> tuple[DataFile, ...]:
    """One file with three rows, named as that of a round."""
    split = Split(TableBucket(1, None, 0), (), first, first + 3)
    number = 0 if base is None else base.sequence_number
    uuid5 = "5b1c6c1e-0f4e-5d7c-9a63-1d8a8f1c7e11"
    write_id = f"{number}-{table.uuid.replace('-', '')[:16]}-{uuid5}"
    writer = table.writer_factory(write_id, [split])(split, first)
    rows = pa.RecordBatch.from_pydict({"a": pa.array(range(first, first + 3), pa.int64())})
    writer.write(LogRecords(rows, first, first + 3, 1, 1))
    return writer.close()


def commit(table: IcebergTable, base: LakeSnapshot | None, first: int, **more: Any) -> LakeSnapshot:
    files = file_of(table, base, first)
    return table.commit(files, base, {"fluss-offsets": f"/{first}", **more}, [LakePart(())])


@pytest.fixture
def world(lake: IcebergLake, tmp_path: Path) -> World:
    table = lake.create(INFO)
    snapshots: list[LakeSnapshot] = []
    for number in range(COMMITS):
        snapshots.append(commit(table, snapshots[-1] if snapshots else None, 3 * number))
    return World(lake, table, snapshots, tmp_path / "db/t")


def test_old_snapshots_go_with_the_files_that_no_other_has(world: World) -> None:
    before = world.stored()
    assert len([one for one in before if one.endswith(".parquet")]) == COMMITS
    expired = world.table.expire_by(world.rule())
    assert world.ids() == {one.snapshot_id for one in world.snapshots[-2:]}
    assert world.refs() == {MAIN: world.newest.snapshot_id, TAG: world.newest.snapshot_id}
    assert world.stored() == world.referenced()
    assert (expired.snapshots, expired.notes) == (COMMITS - 2, ())
    assert expired.files == len(before - world.stored())
    assert world.table.newest_tiering_snapshot() == world.newest
    commit(world.again(), world.newest, 99)


def test_nothing_goes_before_it_is_worth_it(world: World) -> None:
    before = world.stored()
    kept = frozenset(one.snapshot_id for one in world.snapshots[2:])
    assert world.table.expire_by(world.rule(kept=kept)) == NOTHING_EXPIRED
    assert world.stored() == before


@pytest.mark.slow
def test_an_offsets_file_goes_with_its_snapshot(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluice.rounds.values.offsets.SUMMARY_BYTES_MAX", 1)
    for number in range(6):
        stored = store_offsets(world.table, 1, {TableBucket(1, None, 0): number}, f"w{number}")
        world.snapshots.append(commit(world.table, world.newest, 50 + number, **stored))
    assert len([one for one in world.stored() if "_sluice" in one]) == 6
    world.table.expire_by(world.rule())
    assert len([one for one in world.stored() if "_sluice" in one]) == 2
    assert world.stored() == world.referenced()


@dataclass(frozen=True)
class Meddling(ExpiryRule):
    """Others act between the choice of the snapshots and their expiry."""

    meddle: list[Callable[[], object]] = field(default_factory=list)

    def choose(self, stored: StoredSnapshots) -> tuple[int, ...]:
        going = super().choose(stored)
        if self.meddle:
            self.meddle.pop(0)()
        return going


def meddling(world: World, *acts: Callable[[], object]) -> Meddling:
    rule = world.rule()
    return Meddling(rule.now_ms, rule.round_ms, rule.base, rule.kept, meddle=[*acts])


@in_both
def test_another_round_commits_meanwhile(world: World) -> None:
    """Its snapshot and its tag stay, and so do its files."""
    other, landed = world.again(), []
    rule = meddling(world, lambda: landed.append(commit(other, world.newest, 70)))
    expired = world.table.expire_by(rule)
    assert not rule.meddle
    assert expired.snapshots == COMMITS - 2
    [new] = landed
    assert world.refs() == {MAIN: new.snapshot_id, TAG: new.snapshot_id}
    assert new.snapshot_id in world.ids()
    assert world.stored() == world.referenced()


@in_both
def test_a_snapshot_that_becomes_somebodys_meanwhile_stays(world: World) -> None:
    """A user goes back to it, or marks it, after it was chosen."""
    first, second, table = *world.snapshots[:2], world.again()

    def use() -> None:
        table._loaded.java.manageSnapshots().createBranch("audit", first.snapshot_id).commit()
        table.set_main(second.snapshot_id, world.newest.snapshot_id)

    world.table.expire_by(meddling(world, use))
    refs = world.refs()
    assert (refs["audit"], refs[MAIN]) == (first.snapshot_id, second.snapshot_id)
    assert {first.snapshot_id, second.snapshot_id, world.newest.snapshot_id} <= world.ids()
    assert world.stored() == world.referenced()


@in_both
def test_others_are_faster_each_time(world: World) -> None:
    before, tables = world.ids(), [world.again() for _ in range(3)]

    def append(table: IcebergTable) -> None:
        table._loaded.java.newAppend().commit()

    acts = [lambda table=table: append(table) for table in tables]
    with pytest.raises(LakeCommitRefused):
        world.table.expire_by(meddling(world, *acts))
    assert before <= world.ids()
    assert world.stored() == world.referenced()


def test_an_expiry_in_the_midst_of_a_commit_disturbs_no_fence(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The round's first attempt meets the expiry, its second one lands on the same base."""
    other, passed = world.again(), []

    def expire(name: str) -> None:
        if name == "round.lake_commit.ready" and not passed:
            passed.append(other.expire_by(world.rule()).snapshots)

    monkeypatch.setattr("sluice.lake.iceberg.commit.table_commits.failpoint", expire)
    landed = commit(world.table, world.newest, 80)
    assert passed == [COMMITS - 2]
    assert world.table.newest_tiering_snapshot() == landed
    assert world.refs()[TAG] == landed.snapshot_id
    with pytest.raises(LakeCommitRefused, match="no longer the planned base"):
        commit(other, world.newest, 90)
    lost = world.stored() - world.referenced()
    assert [one for one in lost if one.endswith(".avro")] == []


@pytest.mark.parametrize("age_of", [pytest.param("branch", marks=pytest.mark.slow), "table"])
def test_no_more_expires_than_was_chosen(world: World, age_of: str) -> None:
    """Iceberg itself would expire all of main's snapshots but one."""
    if age_of == "branch":
        world.table._loaded.java.manageSnapshots().setMaxSnapshotAgeMs(MAIN, 1).commit()
    else:
        properties = world.table._loaded.java.updateProperties()
        properties.set("history.expire.max-snapshot-age-ms", "1").commit()
    kept = frozenset(one.snapshot_id for one in world.snapshots[-3:])
    assert world.table.expire_by(world.rule(kept=kept)).snapshots == COMMITS - 3
    assert world.ids() == kept
    own = 1 if age_of == "branch" else None
    assert world.table._loaded.java.refs().get(MAIN).maxSnapshotAgeMs() == own


@pytest.mark.slow
def test_a_tag_that_is_too_old_goes_and_sluices_own_stays(world: World) -> None:
    manage = world.table._loaded.java.manageSnapshots()
    for name, one in zip(("old", "new"), world.snapshots, strict=False):
        manage = manage.createTag(name, one.snapshot_id)
    manage.setMaxRefAgeMs("old", 1).setMaxRefAgeMs("new", 30 * DAY_MS).commit()
    world.table.expire_by(world.rule())
    assert set(world.refs()) == {MAIN, TAG, "new"}
    kept = {one.snapshot_id for one in (world.snapshots[1], *world.snapshots[-2:])}
    assert world.ids() == kept
    properties = world.table._loaded.java.updateProperties()
    properties.set("history.expire.max-ref-age-ms", "1").commit()
    for number in range(6):
        world.snapshots.append(commit(world.table, world.newest, 60 + number))
    with pytest.raises(LakeCommitRefused, match="other snapshots than Sluice has chosen"):
        world.table.expire_by(world.rule())
    assert TAG in world.refs()


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("gc.enabled", "false", "GC is disabled"),
        ("history.expire.max-snapshot-age-ms", "5d", "is not a whole number"),
    ],
)
def test_a_table_that_may_not_expire(world: World, name: str, value: str, why: str) -> None:
    world.table._loaded.java.updateProperties().set(name, value).commit()
    before = world.ids()
    with pytest.raises((LakeNotWritable, ValueError), match=why):
        world.table.expire_by(world.rule())
    assert world.ids() == before


@pytest.mark.slow
def test_a_file_that_cannot_be_deleted_is_a_note(world: World) -> None:
    first = next(one for one in world.stored() if "-0-" in one and one.endswith(".parquet"))
    Path(first).unlink()
    (Path(first) / "in the way").mkdir(parents=True)  # a folder that is not empty
    expired = world.table.expire_by(world.rule())
    assert expired.snapshots == COMMITS - 2
    [note] = expired.notes
    assert f"1 of {expired.files + 1} files of expired lake snapshots" in note
    assert world.stored() == world.referenced()


def test_what_a_kill_before_the_deletion_leaves(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clean-up removes the data files, and does not know manifests and manifest lists."""
    monkeypatch.setattr(failpoints, "_armed", {"round.expire.committed": ("raise", 1)})
    with pytest.raises(RuntimeError, match=r"round\.expire\.committed"):
        world.table.expire_by(world.rule())
    assert len(world.ids()) == 2
    left = world.stored() - world.referenced()
    data = {one for one in left if one.endswith(".parquet")}
    assert len(data) == COMMITS - 2
    report = clean(INFO.path, world.table, apply=True)
    assert {one.removeprefix("file:") for one in report.removed} == data
    lost = world.stored() - world.referenced()
    assert lost == left - data
    assert {one.endswith(".avro") for one in lost} == {True}
