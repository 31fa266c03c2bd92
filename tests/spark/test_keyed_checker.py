"""The checker on a table with a primary key: what it says of a sound lake, and of damage."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.support.lake_checker import LakeChecker, Report
from tests.support.server_files import read_logs, read_partitions, read_registered, table_folder

from .conftest import STOCK, LocalStock

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
        ("day",),
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
