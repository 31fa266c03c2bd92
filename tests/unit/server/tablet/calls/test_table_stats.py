"""GetTableStats: rows of log tables and of primary-key tables, by bucket."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.errors import InvalidTable, UnknownTableOrBucket
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.error_codes import raise_in_body
from tests.unit.server.kv_support import KvCaller
from tests.unit.server.support import Caller, Node, batch


def rows(
    caller: Caller, table_id: int, *buckets: int, partition_id: int | None = None
) -> list[int]:
    request = pb.GetTableStatsRequest(table_id=table_id)
    for bucket in buckets:
        request.buckets_req.add(bucket_id=bucket, partition_id=partition_id)
    answers: list[Any] = list(caller.call(apis.GET_TABLE_STATS, request).buckets_resp)
    for answer in answers:
        raise_in_body(answer)
    assert [answer.bucket_id for answer in answers] == list(buckets)
    return [answer.row_count for answer in answers]


def test_rows_of_a_log_table(caller: Caller) -> None:
    table_id = caller.create_table(bucket_count=2)
    assert rows(caller, table_id, 0, 1) == [0, 0]
    caller.produce(table_id, batch("a", "b"))
    caller.produce(table_id, batch("c"))
    assert rows(caller, table_id, 1, 0) == [0, 3]


def test_rows_of_a_primary_key_table(node: Node) -> None:
    kv = KvCaller(node.caller)
    kv.put(*((i, f"t{i}", i) for i in range(10)))
    kv.put((3, "again", 3))
    kv.delete((1,), (99,))
    assert rows(node.caller, kv.table_id, 0) == [9]
    node.restart()
    assert rows(node.caller, kv.table_id, 0) == [9]


def test_rows_of_the_image_wal_are_not_counted(caller: Caller) -> None:
    kv = KvCaller(caller, properties={"table.changelog.image": "WAL"})
    kv.put((1, "a", 1))
    with pytest.raises(InvalidTable, match=r"table\.changelog\.image = WAL"):
        rows(caller, kv.table_id, 0)


def test_rows_of_a_partition(caller: Caller) -> None:
    table_id = caller.create_table(partition_keys=("text",))
    spec = pb.PbPartitionSpec(partition_key_values=[pb.PbKeyValue(key="text", value="a")])
    path = pb.PbTablePath(database_name="db", table_name="t")
    caller.call(
        apis.CREATE_PARTITION,
        pb.CreatePartitionRequest(table_path=path, partition_spec=spec, ignore_if_not_exists=False),
    )
    listed = caller.call(
        apis.LIST_PARTITION_INFOS, pb.ListPartitionInfosRequest(table_path=path)
    ).partitions_info
    assert rows(caller, table_id, 0, partition_id=listed[0].partition_id) == [0]
    with pytest.raises(UnknownTableOrBucket):
        rows(caller, table_id, 0)


def test_rows_of_what_does_not_exist(caller: Caller) -> None:
    table_id = caller.create_table()
    for table, bucket in ((table_id, 7), (987, 0)):
        with pytest.raises(UnknownTableOrBucket):
            rows(caller, table, bucket)
