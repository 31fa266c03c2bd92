"""The controls of the checker: each kind of damage, made by hand, is seen and counted."""

from __future__ import annotations

import ast
import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from tests.faults.conftest import new_scene
from tests.faults.scenes.scene import Scene
from tests.support.harness.parsing import parsed
from tests.support.programs.processes import ROOT, ServerProcess

pytestmark = [pytest.mark.spark, pytest.mark.no_rerun]
ROWS = 150


@pytest.fixture(scope="module")
def whole(
    tmp_path_factory: pytest.TempPathFactory,
    shared_server: ServerProcess,
    spark_jvm: Any,
    lake_sql: Callable[[Path, str], list[Any]],
) -> Scene:
    """A lake of two rounds, for all controls: each one undoes its damage."""
    folder = tmp_path_factory.mktemp("whole")
    scene = new_scene(folder, shared_server, spark_jvm, lake_sql, layout="legacy")
    scene.append(100)
    scene.tier()
    scene.append(ROWS - 100)
    scene.tier()
    scene.check_no_orphans()
    return scene


@pytest.fixture
def scene(whole: Scene) -> Iterator[Scene]:
    yield whole
    [ours] = whole.sql("SELECT snapshot_id FROM {t}.refs WHERE name = 'sluice-tiered'")
    whole.sql(f"CALL lake.system.set_current_snapshot('{{name}}', {ours.snapshot_id})")
    whole.check()


def data_files(scene: Scene) -> list[Path]:
    return sorted(scene.table_folder.rglob("*.parquet"))


@pytest.mark.parametrize(
    "module",
    ["lake/lake_checker", "lake/position_files", "tables/server_files", "tables/changelogs"],
)
def test_the_checker_shares_no_code_with_the_project(module: str) -> None:
    tree = parsed(ROOT / f"tests/support/{module}.py")
    names = [alias.name for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names]
    names += [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    assert not [name for name in names if name.split(".")[0] == "sluice"]


def test_a_row_that_is_there_twice(scene: Scene) -> None:
    scene.sql("INSERT INTO {t} SELECT * FROM {t} WHERE n = 7")
    report = scene.report()
    assert report.damage == {"doubled": 1}
    assert report.rows == ROWS + 1


def test_a_row_that_is_missing(scene: Scene) -> None:
    scene.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode' = 'copy-on-write')")
    scene.sql("DELETE FROM {t} WHERE n = 7")
    assert scene.report().damage == {"missing": 1}


@pytest.mark.slow
def test_a_value_that_is_another(scene: Scene) -> None:
    scene.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.update.mode' = 'copy-on-write')")
    scene.sql("UPDATE {t} SET text = 'row 8' WHERE n = 7")
    assert scene.report().damage == {"differing": 1}


@pytest.mark.slow
def test_a_row_that_no_log_has(scene: Scene) -> None:
    scene.sql(
        "INSERT INTO {t} SELECT n, text, __bucket, __offset + 1000, __timestamp FROM {t}"
        " WHERE n = 7"
    )
    assert scene.report().damage == {"foreign": 1}


@pytest.mark.slow
def test_damage_of_rows_that_do_not_say_where_they_were(
    tmp_path: Path,
    shared_server: ServerProcess,
    spark_jvm: Any,
    lake_sql: Callable[[Path, str], list[Any]],
) -> None:
    scene = new_scene(tmp_path, shared_server, spark_jvm, lake_sql)
    scene.append(20)
    scene.tier()
    scene.check()
    scene.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode' = 'copy-on-write')")
    scene.sql("DELETE FROM {t} WHERE n = 7")
    assert scene.report().damage == {"missing": 1}
    scene.sql("INSERT INTO {t} SELECT * FROM {t} WHERE n = 8")
    assert scene.report().damage == {"missing": 1, "doubled": 1}
    scene.sql("INSERT INTO {t} SELECT n, 'row 8' FROM {t} WHERE n = 9")
    assert scene.report().damage == {"missing": 1, "doubled": 1, "foreign": 1}


def test_a_referenced_file_that_is_gone(scene: Scene, tmp_path: Path) -> None:
    victim = data_files(scene)[0]
    aside = shutil.move(victim, tmp_path / "aside")
    try:
        damage = scene.report().damage
        assert len(damage["unopened"]) == 1
        assert damage["missing"] > 0
    finally:
        shutil.move(aside, victim)


@pytest.mark.slow
def test_a_file_that_was_cut(scene: Scene) -> None:
    victim = data_files(scene)[0]
    content = victim.read_bytes()
    victim.write_bytes(content[:-100])
    try:
        assert len(scene.report().damage["unopened"]) == 1
    finally:
        victim.write_bytes(content)


@pytest.mark.parametrize("name", ["orphan.parquet", ".orphan.parquet.tmp"])
def test_a_data_file_that_no_snapshot_references(scene: Scene, name: str) -> None:
    orphan = data_files(scene)[0].with_name(name)
    shutil.copy(data_files(scene)[0], orphan)
    try:
        report = scene.report()
        assert report.orphans == [str(orphan)]
        assert report.damage == {}
    finally:
        orphan.unlink()


@pytest.mark.parametrize("change", [-1, 1])
def test_an_offsets_file_of_the_server_that_says_something_else(scene: Scene, change: int) -> None:
    with closing(sqlite3.connect(scene.server.data_dir / "metadata.sqlite", timeout=10)) as store:
        [(uri,)] = store.execute(
            "SELECT tiered_path FROM lake_snapshots JOIN tables USING (table_id) WHERE name = ?"
            " ORDER BY position DESC LIMIT 1",
            (scene.path.table,),
        ).fetchall()
    file = Path(unquote(urlsplit(uri).path))
    content = file.read_text()
    offsets = json.loads(content)
    offsets["bucket_offsets"][0] += change
    file.write_text(json.dumps(offsets))
    try:
        assert len(scene.report().damage["offsets"]) == 1
    finally:
        file.write_text(content)


def test_a_snapshot_that_the_server_was_not_told_of(scene: Scene) -> None:
    """The newest of ours is another one than what is registered."""
    [first] = scene.sql("SELECT min_by(snapshot_id, committed_at) AS id FROM {t}.snapshots")
    scene.sql(f"CALL lake.system.rollback_to_snapshot('{{name}}', {first.id})")
    damage = scene.report().damage
    assert list(damage) == ["offsets"]
    assert "registered is" in damage["offsets"][0]
