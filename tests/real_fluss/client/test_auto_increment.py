"""A table of a real Fluss whose server numbers new rows, tiered by our rounds."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from sluice.model import Column, Schema, TableDescriptor, TablePath
from sluice.model import types as t
from tests.real_fluss.conftest import RealSite
from tests.real_fluss.raw import RawCluster
from tests.support.fluss.real_fluss import RealFluss
from tests.support.fluss.table_creation import create_table
from tests.support.tables.row_log_replay import replayed

pytestmark = [pytest.mark.real_fluss, pytest.mark.spark, pytest.mark.slow]

NUMBERED = Schema(
    (
        Column("key", t.STRING.not_null(), 0),
        Column("no", t.BIGINT, 1),
        Column("a", t.STRING, 2),
    ),
    ("key",),
    2,
    auto_increment=("no",),
)
DELETE, UPDATE_BEFORE = 4, 2


@pytest.fixture
def raw(real_fluss: RealFluss, site: RealSite) -> Iterator[RawCluster]:
    cluster = RawCluster(real_fluss, site.database)
    yield cluster
    cluster.close()


def rows(*keys: int, a: str) -> pa.Table:
    return pa.table({"key": [f"k{key}" for key in keys], "a": [a] * len(keys)})


def test_numbered_rows_are_tiered(site: RealSite, raw: RawCluster) -> None:
    """Their log is COMPACTED, so that it can be replayed in plain Python."""
    path = TablePath(site.database, "numbered")
    properties = {
        "table.datalake.enabled": "true",
        "table.datalake.freshness": "1s",
        "table.log.format": "COMPACTED",
        "table.auto-increment.cache-size": "10",
    }
    descriptor = TableDescriptor(NUMBERED, bucket_count=1, properties=properties)
    create_table(site.client, path, descriptor, site.fluss.warehouse)
    info = site.client.admin.table_info(path)
    assert info.schema.auto_increment == ("no",)
    with site.client.kv_writer(path) as writer:
        writer.upsert(rows(*range(25), a="first"))
        writer.upsert(rows(3, 4, a="again"))
    site.tier(path)
    with site.client.kv_writer(path) as writer:
        writer.upsert(rows(5, 7, 30, a="later"))
    with site.client.kv_writer(path, ["key", "a"]) as writer:
        writer.delete(pa.table({"key": ["k0", "k31"]}))  # sets these columns to null
    site.tier(path)

    types = [column.data_type for column in NUMBERED.columns]
    expected: dict[str, tuple[object, ...]] = {}
    for _, kind, row in replayed(raw.fetch(info.table_id), types, "COMPACTED"):
        assert kind != DELETE
        if kind != UPDATE_BEFORE:
            expected[row[0]] = row
    found = {row.key: tuple(row) for row in site.rows("SELECT key, no, a FROM lake.{db}.numbered")}
    assert found == expected
    assert found["k0"] == ("k0", 1, None)
    assert found["k3"] == ("k3", 4, "again")
    assert {row[1] for row in found.values()} == set(range(1, 27))
