"""Calls about the cluster as a whole, which clients of Fluss 0.9.1 and 1.0 make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sluice.client import connect
from sluice.config import ClientConfig, DatalakeConfig, ServerConfig
from sluice.errors import (
    CorruptRecord,
    InvalidAlterTable,
    PartitionNotExists,
    TableNotPartitioned,
    UnknownTableOrBucket,
)
from sluice.iceberg_rules.layout import Layout
from sluice.model import TablePath
from sluice.server.cluster import EmbeddedCluster
from sluice.server.components import NO_LAKE
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Role
from sluice.wire.error_codes import raise_in_body
from tests.unit.server.coordinator.calls.test_catalog_calls import (
    PARTITIONED,
    create_partition,
    partitions,
)
from tests.unit.server.kv_support import KvCaller
from tests.unit.server.support import LOG_TABLE, PATH, Caller, Node, batch, to_pb
from tests.unit.server.tablet.kv.test_kv_damaged_replay import QUIET, damaged

GREEN, RED = 0, 2


def settings(caller: Caller, role: Role = Role.COORDINATOR) -> dict[str, str]:
    answer = caller.call(apis.DESCRIBE_CLUSTER_CONFIGS, pb.DescribeClusterConfigsRequest(), role)
    assert {each.config_source for each in answer.configs} == {"INITIAL_SERVER_CONFIG"}
    return {each.config_key: each.config_value for each in answer.configs}


def health(caller: Caller, role: Role = Role.COORDINATOR) -> pb.GetClusterHealthResponse:
    answer = caller.call(apis.GET_CLUSTER_HEALTH, pb.GetClusterHealthRequest(), role)
    assert isinstance(answer, pb.GetClusterHealthResponse)
    return answer


# -- settings


def test_settings_have_the_names_of_fluss_and_no_secrets(start: Callable[..., Node]) -> None:
    catalog = {"type": "rest", "uri": "http://ann:pw@catalog", "s3.secret-access-key": "s3cret"}
    lake = DatalakeConfig("iceberg", catalog | {"warehouse": "s3://lake"})
    node = start(datalake=lake, default_bucket_count=3, segment_bytes=1024)
    found = settings(node.caller)
    assert found == settings(node.caller, Role.TABLET)
    assert found["default.bucket.number"] == "3"
    assert found["log.segment.file-size"] == "1024b"
    assert found["kv.snapshot.interval"] == "600000ms"
    assert found["default.replication.factor"] == "1"
    assert {k: v for k, v in found.items() if k.startswith("datalake.")} == {
        "datalake.format": "iceberg",
        "datalake.iceberg.type": "rest",
        "datalake.iceberg.warehouse": "s3://lake",
    }


def test_a_server_without_a_lake_names_none(start: Callable[..., Node]) -> None:
    found = settings(start(datalake=DatalakeConfig(NO_LAKE)).caller)
    assert not [name for name in found if name.startswith("datalake")]


@pytest.mark.parametrize("named", ["legacy", "clean", ""])
def test_a_client_learns_the_layout_of_new_lake_tables(named: str, tmp_path: Path) -> None:
    """Also before a table is tiered: only tiered tables tell the options of their lake."""
    lake = DatalakeConfig("iceberg", {"type": "hadoop"} | ({"layout": named} if named else {}))
    server = ServerConfig(data_dir=str(tmp_path), listen="grpc://127.0.0.1:0")
    with (
        EmbeddedCluster(server, datalake=lake) as cluster,
        connect(ClientConfig(cluster.address)) as client,
    ):
        assert client.admin.lake_layout() == Layout(named or "clean")


# -- health


def test_a_cluster_is_green_while_each_bucket_answers(caller: Caller) -> None:
    assert health(caller) == pb.GetClusterHealthResponse(
        num_replicas=0,
        in_sync_replicas=0,
        num_leader_replicas=0,
        active_leader_replicas=0,
        status=GREEN,
    )
    caller.create_table(descriptor=replace(LOG_TABLE, bucket_count=3))
    caller.create_table(TablePath("db", "daily"), PARTITIONED)
    found = health(caller, Role.TABLET)
    assert (found.num_replicas, found.active_leader_replicas, found.status) == (3, 3, GREEN)


def test_a_bucket_that_refuses_its_calls_makes_it_red(
    start: Callable[..., Node], tmp_path: Path
) -> None:
    node = start(**QUIET)
    kv = damaged(node, tmp_path, (3,))
    assert health(node.caller).status == GREEN, "nobody has used it yet"
    with pytest.raises(CorruptRecord, match="offsets 3 to 3"):
        kv.lookup((0,))
    found = health(node.caller)
    assert (found.in_sync_replicas, found.active_leader_replicas) == (1, 0)
    assert found.status == RED


# -- remote logs


def test_no_table_has_segments_in_a_remote_log(caller: Caller) -> None:
    def manifests(table_id: int, partition_id: int | None = None) -> int:
        request = pb.ListRemoteLogManifestsRequest(table_id=table_id, partition_id=partition_id)
        return len(caller.call(apis.LIST_REMOTE_LOG_MANIFESTS, request).manifests)

    table_id = caller.create_table(descriptor=PARTITIONED)
    create_partition(caller, "a")
    assert manifests(table_id) == manifests(table_id, partitions(caller)["a"]) == 0
    with pytest.raises(PartitionNotExists, match="no partition with the id 77"):
        manifests(table_id, 77)
    with pytest.raises(UnknownTableOrBucket, match="no table has the id 4711"):
        manifests(4711)


# -- historical partitions


def test_system_partitions_are_listed_and_there_are_none(caller: Caller) -> None:
    caller.create_table(descriptor=PARTITIONED)
    create_partition(caller, "a")
    request = pb.ListPartitionInfosRequest(table_path=to_pb(PATH))
    plain = caller.call(apis.LIST_PARTITION_INFOS, request)
    assert not plain.HasField("system_partitions_included")
    request.include_system_partitions = True
    found = caller.call(apis.LIST_PARTITION_INFOS, request)
    assert found.system_partitions_included
    assert list(found.partitions_info) == list(plain.partitions_info)
    caller.create_table(TablePath("db", "plain"))
    request.table_path.table_name = "plain"
    with pytest.raises(TableNotPartitioned):
        caller.call(apis.LIST_PARTITION_INFOS, request)


def test_rows_for_an_expired_partition_are_refused_and_not_stored(caller: Caller) -> None:
    table_id = caller.create_table(descriptor=PARTITIONED)
    create_partition(caller, "a")
    partition_id = partitions(caller)["a"]
    produce = pb.ProduceLogRequest(acks=-1, table_id=table_id, timeout_ms=10_000)
    produce.buckets_req.add(
        bucket_id=0, partition_id=partition_id, records=batch("x"), original_partition_name="old"
    )
    [answer] = caller.call(apis.PRODUCE_LOG, produce).buckets_resp
    assert answer.original_partition_name == "old"
    with pytest.raises(PartitionNotExists, match="'old' does not exist"):
        raise_in_body(answer)
    assert caller.offsets(table_id, partition_id=partition_id) == [0]


def test_rows_of_an_expired_partition_are_neither_put_nor_found(caller: Caller) -> None:
    kv = KvCaller(caller)
    kv.put((1, "a", 1))
    put = pb.PutKvRequest(acks=-1, table_id=kv.table_id, timeout_ms=10_000)
    put.buckets_req.add(bucket_id=0, records=b"no batch", original_partition_name="old")
    look_up = pb.LookupRequest(table_id=kv.table_id)
    look_up.buckets_req.add(bucket_id=0, keys=[b"key"], original_partition_name="old")
    for api, request in ((apis.PUT_KV, put), (apis.LOOKUP, look_up)):
        [answer] = caller.call(api, request).buckets_resp
        with pytest.raises(PartitionNotExists, match="keeps no historical partitions"):
            raise_in_body(answer)
    assert kv.table() == {1: (1, "a", 1)}


# -- fields of a later version


def test_a_change_that_the_server_does_not_know_is_refused_as_a_whole(caller: Caller) -> None:
    caller.create_table()
    change = pb.PbAlterConfig(config_key="owner", config_value="ann", op_type=0)
    known = pb.AlterTableRequest(
        table_path=to_pb(PATH), ignore_if_not_exists=False, config_changes=[change]
    )
    later = bytes.fromhex("fa3e020804")  # field 1007: a message with the number 4
    request = pb.AlterTableRequest.FromString(known.SerializeToString() + later)
    with pytest.raises(InvalidAlterTable, match=r"fields 1007\); nothing was changed"):
        caller.call(apis.ALTER_TABLE, request)
    assert b"ann" not in caller.table_info().table_json
    caller.call(apis.ALTER_TABLE, known)
    assert b"ann" in caller.table_info().table_json
