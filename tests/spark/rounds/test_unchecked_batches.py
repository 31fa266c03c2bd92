"""Batches that an earlier version stored unchecked: others are tiered, and a user may skip them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluice.client import Client, connect
from sluice.config import ClientConfig, Config, DatalakeConfig, ServerConfig
from sluice.driver.lakes.jvm import Jvm
from sluice.driver.local import tier_once
from sluice.driver.repairing import diagnose_table, repair
from sluice.errors import SplitFailed, TableNotDue
from sluice.formats.log.batch import encode_log_batch
from sluice.model import Column, Schema, TableBucket, TableDescriptor, TablePath
from sluice.model import types as t
from sluice.rounds.records.result import RoundResult
from sluice.server.cluster import EmbeddedCluster
from tests.support.tables.forged_batches import append_unchecked, sealed_again

pytestmark = pytest.mark.spark
PATH = TablePath("shop", "orders")
SCHEMA = Schema((Column("id", t.BIGINT.not_null(), 0),), highest_field_id=0)


def encoded(*ids: int | None) -> bytes:
    return encode_log_batch(pa.record_batch([pa.array(ids, pa.int64())], ["id"]), 1)


BROKEN = bytearray(encoded(*range(1_000)))
BROKEN[-40:-20] = b"\xa5" * 20  # in the compressed ids


@dataclass
class Orders:
    """A log table of three buckets, tiered in this process."""

    cluster: EmbeddedCluster
    client: Client
    config: Config
    jvm: Jvm
    table_id: int
    warehouse: Path

    def append(self, bucket: int, batch: bytes) -> int:
        return append_unchecked(self.cluster, TableBucket(self.table_id, None, bucket), batch)

    def tier(self) -> RoundResult:
        """One round, as soon as the table is due."""
        deadline = time.monotonic() + 120
        while True:
            try:
                return tier_once(self.config, PATH, jvm=self.jvm)
            except TableNotDue:
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def ends(self) -> dict[int, int]:
        """The end offset of each bucket in the lake."""
        found = self.client.tiering.lake_snapshot(PATH)
        assert found is not None
        return {bucket.bucket: end for bucket, end in found.offsets.items()}


@pytest.fixture
def orders(tmp_path: Path, jvm: Jvm) -> Iterator[Orders]:
    server: dict[str, Any] = {"tiering_check_interval_ms": 100, "tiering_backoff_ms": 0}
    served = ServerConfig(str(tmp_path / "data"), listen="grpc://127.0.0.1:0", **server)
    warehouse = tmp_path / "lake"
    lake = DatalakeConfig("iceberg", {"type": "hadoop", "warehouse": str(warehouse)})
    with EmbeddedCluster(served) as cluster:
        config = Config(client=ClientConfig(bootstrap=cluster.address), datalake=lake)
        with connect(config.client) as client:
            client.admin.create_database(PATH.database)
            properties = {"table.datalake.enabled": "true", "table.datalake.freshness": "0s"}
            described = TableDescriptor(SCHEMA, bucket_count=3, properties=properties)
            client.admin.create_table(PATH, described)
            table_id = client.admin.table_info(PATH).table_id
            yield Orders(cluster, client, config, jvm, table_id, warehouse)


def test_healthy_buckets_are_tiered_and_each_batch_is_skipped_by_its_name(orders: Orders) -> None:
    for bucket in range(3):
        orders.append(bucket, encoded(1, 2))
    assert orders.append(1, sealed_again(bytes(BROKEN))) == 2
    assert orders.append(2, encoded(3, None)) == 2
    for bucket in range(3):
        orders.append(bucket, encoded(4))
    for end in (3, 4):  # round after round
        with pytest.raises(SplitFailed, match=r"was committed: .* at offset 2 cannot be read: "):
            orders.tier()
        assert orders.ends() == {0: end}
        orders.append(0, encoded(5))
    for bucket, stop, why in (
        (1, 1002, "does not have the columns"),
        (2, 4, "column 'id' is NOT NULL but contains nulls"),
    ):
        named = diagnose_table(orders.config, PATH, orders.jvm)
        assert named.batch == f"{bucket}:2"
        assert f"bucket {bucket}: the batch at offset 2 cannot be read: " in named.state
        assert why in named.state
        skip = (str(bucket), 2)
        done = repair(orders.config, PATH, "skip", skip=skip, jvm=orders.jvm, wait_ms=20_000)
        assert f"bucket {bucket}: offsets 2 to {stop - 1} were skipped" in done.notes
        if bucket == 1:
            with pytest.raises(SplitFailed, match=r"--skip 2:2"):
                orders.tier()
    orders.tier()
    assert orders.ends() == {0: 5, 1: 1003, 2: 5}
    [status] = orders.client.statuses.list(PATH)
    assert sorted(status.accepted.split("; ")) == [
        "bucket 1: offsets 2 to 1001 were skipped",
        "bucket 2: offsets 2 to 3 were skipped",
    ]
    files = list(orders.warehouse.rglob("*.metadata.json"))
    newest = json.loads(max(files, key=lambda path: path.stat().st_mtime).read_text())
    noted = [one["summary"].get("sluice.skipped") for one in newest["snapshots"]]
    assert '{"1": [2, 1002]}' in noted
    assert '{"2": [2, 4]}' in noted
