"""Lake tables of log tables with partition fields of the user's own, written by rounds."""

from __future__ import annotations

import datetime as dt
import time
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest

from sluice.catalog_options import CATALOG_NAME
from sluice.driver.lake_tables import create_lake_tables
from sluice.driver.local import tier_once
from sluice.errors import ConfigurationError, LakeTableMismatch
from sluice.lake.iceberg.lake import IcebergLake
from sluice.model import TablePath
from sluice.model import types as t
from sluice.rounds.records.result import RoundResult
from sluice.rounds.upkeep.maintenance import MaintenanceOptions, maintain
from tests.spark.conftest import At, LocalStock, Site
from tests.support.catalogs.foreign_writer import ForeignWriter
from tests.support.catalogs.iceberg_client import opened

pytestmark = pytest.mark.spark
PATH = TablePath("shop", "clicks")
LAKE = f"lake.{PATH}"
COLUMNS = {"id": t.BIGINT, "at": t.timestamp(6), "user": t.STRING}


def rows(first: int, count: int) -> pa.Table:
    ids = range(first, first + count)
    start = dt.datetime(2026, 11, 28, 20, tzinfo=None)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "at": pa.array([start + dt.timedelta(minutes=7 * i) for i in ids], pa.timestamp("us")),
            "user": pa.array([None if i % 9 == 8 else f"u{i % 5}/x" for i in ids]),
        }
    )


def tier(site: Site, first: int, count: int = 100) -> RoundResult:
    site.append(PATH, rows(first, count))
    return tier_once(site.config, PATH, now=True, jvm=site.jvm)


def created(site: Site, *fields: str, **descriptor: Any) -> None:
    site.create(PATH, COLUMNS, bucket_count=3, **descriptor)
    [report] = create_lake_tables(site.config, PATH, site.jvm, fields)
    assert (report.outcome, report.error) == ("created", "")


def assert_rows(site: Site, count: int) -> None:
    seen = site.rows(f"SELECT count(*), count(DISTINCT id), sum(id) FROM {LAKE}")[0]
    assert tuple(seen) == (count, count, sum(range(count)))


def test_rows_are_in_the_partitions_of_their_values(site: Site) -> None:
    created(site, "days(at)", "bucket(4, user)")
    assert tier(site, 0).rows == 100
    tier(site, 100)
    assert_rows(site, 200)
    days = site.rows(f"SELECT DISTINCT partition.at_day FROM {LAKE}.files ORDER BY 1")
    assert [str(day[0]) for day in days] == ["2026-11-28", "2026-11-29"]
    wrong = site.rows(
        f"SELECT count(*) FROM {LAKE} r JOIN {LAKE}.files f ON r._file = f.file_path WHERE NOT"
        " (f.partition.at_day <=> to_date(r.at) AND f.partition.user_bucket <=>"
        " lake.system.bucket(4, r.user))"
    )
    assert wrong[0][0] == 0
    day = "at >= timestamp_ntz'2026-11-29 00:00:00'"
    found = site.rows(f"SELECT count(*), count(DISTINCT _file) FROM {LAKE} WHERE {day}")[0]
    whole = site.rows(f"SELECT count(DISTINCT _file) FROM {LAKE}")[0][0]
    late = sum(str(at) >= "2026-11-29" for at in rows(0, 200)["at"].to_pylist())
    assert found[0] == late
    assert found[1] < whole


def test_fields_that_spark_adds_or_drops_are_followed(site: Site) -> None:
    created(site)
    tier(site, 0)
    site.rows(f"ALTER TABLE {LAKE} ADD PARTITION FIELD truncate(2, user)")
    tier(site, 100)
    site.rows(f"ALTER TABLE {LAKE} ADD PARTITION FIELD hours(at)")
    tier(site, 200)
    site.rows(f"ALTER TABLE {LAKE} DROP PARTITION FIELD user_trunc_2")
    tier(site, 300)
    assert_rows(site, 400)
    site.rows(
        f"CALL lake.system.rewrite_data_files(table => '{PATH}',"
        " options => map('rewrite-all', 'true'))"
    )
    tier(site, 400)
    assert_rows(site, 500)
    site.rows(f"ALTER TABLE {LAKE} ADD PARTITION FIELD at")  # a time itself: not supported
    with pytest.raises(LakeTableMismatch, match="DROP PARTITION FIELD at"):
        tier(site, 500)


@pytest.mark.slow
def test_fields_that_change_during_a_round_are_those_of_the_next(site: Site) -> None:
    """The rows of 16 buckets are not where those of 32 are looked for."""
    created(site, "bucket(16, user)")
    wider = f"ALTER TABLE {LAKE} REPLACE PARTITION FIELD user_bucket WITH bucket(32, user)"
    site.append(PATH, rows(0, 100))
    act = At("copy", lambda: site.rows(wider))
    tier_once(site.config, PATH, now=True, jvm=site.jvm, progress=act)
    tier(site, 100)
    assert_rows(site, 200)
    specs = site.rows(f"SELECT DISTINCT spec_id FROM {LAKE}.files ORDER BY 1")
    assert [row[0] for row in specs] == [0, 1]
    for user in range(5):
        found = site.rows(f"SELECT count(*) FROM {LAKE} WHERE user = 'u{user}/x'")
        assert found[0][0] == sum(i % 9 != 8 and i % 5 == user for i in range(200))


def test_a_text_like_null_is_a_partition_of_its_own(site: Site) -> None:
    created(site, "user")
    users = ["__HIVE_DEFAULT_PARTITION__", None, "null", "", "\u044f" * 60]
    times = pa.array([0] * len(users), pa.timestamp("us"))
    site.append(PATH, pa.table({"id": list(range(5)), "at": times, "user": users}))
    assert tier_once(site.config, PATH, now=True, jvm=site.jvm).rows == 5
    for number, user in enumerate(users):
        where = "user IS NULL" if user is None else f"user = '{user}'"
        assert [row[0] for row in site.rows(f"SELECT id FROM {LAKE} WHERE {where}")] == [number]
    found = site.rows(f"SELECT partition.user, record_count FROM {LAKE}.files")
    assert {tuple(row) for row in found} == {(user, 1) for user in users}


def test_a_date_far_away_is_a_partition_like_others(site: Site) -> None:
    created(site, "days(at)")
    far = pa.array(
        [2_932_897 * 86_400_000_000, -800_000 * 86_400_000_000, None], pa.timestamp("us")
    )
    site.append(PATH, pa.table({"id": [0, 1, 2], "at": far, "user": ["a", "b", "c"]}))
    assert tier_once(site.config, PATH, now=True, jvm=site.jvm).rows == 3
    assert_rows(site, 3)
    assert site.rows(f"SELECT id FROM {LAKE} WHERE year(at) > 9999")[0][0] == 0


def test_maintenance_keeps_deletes_of_rows_under_earlier_fields(site: Site) -> None:
    created(site, "bucket(4, user)")
    tier(site, 0)
    options = {"type": "hadoop", "warehouse": str(site.warehouse)}
    with opened(site.jvm, options, CATALOG_NAME) as client:
        ForeignWriter(site.jvm, client, PATH).delete([8, 17])  # rows without a user
    site.rows(f"ALTER TABLE {LAKE} REPLACE PARTITION FIELD user_bucket WITH bucket(8, user)")
    count = f"SELECT count(*) FROM {LAKE} WHERE id IN (8, 17)"
    assert site.rows(count)[0][0] == 0
    tier(site, 100)
    with closing(IcebergLake(site.jvm.gateway, options)) as lake:
        table = lake.load(PATH)
        assert table is not None
        table.check_layout(site.client.admin.table_info(PATH))  # as the command does
        settings = MaintenanceOptions(1 << 28, time.time_ns() // 1_000_000, 0)
        maintain(PATH, table, settings, apply=True)
    assert site.rows(count)[0][0] == 0


def test_the_lake_table_of_a_dropped_table_gets_no_columns(site: Site) -> None:
    created(site)
    tier(site, 0)
    site.client.admin.drop_table(PATH)
    site.create(PATH, {**COLUMNS, "more": t.INT}, bucket_count=1)
    site.append(PATH, rows(0, 1).append_column("more", pa.array([1], pa.int32())))
    with pytest.raises(LakeTableMismatch, match="holds the rows of Fluss table id"):
        tier_once(site.config, PATH, now=True, jvm=site.jvm)
    columns = site.rows(f"SHOW COLUMNS IN {LAKE}")
    assert [row[0] for row in columns] == ["id", "at", "user"]


def test_a_table_with_rows_of_somebody_else_is_not_adopted(site: Site) -> None:
    site.rows("CREATE NAMESPACE IF NOT EXISTS lake.shop")
    site.rows(f"CREATE TABLE {LAKE} (id BIGINT, at TIMESTAMP_NTZ, user STRING) USING iceberg")
    site.rows(f"INSERT INTO {LAKE} VALUES (-1, NULL, 'me')")
    site.create(PATH, COLUMNS, bucket_count=1)
    with pytest.raises(LakeTableMismatch, match="rows that no tiering of Fluss wrote"):
        tier(site, 0)
    site.rows(f"DROP TABLE {LAKE}")
    site.rows(f"CREATE TABLE {LAKE} (id BIGINT, at TIMESTAMP_NTZ, user STRING) USING iceberg")
    assert tier(site, 100).rows == 200  # an empty one like Fluss's is taken


def test_a_partition_of_fluss_is_replaced_as_a_whole(site: Site) -> None:
    columns = {**COLUMNS, "day": t.STRING}
    site.create(PATH, columns, bucket_count=2, partition_keys=("day",))
    create = create_lake_tables(site.config, PATH, site.jvm, ["bucket(3, user)"])
    assert [one.outcome for one in create] == ["created"]

    def put(day: str, count: int) -> None:
        site.client.admin.create_partition(PATH, {"day": day}, ignore_if_exists=True)
        site.append(PATH, rows(0, count).append_column("day", pa.array([day] * count)))

    put("mon", 30)
    put("tue", 40)
    tier_once(site.config, PATH, now=True, jvm=site.jvm)
    site.client.admin.drop_partition(PATH, {"day": "mon"})
    put("mon", 5)
    result = tier_once(site.config, PATH, now=True, jvm=site.jvm)
    assert "partition mon was dropped and created again" in "; ".join(result.notes)
    counts = site.rows(f"SELECT day, count(*) FROM {LAKE} GROUP BY day ORDER BY day")
    assert [tuple(row) for row in counts] == [("mon", 5), ("tue", 40)]


def test_many_partitions_need_no_more_memory_or_files(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluice.lake.iceberg.write.partitioned_files.OPEN_MAX", 3)
    created(site, "bucket(50, id)")
    result = tier(site, 0, 3000)
    assert result.rows == 3000
    assert_rows(site, 3000)
    names = [row[0] for row in site.rows(f"SELECT file_path FROM {LAKE}.files")]
    assert len({name.rpartition("/")[2] for name in names}) == len(names) >= 50


def test_a_keyed_table_keeps_fluss_fields(stock: LocalStock) -> None:
    stock.create()
    with (
        closing(IcebergLake(stock.site.jvm.gateway, stock.site.config.datalake.iceberg)) as lake,
        pytest.raises(ConfigurationError, match="it has a primary key"),
    ):
        lake.create(stock.client.admin.table_info(stock.path), partition_by=["item"])
