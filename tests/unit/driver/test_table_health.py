"""What `sluice doctor` says about a table that needs work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sluice.client import connect
from sluice.config import ClientConfig, Config, DatalakeConfig, ServerConfig
from sluice.driver.table_health import (
    _finding,
    _refused,
    failed_rounds,
    table_findings,
    with_failures,
)
from sluice.formats.types.descriptors import descriptor_to_json
from sluice.model import Reason, TablePath
from sluice.model import types as t
from sluice.rounds.upkeep.health import TableHealth
from sluice.rounds.upkeep.maintenance import MaintenanceReport
from sluice.server.cluster import EmbeddedCluster
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Role
from tests.support.models.tables import table_info
from tests.support.network.wire_server import WireServer

SCATTERED = TableHealth(small_files_of_worst=90)
BOTH = TableHealth(small_files_of_worst=90, equality_files=2)
COMMAND = "`sluice maintain shop.stock --yes`, with the same --config or --warehouse, helps"
REQUESTED = "A compaction is requested: the table's next round makes it"


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (MaintenanceReport("shop.stock", SCATTERED, compaction_due=True), f"metadata. {COMMAND}"),
        (MaintenanceReport("shop.stock", SCATTERED, compaction_is_open=True), REQUESTED),
        (MaintenanceReport("shop.stock", BOTH, compaction_is_open=True), f"{REQUESTED}. {COMMAND}"),
        (
            MaintenanceReport("shop.stock", SCATTERED, is_rewritten=False),
            "metadata. No round rewrites it: the table is not tiered, or tiering.compaction_bytes"
            " is 0",
        ),
        (MaintenanceReport("shop.stock", SCATTERED, notes=["no answer"]), "metadata. no answer"),
        (MaintenanceReport("shop.stock", TableHealth(unknown="too many")), "of metadata"),
    ],
)
def test_a_table_that_needs_work_is_told_what_helps(report: MaintenanceReport, said: str) -> None:
    finding = _finding(report)
    assert (finding.ok, finding.result) == (True, "needs work")
    assert finding.seen.endswith(said)


def test_a_table_of_another_lake_format_is_told() -> None:
    """As of an Apache Fluss cluster with Paimon."""
    paimon = table_info({"id": t.BIGINT}, properties={"table.datalake.format": "paimon"})
    with connect("grpc://127.0.0.1:1") as client:  # is not called
        [finding] = _refused(client, [table_info({"id": t.BIGINT}), paimon])
    assert (finding.what, finding.ok) == (f"table {paimon.path}", False)
    assert finding.seen.endswith("leave this one to Fluss's own tiering service for paimon")


def test_partitions_with_other_numbers_of_buckets_are_told() -> None:
    """As of a cluster of Fluss 1.0, where a table was altered before its tiering was enabled."""
    info = table_info(
        {"id": t.BIGINT, "day": t.STRING}, partition_keys=["day"], bucket_keys=["id"], buckets=4
    )

    def described(_: pb.GetTableInfoRequest) -> pb.GetTableInfoResponse:
        return pb.GetTableInfoResponse(
            table_id=1,
            schema_id=1,
            table_json=descriptor_to_json(info.descriptor),
            created_time=0,
            modified_time=0,
        )

    def listed(_: pb.ListPartitionInfosRequest) -> pb.ListPartitionInfosResponse:
        reply = pb.ListPartitionInfosResponse()
        for number, count in ((7, 2), (8, 4)):
            found = reply.partitions_info.add(partition_id=number, bucket_count=count)
            found.partition_spec.partition_key_values.add(key="day", value=f"d{number}")
        return reply

    answers = {
        (Role.COORDINATOR, apis.GET_TABLE_INFO): described,
        (Role.COORDINATOR, apis.LIST_PARTITION_INFOS): listed,
    }
    with WireServer(answers) as server, connect(server.address) as client:
        [finding] = _refused(client, [info])
    assert (finding.what, finding.ok) == (f"table {info.path}", False)
    assert "partition d7 has 2 buckets, but the table has 4" in finding.seen


def test_another_lake_of_the_cluster_is_told(tmp_path: Path) -> None:
    path, server = TablePath("shop", "stock"), ServerConfig(str(tmp_path), "grpc://127.0.0.1:0")
    there = DatalakeConfig("iceberg", {"type": "hadoop", "warehouse": "/there"})
    here = DatalakeConfig("iceberg", {"type": "hadoop", "warehouse": "/here"})
    option = {"table.datalake.historical-partition.enabled": "true"}  # so that Java stays out of it
    with (
        EmbeddedCluster(server, datalake=there) as cluster,
        connect(cluster.address) as client,
    ):
        client.admin.create_database(path.database)
        info = table_info({"id": t.BIGINT}, properties=option)
        client.admin.create_table(path, info.descriptor)
        found = [*table_findings(Config(ClientConfig(cluster.address), datalake=here))]
    assert [(one.what, one.ok, one.result) for one in found] == [
        ("lake of the cluster", True, "differs"),
        ("table shop.stock", False, ""),
    ]
    assert "datalake.iceberg.warehouse is /there there and /here here. That may" in found[0].seen


@pytest.mark.parametrize(
    ("data_bytes", "others", "result", "needs"),
    [
        ((1 << 20) - 1, {}, "", "1 data file"),
        (1 << 20, {}, "needs work", "about 67% of its rows are deleted"),
        (1_000, {"equality_files": 1}, "needs work", "1 equality delete file"),
    ],
)
def test_deleted_rows_of_a_tiny_table_need_no_work(
    data_bytes: int, others: dict[str, int], result: str, needs: str
) -> None:
    """A table of two rows has many deleted ones after its first changes."""
    health = TableHealth(buckets=1, data_files=1, data_bytes=data_bytes, rows=3, dead_rows=2)
    finding = _finding(MaintenanceReport("shop.stock", replace(health, **others)))
    assert (finding.ok, finding.result) == (True, result)
    assert finding.seen.startswith(needs)
    assert ("of its rows" in finding.seen) == (data_bytes == 1 << 20)


def test_a_healthy_table_needs_no_help() -> None:
    finding = _finding(MaintenanceReport("shop.stock"))
    assert (finding.ok, finding.result, finding.seen) == (True, "", str(TableHealth()))


ADVICE = "offset 0 cannot be read: `sluice repair shop.stock --skip 0:0`"


def test_a_table_whose_rounds_fail_is_told_as_status_does(tmp_path: Path) -> None:
    path, server = TablePath("shop", "stock"), ServerConfig(str(tmp_path), "grpc://127.0.0.1:0")
    with EmbeddedCluster(server) as cluster, connect(cluster.address) as client:
        client.admin.create_database(path.database)
        enabled = {"table.datalake.enabled": "true"}
        info = table_info({"id": t.BIGINT}, properties=enabled)
        client.admin.create_table(path, info.descriptor)
        config = Config(ClientConfig(cluster.address))
        assert failed_rounds(config) == []
        claim = client.tiering.claim()
        assert claim is not None
        client.tiering.failed(claim, Reason.from_text(ADVICE))
        [found] = failed_rounds(config)
        said = f"1 failure, last error: {ADVICE}"
        assert (found.what, found.ok, found.result, found.seen) == (
            "table shop.stock", False, "Failed", said,
        )  # fmt: skip
        healthy = [_finding(MaintenanceReport(name)) for name in ("shop.a", "shop.stock")]
        assert [*with_failures(healthy, [found])] == [
            healthy[0],
            replace(found, seen=f"{said}. It has {healthy[1].seen}"),
        ]
        assert [*with_failures([], [found])] == [found], "the lake was not looked at"
        unfit = _finding(MaintenanceReport("shop.stock", error=ADVICE))
        assert [*with_failures([unfit], [found])] == [found], "the check fails as the round did"


def test_states_that_cannot_be_read_are_told() -> None:
    [found] = failed_rounds(Config(ClientConfig("grpc://127.0.0.1:1", connect_timeout_ms=200)))
    assert (found.what, found.ok) == ("tiering states", False)
    assert found.seen.startswith("NetworkError: ")
