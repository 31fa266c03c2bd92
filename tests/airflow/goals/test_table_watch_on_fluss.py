"""What a table sensor finds on an Apache Fluss cluster."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping

import pyarrow as pa
import pytest

from sluice.client import Client, connect
from sluice.model import Claim, Column, Schema, TableBucket, TableDescriptor, TablePath
from sluice.model import types as t
from sluice_airflow.goals.table_watch import TableWatch
from sluice_airflow.goals.until import Until
from tests.airflow.place import wait_until
from tests.support.fluss.real_fluss import RealFluss
from tests.support.fluss.table_creation import create_table

pytestmark = [pytest.mark.real_fluss, pytest.mark.long]
COLUMNS = (Column("id", t.BIGINT.not_null(), 0), Column("day", t.STRING.not_null(), 1))
FRESH = {"table.datalake.enabled": "true", "table.datalake.freshness": "1s"}
DUE_S = 120


def write(client: Client, path: TablePath, ids: range, day: str) -> None:
    table = pa.table({"id": pa.array(ids, pa.int64()), "day": pa.array([day] * len(ids))})
    if client.admin.table_info(path).has_primary_key:
        with client.kv_writer(path) as writer:
            writer.upsert(table)
    else:
        with client.log_writer(path) as log_writer:
            log_writer.write(table)


def register(client: Client, claim: Claim, ends: Mapping[TableBucket, int], number: int) -> None:
    """As the two commits of a round leave it."""
    file = client.tiering.prepare_lake_snapshot(claim.table_id, claim.path, ends)
    client.tiering.commit_lake_snapshot(claim, number, file, ends, {}, -1)


def claimed(client: Client, path: TablePath) -> Claim:
    found: list[Claim] = []

    def claims() -> bool:
        found.extend(filter(None, [client.tiering.claim([path])]))
        return bool(found)

    wait_until(claims, DUE_S, f"{path} to be due")
    return found[0]


def lines(watch: TableWatch, client: Client) -> list[str]:
    found = watch.look(client)
    assert (found.tiered, found.failure) == (None, "")
    return [line.removeprefix(f"{watch.path}: ") for _, line in found.lines]


@pytest.mark.parametrize("keyed", [False, True])
def test_rows_written_before_a_time_and_a_dropped_partition(
    real_fluss: RealFluss, keyed: bool
) -> None:
    path = TablePath(f"sensed_{uuid.uuid4().hex[:8]}", "orders")
    key = ("id", "day") if keyed else ()
    descriptor = TableDescriptor(
        Schema(COLUMNS, key, 1), partition_keys=("day",), bucket_count=2, properties=FRESH
    )
    noun = "changes" if keyed else "rows"
    with connect(real_fluss.bootstrap) as client:
        client.admin.create_database(path.database)
        create_table(client, path, descriptor, real_fluss.warehouse)
        for day, rows in (("a", 10), ("b", 20)):
            client.admin.create_partition(path, {"day": day}, ignore_if_exists=True)
            write(client, path, range(rows), day)
        time.sleep(0.1)
        later_ms = time.time_ns() // 1_000_000 + 3_000
        past = TableWatch(path, Until(time_ms=later_ms - 3_000))
        to_come = TableWatch(path, Until(time_ms=later_ms))
        now = TableWatch(path, Until())
        assert lines(to_come, client)[0].startswith("waiting for ")
        write(client, path, range(20, 27), "b")
        assert f"waiting until 30 {noun} written before" in lines(past, client)[0]
        assert "waiting until 37" in lines(now, client)[0]

        def has_come() -> bool:
            return any("waiting until 37" in line for line in lines(to_come, client))

        wait_until(has_come, 30, "the time to come")
        claim = claimed(client, path)
        ends = client.admin.table_offsets(client.admin.table_info(path))
        dropped, kept = [one.partition_id for one in client.admin.partitions(path)]
        client.admin.drop_partition(path, {"day": "a"})
        register(client, claim, {b: n for b, n in ends.items() if b.partition_id == kept}, 1)

        def is_tiered() -> bool:
            found = now.look(client)
            said.extend(line for _, line in found.lines)
            return found.tiered == {"lake_snapshot_id": "1", "offsets_sum": 27}

        said: list[str] = []
        wait_until(is_tiered, 30, "the table to be tiered")
        assert any(f"partition {dropped} was dropped: 10 {noun}" in line for line in said), said
        assert past.look(client).tiered is not None
        client.admin.drop_table(path)
        assert "the table does not exist" in now.look(client).failure
        client.admin.drop_database(path.database, cascade=True)
