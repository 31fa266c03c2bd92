"""Fetches of some of a table's columns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from sluice.errors import (
    InvalidColumnProjection,
)
from sluice.formats.log.batch import decode_log_batch, iter_batches
from sluice.formats.types.descriptors import data_type_to_json
from sluice.formats.types.types import arrow_schema
from sluice.model.types import INT
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.error_codes import raise_in_body
from tests.unit.server.support import PATH, SCHEMA, Caller, batch, to_pb

ID, TEXT = arrow_schema(SCHEMA)


def fetch(caller: Caller, table_id: int, positions: Sequence[int], **more: Any) -> bytes:
    request = pb.FetchLogRequest(follower_server_id=-1, max_bytes=1 << 20, **more)
    wanted = request.tables_req.add(
        table_id=table_id, projection_pushdown_enabled=True, projected_fields=positions
    )
    wanted.buckets_req.add(bucket_id=0, fetch_offset=0, max_fetch_bytes=1 << 20)
    ((answer,),) = (
        table.buckets_resp for table in caller.call(apis.FETCH_LOG, request).tables_resp
    )
    raise_in_body(answer)
    assert answer.HasField("records")
    return bytes(answer.records)


def rows(records: bytes, *fields: pa.Field) -> tuple[list[int], dict[str, list[Any]]]:
    """Base offsets and values of batches."""
    schema = pa.schema(fields)
    found = list(iter_batches(records))
    batches = [decode_log_batch(view, header, schema) for header, view in found]
    return [h.base_offset for h, _ in found], pa.Table.from_batches(batches, schema).to_pydict()


def test_some_columns(caller: Caller) -> None:
    table = caller.create_table()
    caller.produce(table, batch("a", "b"))
    caller.produce(table, batch("c", first=2))
    assert rows(fetch(caller, table, [1]), TEXT) == ([0, 2], {"text": ["a", "b", "c"]})
    assert rows(fetch(caller, table, [0]), ID) == ([0, 2], {"id": [0, 1, 2]})
    assert rows(fetch(caller, table, [0, 1]), ID, TEXT)[1]["text"] == ["a", "b", "c"]


def test_an_empty_bucket_has_no_columns_either(caller: Caller) -> None:
    assert fetch(caller, caller.create_table(), [1]) == b""


def test_a_wait_ends_with_some_columns_too(caller: Caller) -> None:
    table = caller.create_table()
    assert fetch(caller, table, [1], max_wait_ms=10, min_bytes=1) == b""
    caller.produce(table, batch("a"))
    records = fetch(caller, table, [1], max_wait_ms=60_000, min_bytes=1)
    assert rows(records, TEXT) == ([0], {"text": ["a"]})


@pytest.mark.parametrize("positions", [[], [1, 0], [0, 0], [2], [-1]])
def test_columns_that_there_are_not(caller: Caller, positions: list[int]) -> None:
    table = caller.create_table()
    caller.produce(table, batch("a"))
    with pytest.raises(InvalidColumnProjection, match="0 to 1"):
        fetch(caller, table, positions)


def test_a_column_that_came_later(caller: Caller) -> None:
    """Batches from before have nulls there; where it is not asked for they stay as they are."""
    table = caller.create_table()
    caller.produce(table, batch("a", "b"))
    added = pb.PbAddColumn(
        column_name="n",
        data_type_json=json.dumps(data_type_to_json(INT)).encode(),
        column_position_type=0,
    )
    request = pb.AlterTableRequest(
        table_path=to_pb(PATH), ignore_if_not_exists=False, add_columns=[added]
    )
    caller.call(apis.ALTER_TABLE, request)
    caller.produce(table, batch("c", first=2))
    number = pa.field("n", pa.int32())
    assert rows(fetch(caller, table, [0, 2]), ID, number) == (
        [0, 2],
        {"id": [0, 1, 2], "n": [None] * 3},
    )
    assert rows(fetch(caller, table, [0]), ID)[1] == {"id": [0, 1, 2]}
