"""The LakeTable port on real Iceberg: fence, ancestry, tag, other writers, schema."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError

from sluice.driver.lakes.jvm import Jvm
from sluice.errors import (
    LakeCommitOutcomeUnknown,
    LakeCommitRefused,
    LakeNotWritable,
    LakeTableMismatch,
    UnsupportedLakeOption,
)
from sluice.iceberg_rules.layout import Layout
from sluice.lake.iceberg.lake import IcebergLake
from sluice.lake.iceberg.table import IcebergTable
from sluice.model import Column, DataType, TableBucket, TableInfo, TypeRoot
from sluice.model import types as t
from sluice.rounds.values.expiry import TAG
from sluice.rounds.values.lake_files import DataFile
from sluice.rounds.values.types import LakePart, LakeSnapshot, LogRecords, Split
from tests.support.models.tables import table_info

pytestmark = pytest.mark.spark
Sql = Callable[[Path, str], list[Any]]

INFO = table_info({"a": t.BIGINT})
WIDE = table_info({"a": t.BIGINT, "b": t.INT})


@pytest.fixture
def lake(jvm: Jvm, tmp_path: Path) -> IcebergLake:
    return IcebergLake(jvm.gateway, {"type": "hadoop", "warehouse": str(tmp_path)})


def files_of(
    table: IcebergTable, info: TableInfo = INFO, first: int = 0, values: tuple[str, ...] = ()
) -> tuple[DataFile, ...]:
    """One file with three rows."""
    bucket = TableBucket(1, 5 if values else None, 0)
    split = Split(bucket, values, first, first + 3)
    writer = table.writer_factory(f"w{first}", [split])(split)
    columns: dict[str, Any] = {"a": pa.array(range(first, first + 3), pa.int64())}
    for key, value in zip(info.descriptor.partition_keys, values, strict=True):
        columns[key] = pa.array([value] * 3)
    writer.write(LogRecords(pa.RecordBatch.from_pydict(columns), first, first + 3, 1, 1))
    return writer.close()


def commit(table: IcebergTable, base: LakeSnapshot | None, first: int = 0) -> LakeSnapshot:
    return table.commit(files_of(table, first=first), base, {"fluss-offsets": f"/{first}"})


def test_a_catalog_without_the_table_answers_none(lake: IcebergLake) -> None:
    assert lake.load(INFO.path) is None


def test_no_exception_is_taken_for_one_of_a_spark_session_beside(spark: Any, jvm: Jvm) -> None:
    """Both JVMs count their objects: an exception of ours has the number of one over there."""
    here, there = jvm.gateway.jvm, spark._jvm
    for _ in range(number(there), number(here)):
        number(there)
    theirs = [there.java.util.ArrayList() for _ in range(300)]
    while number(here) < number_of(theirs[0]):
        pass
    ours = []
    for _ in range(100):
        with pytest.raises(Py4JJavaError) as raised:
            here.java.lang.Integer.parseInt("seven")
        ours.append(raised.value.java_exception)
    assert {error.getClass().getSimpleName() for error in ours} == {"NumberFormatException"}
    assert {number_of(error) for error in ours} & {number_of(each) for each in theirs}


def number(view: Any) -> int:
    """Of a new object of a JVM."""
    return number_of(view.java.util.ArrayList())


def number_of(thing: Any) -> int:
    return int(thing._target_id.removeprefix("o"))


@pytest.mark.parametrize("layout", list(Layout))
def test_the_table_is_laid_out_as_fluss_does(
    lake: IcebergLake, lake_sql: Sql, tmp_path: Path, layout: Layout
) -> None:
    info = table_info(
        {"id": t.BIGINT.not_null(), "day": t.STRING},
        partition_keys=("day",),
        bucket_keys=("id",),
        buckets=4,
        custom_properties={"iceberg.write.target-file-size-bytes": "1000", "team": "x"},
    )
    table = lake.create(info, layout)
    table.add_missing_columns(info)
    described = lake_sql(tmp_path, "DESCRIBE EXTENDED lake.db.t")
    rows = {row[0]: row[1] for row in described}
    assert (rows["Part 0"], rows["Part 1"]) == ("day", "bucket(4, id)")
    for text in (
        "write.target-file-size-bytes=1000",
        "fluss.team=x",
        "fluss.table.datalake.enabled=true",
    ):
        assert text in rows["Table Properties"], text
    is_legacy = layout is Layout.LEGACY
    assert ("sort-order=__offset ASC NULLS FIRST" in rows["Table Properties"]) is is_legacy
    names = [row[0] for row in described]
    system = ["__bucket", "__offset", "__timestamp"] if is_legacy else []
    assert names[: names.index("# Partitioning") - 1] == ["id", "day", *system]


def test_the_fence_lets_only_the_planned_base_through(lake: IcebergLake) -> None:
    table = lake.create(INFO)
    first = commit(table, None)
    with pytest.raises(LakeCommitRefused, match="planned base None"):
        commit(table, None, first=3)
    second = commit(table, first, first=3)
    with pytest.raises(LakeCommitRefused, match=str(first.snapshot_id)):
        commit(table, first, first=6)
    assert table.newest_tiering_snapshot() == second
    assert second.sequence_number > first.sequence_number
    assert table.find_tiering_snapshot({"fluss-offsets": "/0"}) == first
    assert table.find_tiering_snapshot({"fluss-offsets": "/9"}) is None


def test_two_drivers_that_loaded_the_same_table_cannot_both_commit(lake: IcebergLake) -> None:
    lake.create(INFO)
    one, two = lake.load(INFO.path), lake.load(INFO.path)
    assert one is not None
    assert two is not None
    commit(one, None)
    with pytest.raises(LakeCommitRefused):
        commit(two, None, first=3)


@pytest.mark.parametrize("cut_off", [False, True])
@pytest.mark.parametrize("early", [True, False])
def test_a_commit_that_slips_in_at_the_last_moment_refuses_this_one(
    lake: IcebergLake, lake_sql: Sql, tmp_path: Path, cut_off: bool, early: bool
) -> None:
    """The fence sees one before the update begins, and the catalog sees any later one.

    The catalog only says that a file exists, or that a requirement failed.
    """
    table, other = lake.create(INFO), lake.load(INFO.path)
    assert other is not None
    base = commit(table, None)
    if cut_off:
        for _ in range(2):
            lake_sql(tmp_path, "INSERT INTO lake.db.t VALUES (0)")
        table._loaded.java.refresh()
        middle = table._loaded.java.currentSnapshot().parentId()
        table._loaded.java.expireSnapshots().expireSnapshotId(middle).commit()
    files = files_of(table, first=3)
    prepared = table._commits._new_update

    def slip_in(*arguments: Any) -> Any:
        if early:
            commit(other, base, first=6)
        update = prepared(*arguments)
        if not early:
            commit(other, base, first=6)
        return update

    table._commits._new_update = slip_in  # type: ignore[method-assign]
    overtaken = rf"no longer the planned base {base.snapshot_id}\b"
    with pytest.raises(LakeCommitRefused, match=overtaken):
        table.commit(files, base, {"fluss-offsets": "/3"})
    assert lake_sql(tmp_path, "SELECT count(*) FROM lake.db.t WHERE a = 3")[0][0] == 0


@pytest.mark.parametrize("times", [1, 3])
def test_foreign_commits_that_slip_in_do_no_harm(
    lake: IcebergLake, lake_sql: Sql, tmp_path: Path, times: int
) -> None:
    table = lake.create(INFO)
    first = commit(table, None)
    prepared, left = table._commits._new_update, [9] * times

    def slip_in(*arguments: Any) -> Any:
        update = prepared(*arguments)
        if left:
            row = f"({left.pop()})"
            lake_sql(tmp_path, f"INSERT INTO lake.db.t VALUES {row}")
        return update

    table._commits._new_update = slip_in  # type: ignore[method-assign]
    second = commit(table, first, first=3)
    assert left == []
    assert lake_sql(tmp_path, "SELECT sum(a) FROM lake.db.t")[0][0] == 9 * times + sum(range(6))
    assert refs(lake_sql, tmp_path) == {"main": second.snapshot_id, TAG: second.snapshot_id}


def test_a_commit_that_is_always_overtaken_gives_up(
    lake: IcebergLake, lake_sql: Sql, tmp_path: Path
) -> None:
    table, other = lake.create(INFO), lake.load(INFO.path)
    assert other is not None
    first = commit(table, None)
    prepared, tries = table._commits._new_update, []

    def slip_in(*arguments: Any) -> Any:
        update = prepared(*arguments)
        other._loaded.java.newAppend().commit()
        other._loaded.java.refresh()
        tries.append(update)
        return update

    table._commits._new_update = slip_in  # type: ignore[method-assign]
    with pytest.raises(LakeCommitRefused, match="CommitFailedException"):
        commit(table, first, first=3)
    assert len(tries) == 10
    assert table.newest_tiering_snapshot() == first
    assert lake_sql(tmp_path, "SELECT count(*) FROM lake.db.t")[0][0] == 3
    assert refs(lake_sql, tmp_path)[TAG] == first.snapshot_id


def refs(lake_sql: Sql, warehouse: Path) -> dict[str, int]:
    rows = lake_sql(warehouse, "SELECT name, snapshot_id FROM lake.db.t.refs")
    return {row[0]: row[1] for row in rows}


def test_other_writers_are_no_conflict_and_none_of_ours(
    lake: IcebergLake, lake_sql: Sql, tmp_path: Path
) -> None:
    table = lake.create(INFO)
    first = commit(table, None)
    lake_sql(tmp_path, "INSERT INTO lake.db.t VALUES (99)")
    assert table.newest_tiering_snapshot() == first
    second = commit(table, first, first=3)
    assert table.is_ancestor(first.snapshot_id)
    assert lake_sql(tmp_path, "SELECT sum(a) FROM lake.db.t")[0][0] == sum(range(6)) + 99
    lake_sql(tmp_path, f"CALL lake.system.rollback_to_snapshot('db.t', {first.snapshot_id})")
    assert table.newest_tiering_snapshot() == first
    assert not table.is_ancestor(second.snapshot_id)


def test_an_empty_commit_makes_a_snapshot(lake: IcebergLake) -> None:
    table = lake.create(INFO)
    first = table.commit([], None, {"fluss-offsets": "/x"})
    assert table.newest_tiering_snapshot() == first
    assert first.summary["commit-user"] == "__fluss_lake_tiering"


def test_the_tag_keeps_a_snapshot_from_expiry(
    lake: IcebergLake, lake_sql: Sql, tmp_path: Path
) -> None:
    table = lake.create(INFO)
    first = commit(table, None)
    assert refs(lake_sql, tmp_path)[TAG] == first.snapshot_id
    for value in range(3):
        lake_sql(tmp_path, f"INSERT INTO lake.db.t VALUES ({value})")
    lake_sql(
        tmp_path,
        "CALL lake.system.expire_snapshots(table => 'db.t', retain_last => 1,"
        " older_than => timestamp '2100-01-01')",
    )
    kept = [r[0] for r in lake_sql(tmp_path, "SELECT snapshot_id FROM lake.db.t.snapshots")]
    assert first.snapshot_id in kept
    # Its children are gone, so that ancestry no longer reaches it: only the tag does.
    assert table.newest_tiering_snapshot() == first
    assert table.is_ancestor(first.snapshot_id)
    with pytest.raises(LakeCommitRefused):
        commit(table, LakeSnapshot(first.snapshot_id + 1, 1, {}), first=3)
    second = commit(table, first, first=3)
    with pytest.raises(LakeCommitRefused):
        commit(table, first, first=6)
    assert refs(lake_sql, tmp_path)[TAG] == second.snapshot_id
    table.tag(first.snapshot_id)  # by somebody who comes late
    assert refs(lake_sql, tmp_path)[TAG] == second.snapshot_id
    table._loaded.java.manageSnapshots().removeTag(TAG).commit()
    table.tag(second.snapshot_id)
    assert refs(lake_sql, tmp_path) == {"main": second.snapshot_id, TAG: second.snapshot_id}


def test_the_tag_does_not_bring_back_what_was_rolled_back(
    lake: IcebergLake, lake_sql: Sql, tmp_path: Path
) -> None:
    table = lake.create(INFO)
    first = commit(table, None)
    second = commit(table, first, first=3)
    assert refs(lake_sql, tmp_path)[TAG] == second.snapshot_id
    lake_sql(tmp_path, f"CALL lake.system.rollback_to_snapshot('db.t', {first.snapshot_id})")
    assert table.newest_tiering_snapshot() == first


def test_the_tag_does_not_pass_for_an_ancestor_after_a_rollback_and_an_expiry(
    lake: IcebergLake,
) -> None:
    table = lake.create(INFO)
    first = commit(table, None)
    second = commit(table, first, first=3)
    table.set_main(first.snapshot_id, second.snapshot_id)
    for _ in range(2):
        table._loaded.java.refresh()
        table._loaded.java.newAppend().commit()
    table._loaded.java.refresh()
    table._loaded.java.expireSnapshots().expireOlderThan(2**62).retainLast(1).commit()
    history = table.history()
    assert (len(history.snapshots), history.tagged) == (2, second.snapshot_id)
    assert table.newest_tiering_snapshot() is None
    assert not table.is_ancestor(second.snapshot_id)
    last = history.newest_tiering_snapshot()
    assert last is not None
    assert last.snapshot_id == first.snapshot_id


def test_main_is_set_only_from_where_it_was_seen(
    lake: IcebergLake, lake_sql: Sql, tmp_path: Path
) -> None:
    table = lake.create(INFO)
    first = commit(table, None)
    second = commit(table, first, first=3)
    with pytest.raises(LakeCommitRefused, match="Nothing was changed"):
        table.set_main(first.snapshot_id, first.snapshot_id)
    with pytest.raises(LakeCommitRefused, match="has expired"):
        table.set_main(12345, second.snapshot_id)
    table.set_main(first.snapshot_id, second.snapshot_id)
    assert table.newest_tiering_snapshot() == first
    history = table.history()
    assert (history.main, history.tagged) == (first.snapshot_id, second.snapshot_id)
    assert history.ancestors(second.snapshot_id) == [second.snapshot_id, first.snapshot_id]
    assert history.snapshots[second.snapshot_id].is_tiering
    assert history.is_complete()
    lake_sql(tmp_path, "INSERT INTO lake.db.t VALUES (9)")
    with pytest.raises(LakeCommitRefused):
        table.set_main(second.snapshot_id, first.snapshot_id)
    leaving = table.history().removed_by(second.snapshot_id)
    assert leaving is not None
    assert [(one.is_tiering, one.operation, one.total_rows) for one in leaving] == [
        (False, "append", 4)
    ]


def test_main_is_not_set_over_a_commit_that_slips_in(lake: IcebergLake) -> None:
    table, other = lake.create(INFO), lake.load(INFO.path)
    assert other is not None
    first = commit(table, None)
    second = commit(table, first, first=3)

    class SlipsIn:
        """Iceberg's operations, where another writer commits right before this one."""

        def __init__(self, real: Any) -> None:
            self._real = real

        def __getattr__(self, name: str) -> Any:
            return getattr(self._real, name)

        def commit(self, base: Any, metadata: Any) -> None:
            other._loaded.java.refresh()
            other._loaded.java.newAppend().commit()
            self._real.commit(base, metadata)

    class Table:
        def __init__(self, real: Any) -> None:
            self._real = real

        def __getattr__(self, name: str) -> Any:
            return getattr(self._real, name)

        def operations(self) -> Any:
            return SlipsIn(self._real.operations())

    real, table._loaded.java = table._loaded.java, Table(table._loaded.java)
    with pytest.raises(LakeCommitRefused, match="CommitFailedException"):
        table.set_main(first.snapshot_id, second.snapshot_id)
    table._loaded.java = real
    assert table.newest_tiering_snapshot() == second


def test_history_goes_on_behind_what_has_expired(
    lake: IcebergLake, lake_sql: Sql, tmp_path: Path
) -> None:
    table = lake.create(INFO)
    assert table.history().main is None
    first = commit(table, None)
    for _ in range(2):
        table._loaded.java.newAppend().commit()
        table._loaded.java.refresh()
    table._loaded.java.manageSnapshots().removeTag(TAG).commit()
    table._loaded.java.expireSnapshots().expireOlderThan(2**62).retainLast(1).commit()
    history = table.history()
    assert (len(history.snapshots), len(history.expired), history.tagged) == (1, 2, None)
    assert history.ancestors(history.main)[-1] == first.snapshot_id
    newest = history.newest_tiering_snapshot()
    assert newest is not None
    assert (history.is_complete(), newest.snapshot_id) == (True, first.snapshot_id)
    assert table.newest_tiering_snapshot() is None
    metadata = sorted((tmp_path / "db/t/metadata").glob("v*.metadata.json"))
    for old in metadata[:-1]:
        old.unlink()
    again = lake.load(INFO.path)
    assert again is not None
    assert not again.history().is_complete()


def test_a_partitions_old_rows_go_in_the_same_commit(
    lake: IcebergLake, lake_sql: Sql, tmp_path: Path
) -> None:
    info = table_info({"a": t.BIGINT, "day": t.STRING}, partition_keys=("day",))
    table = lake.create(info)
    assert not table.has_rows(("x/y z",))
    first = table.commit(files_of(table, info, 0, ("x/y z",)), None, {"fluss-offsets": "/0"})
    second = table.commit(files_of(table, info, 3, ("o'k",)), first, {"fluss-offsets": "/3"})
    assert table.has_rows(("x/y z",))
    asked = [("x/y z",), ("none",), ("o'k",)]
    assert table.partitions_with_rows(asked, second) == [("x/y z",), ("o'k",)]
    for other in (first, None):
        with pytest.raises(LakeCommitRefused, match="planned from"):
            table.partitions_with_rows(asked, other)
    again = files_of(table, info, 6, ("x/y z",))
    with pytest.raises(LakeCommitRefused):
        table.commit(again, first, {"fluss-offsets": "/6"}, [LakePart(("x/y z",))])
    seen = table.history().main
    table._loaded.java.newAppend().commit()  # by another writer
    with pytest.raises(LakeCommitRefused, match="another writer has committed snapshot"):
        table.commit(again, second, {}, [LakePart(("x/y z",), seen_main=seen)])
    seen = table.history().main
    table.commit(again, second, {"fluss-offsets": "/6"}, [LakePart(("x/y z",), seen_main=seen)])
    rows = lake_sql(tmp_path, "SELECT day, sum(a) FROM lake.db.t GROUP BY day ORDER BY day")
    assert [tuple(r) for r in rows] == [("o'k", 12), ("x/y z", 21)]


@pytest.mark.parametrize("layout", list(Layout))
def test_columns_added_in_fluss_are_added_before_the_system_columns(
    lake: IcebergLake, lake_sql: Sql, tmp_path: Path, layout: Layout
) -> None:
    table = lake.create(INFO, layout)
    commit(table, None)
    nested = DataType(TypeRoot.ARRAY, element=t.STRING)
    added = (Column("b", t.decimal(9, 2), 1, "a price"), Column("c", nested, 2))
    schema = replace(INFO.schema, columns=(*INFO.schema.columns, *added))
    wider = replace(INFO, descriptor=replace(INFO.descriptor, schema=schema))
    table.add_missing_columns(wider)
    table.add_missing_columns(wider)
    described = lake_sql(tmp_path, "DESCRIBE lake.db.t")
    system = [("__bucket", "int"), ("__offset", "bigint"), ("__timestamp", "timestamp")]
    found = [tuple(row[:2]) for row in described]
    assert found[:3] == [("a", "bigint"), ("b", "decimal(9,2)"), ("c", "array<string>")]
    assert (found[3:6] == system) is (layout is Layout.LEGACY)


@pytest.mark.parametrize(
    ("statement", "mend", "layout"),
    [
        (
            "ALTER TABLE lake.db.t ADD PARTITION FIELD bucket(4, a)",
            "ALTER TABLE CATALOG.db.t DROP PARTITION FIELD a_bucket_4",
            Layout.LEGACY,
        ),
        (
            "ALTER TABLE lake.db.t DROP COLUMN b",
            "ALTER TABLE CATALOG.db.t ADD COLUMN b INT",
            Layout.CLEAN,
        ),
    ],
)
def test_a_table_that_was_changed_is_refused_until_the_statement_is_run(
    lake: IcebergLake, lake_sql: Sql, tmp_path: Path, statement: str, mend: str, layout: Layout
) -> None:
    table = lake.create(WIDE, layout)
    table.add_missing_columns(WIDE)
    lake_sql(tmp_path, statement)
    with pytest.raises(LakeTableMismatch) as caught:
        table.add_missing_columns(WIDE)
    found = re.findall(r"ALTER TABLE CATALOG[^;]*", str(caught.value))
    assert found == [mend]
    for one in found:
        lake_sql(tmp_path, one.replace("CATALOG", "lake"))
    table.add_missing_columns(WIDE)


def test_a_format_that_is_not_written_is_refused(
    lake: IcebergLake, lake_sql: Sql, tmp_path: Path
) -> None:
    orc = table_info({"a": t.BIGINT}, custom_properties={"iceberg.write.format.default": "orc"})
    with pytest.raises(UnsupportedLakeOption, match=r"write\.format\.default='orc'"):
        lake.create(orc)
    assert not lake.has(orc.path)
    table = lake.create(INFO)
    table._loaded.java.updateProperties().set("write.format.default", "orc").commit()
    with pytest.raises(UnsupportedLakeOption, match=r"write\.format\.default=orc"):
        table.add_missing_columns(INFO)


def test_a_warehouse_that_cannot_be_written_is_named(jvm: Jvm, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    lake = IcebergLake(jvm.gateway, {"type": "hadoop", "warehouse": str(tmp_path / "file/lake")})
    with pytest.raises(LakeNotWritable, match=r"create lake table db\.t"):
        lake.create(INFO)
    with pytest.raises(LakeNotWritable, match="open Iceberg catalog"):
        IcebergLake(jvm.gateway, {"type": "nosuchtype", "warehouse": str(tmp_path)})


def test_a_file_that_is_not_there_is_found_before_the_commit(lake: IcebergLake) -> None:
    table = lake.create(INFO)
    ghost = DataFile(f"{table.location}/data/ghost.parquet", 3, 100, ())
    with pytest.raises(LakeNotWritable, match="footers"):
        table.commit([ghost], None, {})
    assert table.newest_tiering_snapshot() is None


def test_refused_files_can_be_deleted(lake: IcebergLake) -> None:
    table = lake.create(INFO)
    files = files_of(table)
    table.delete_files([file.path for file in files])
    assert not Path(files[0].path).exists()
    table.delete_files([file.path for file in files])


def test_a_jvm_that_dies_during_the_commit_leaves_the_outcome_unknown(tmp_path: Path) -> None:
    with Jvm(os.environ.get("SLUICE_TIERING_JARS", "")) as mortal:
        lake = IcebergLake(mortal.gateway, {"type": "hadoop", "warehouse": str(tmp_path)})
        table = lake.create(INFO)
        files = files_of(table)
        prepared = table._commits._new_update

        def die_before_commit(*arguments: Any) -> Any:
            update = prepared(*arguments)
            return _DiesAt(update, mortal)

        table._commits._new_update = die_before_commit  # type: ignore[method-assign]
        with pytest.raises(LakeCommitOutcomeUnknown, match="JVM does not answer"):
            table.commit(files, None, {})
        assert Path(files[0].path).exists()


class _DiesAt:
    """An update whose JVM is killed when it is committed."""

    def __init__(self, update: Any, jvm: Jvm) -> None:
        self._update, self._jvm = update, jvm

    def __getattr__(self, name: str) -> Any:
        return getattr(self._update, name)

    def commit(self) -> None:
        self._jvm.kill()
        self._update.commit()


def test_closing_a_lake_whose_jvm_died_hides_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Jvm(os.environ.get("SLUICE_TIERING_JARS", "")) as mortal:
        lake = IcebergLake(mortal.gateway, {"type": "hadoop", "warehouse": str(tmp_path)})
        mortal.kill()
        lake.close()
    assert "close the Iceberg catalog: the JVM does not answer" in caplog.text
