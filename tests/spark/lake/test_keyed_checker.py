"""The checker on a table with a primary key: what it says of a sound lake, and of damage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from sluice.lake.iceberg.lake import IcebergLake
from tests.spark.conftest import STOCK, LocalStock
from tests.support.lake.lake_checker import LakeChecker, Report
from tests.support.lake.position_damage import DamagedLake, spelled_otherwise
from tests.support.tables.server_files import (
    read_logs,
    read_partitions,
    read_registered,
    table_folder,
)

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.no_rerun]
COLUMNS = pa.schema(
    [
        ("day", pa.string()),
        ("id", pa.int64()),
        ("item", pa.string()),
        ("n", pa.int32()),
    ]
)


def report(stock: LocalStock) -> Report:
    place = (stock.data_dir, STOCK.database, STOCK.table)
    logs = read_logs(table_folder(stock.data_dir / "log", *place[1:]), COLUMNS, keyed=True)
    checker = LakeChecker(
        stock.rows,
        "{lake}",
        stock.site.warehouse / STOCK.database / STOCK.table,
        read_partitions(*place),
        ("day", "id"),
        ("day",) if read_partitions(*place) else (),
    )
    return checker.report(logs, read_registered(*place))


def test_a_sound_lake_and_each_kind_of_damage(stock: LocalStock) -> None:
    stock.create(partitioned=True)
    for day in ("mon", "tue"):
        stock.client.admin.create_partition(STOCK, {"day": day})
        stock.put({key: key for key in range(20)}, day)
    stock.snapshots()
    stock.put({3: 33})
    stock.tier()
    stock.delete(1, 2)
    stock.put({3: 333, 50: 5})
    stock.tier()
    sound = report(stock)
    assert (sound.damage, sound.rows, sound.orphans) == ({}, 39, [])
    [main] = stock.rows("SELECT snapshot_id FROM {lake}.refs WHERE name = 'main'")
    damages = {
        "INSERT INTO {lake} SELECT * FROM {lake} WHERE id = 7 AND day = 'mon'": {"doubled": 1},
        "DELETE FROM {lake} WHERE id = 7": {"missing": 2},
        "UPDATE {lake} SET n = 8 WHERE id = 7 AND day = 'tue'": {"differing": 1},
        "UPDATE {lake} SET id = 1 WHERE id = 4 AND day = 'mon'": {"missing": 1, "foreign": 1},
    }
    for statement, expected in damages.items():
        stock.rows(statement)
        assert report(stock).damage == expected, statement
        stock.rows(f"CALL lake.system.set_current_snapshot('{STOCK}', {main.snapshot_id})")
    assert report(stock).damage == {}


@contextmanager
def damaged(stock: LocalStock) -> Iterator[DamagedLake]:
    """The lake by Iceberg's API; main is sound again afterwards."""
    options = {"type": "hadoop", "warehouse": str(stock.site.warehouse)}
    lake = IcebergLake(stock.site.jvm.gateway, options)
    table = lake.load(STOCK)
    assert table is not None
    main = table._loaded.java.currentSnapshot().snapshotId()
    yield DamagedLake(stock.site.jvm.gateway, table._loaded.java)
    table._loaded.java.refresh()
    table._loaded.java.manageSnapshots().setCurrentSnapshot(main).commit()
    lake.close()


def with_marks(stock: LocalStock, version: int) -> None:
    """Two buckets, each with two data files and some rows of the first one marked."""
    stock.create(version=version)
    stock.put({key: key for key in range(40)})
    stock.tier()
    stock.put({key: -key for key in range(20)})
    stock.tier()
    sound = report(stock)
    assert (sound.damage, sound.rows, sound.orphans) == ({}, 40, [])


def test_each_damage_of_position_delete_files(stock: LocalStock) -> None:
    with_marks(stock, 2)
    with damaged(stock) as lake:
        task = lake.tasks()[0]
        path, rows = str(task.file().location()), int(task.file().recordCount())
        cases: list[tuple[dict[str, list[int]], str]] = [
            ({spelled_otherwise(path): [0]}, f"spells {path} as"),
            ({path[:-8] + "7.parquet": [0]}, "which no snapshot has"),
            ({path: [rows]}, f"marks row {rows} of"),
        ]
        for marks, _ in cases:
            lake.add_position_file(task, marks)
        damage = report(stock).damage
        assert list(damage) == ["positions"], "Spark's rows are right"
        assert len(damage["positions"]) == len(cases)
        assert all(any(said in one for one in damage["positions"]) for _, said in cases)
    with damaged(stock) as lake:
        task = lake.tasks()[0]
        [marks_file] = [str(one.location()) for one in task.deletes()]
        lake.remove_deletes(task)
        assert report(stock).doubled > 0, "its commit is lost"
    lost = Path(marks_file.removeprefix("file:"))
    aside = lost.rename(lost.with_name("aside"))
    [unopened] = report(stock).damage["unopened"]
    assert lost.name in unopened
    aside.rename(lost)


def test_each_damage_of_deletion_vectors(stock: LocalStock) -> None:
    with_marks(stock, 3)
    with damaged(stock) as lake:
        task = lake.tasks()[-1]  # it has no vector yet
        path, rows = str(task.file().location()), int(task.file().recordCount())
        lake.add_vector(task, spelled_otherwise(path), [0])
        lake.add_vector(task, path, [0, rows])
        damage = report(stock).damage
        assert len(damage.pop("positions")) == 2
        assert damage == {"missing": 1}
    with damaged(stock) as lake:
        task = lake.tasks()[0]
        puffin = lake.add_vector(task, str(task.file().location()), [0])
        [twice] = report(stock).damage["positions"][-1:]
        assert "has 2 vectors" in twice
    changed = Path(puffin.removeprefix("file:"))
    content = bytearray(changed.read_bytes())
    content[20] ^= 1
    changed.write_bytes(content)
    [unopened] = report(stock).damage["unopened"]
    assert "a damaged vector" in unopened
