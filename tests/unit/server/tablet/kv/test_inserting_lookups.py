"""Look-ups that insert the rows that they miss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa
import pytest

from sluice.errors import (
    CorruptRecord,
    InvalidRequiredAcks,
    InvalidTargetColumn,
    RecordTooLarge,
)
from sluice.model import Column, Schema, TablePath
from sluice.model.types import BIGINT, INT, STRING
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.error_codes import raise_in_body
from tests.unit.server.kv_support import KEYED, KvCaller, Row
from tests.unit.server.support import Caller, Node

TWO_KEYS = Schema(
    (
        Column("a", STRING.not_null(), 0),
        Column("b", INT.not_null(), 1),
        Column("text", STRING, 2),
    ),
    ("a", "b"),
    2,
)


def look_up(kv: KvCaller, keys: Sequence[bytes], acks: int = -1) -> list[Row | None]:
    request = pb.LookupRequest(
        table_id=kv.table_id, insert_if_not_exists=True, acks=acks, timeout_ms=10_000
    )
    request.buckets_req.add(bucket_id=0, keys=keys)
    (answer,) = kv.caller.call(apis.LOOKUP, request).buckets_resp
    raise_in_body(answer)
    values = [v.values if v.HasField("values") else None for v in answer.values]
    return kv.rows(pa.array(values, pa.binary()))


def test_missing_rows_are_inserted_with_nulls(caller: Caller) -> None:
    kv = KvCaller(caller)
    kv.put((1, "there", 7))
    keys = kv.keys([(1,), (2,), (3,), (2,)])
    found = [(1, "there", 7), (2, None, None), (3, None, None), (2, None, None)]
    assert look_up(kv, keys) == found
    end = kv.end()
    assert look_up(kv, keys) == found
    assert kv.end() == end
    assert kv.table() == {row[0]: row for row in found}
    inserted = [change for change in kv.changelog() if change[0] == "+I"]
    assert inserted == [("+I", row) for row in found[:3]]


@pytest.mark.parametrize("row_format", ["COMPACTED", "INDEXED"])
def test_a_key_of_two_columns(caller: Caller, row_format: str) -> None:
    properties = {"table.kv.format": row_format}
    kv = KvCaller(caller, schema=TWO_KEYS, bucket_keys=("a",), properties=properties)
    rows = [("x", -1, None), ("é" * 200, 2**31 - 1, None)]
    assert look_up(kv, kv.keys(rows)) == rows
    kv.put(("x", -1, "later"))
    assert look_up(kv, kv.keys(rows[:1])) == [("x", -1, "later")]


def test_new_rows_get_numbers(caller: Caller) -> None:
    schema = replace(
        KEYED, columns=(*KEYED.columns[:2], Column("no", BIGINT, 2)), auto_increment=("no",)
    )
    kv = KvCaller(caller, schema=schema)
    keys = kv.keys([(10,), (20,)])
    numbered = [(10, None, 1), (20, None, 2)]
    assert look_up(kv, keys) == numbered
    assert look_up(kv, keys[::-1]) == numbered[::-1]


def test_a_column_that_must_not_be_null(caller: Caller) -> None:
    schema = replace(KEYED, columns=(*KEYED.columns[:2], Column("n", INT.not_null(), 2)))
    kv = KvCaller(caller, schema=schema)
    with pytest.raises(InvalidTargetColumn, match="'n'"):
        look_up(kv, kv.keys([(1,)]))
    assert kv.end() == 0


def test_a_partitioned_table(caller: Caller) -> None:
    path = TablePath("db", "daily")
    kv = KvCaller(caller, path, schema=TWO_KEYS, partition_keys=("a",), bucket_keys=("b",))
    create = pb.CreatePartitionRequest(
        table_path=pb.PbTablePath(database_name="db", table_name="daily"),
        partition_spec=pb.PbPartitionSpec(partition_key_values=[pb.PbKeyValue(key="a", value="x")]),
        ignore_if_not_exists=False,
    )
    caller.call(apis.CREATE_PARTITION, create)
    request = pb.LookupRequest(table_id=kv.table_id, insert_if_not_exists=True, acks=-1)
    request.buckets_req.add(partition_id=0, bucket_id=0, keys=kv.keys([("x", 1)]))
    (answer,) = caller.call(apis.LOOKUP, request).buckets_resp
    with pytest.raises(InvalidTargetColumn, match="partitioned"):
        raise_in_body(answer)


@pytest.mark.parametrize("key", [b"", b"\x01", b"\x00" * 9])
def test_bytes_that_are_no_key(caller: Caller, key: bytes) -> None:
    kv = KvCaller(caller)
    with pytest.raises(CorruptRecord):
        look_up(kv, [key])
    assert kv.end() == 0


def test_acks_and_the_number_of_keys_are_checked(start: Callable[..., Node]) -> None:
    kv = KvCaller(start(max_batch_rows=2).caller)
    keys = kv.keys([(1,), (2,), (3,)])
    with pytest.raises(InvalidRequiredAcks, match="acks = 7"):
        look_up(kv, keys[:1], acks=7)
    with pytest.raises(RecordTooLarge, match="3 records, more than the limit of 2"):
        look_up(kv, keys)
    assert len(look_up(kv, keys[:2])) == 2
