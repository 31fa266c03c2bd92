"""Tables whose log stores rows, INDEXED or COMPACTED: appended, changed, fetched, recovered."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from sluice.errors import CorruptRecord, InvalidColumnProjection
from sluice.formats.log.batch import iter_batches, seal
from sluice.formats.log.log_format import LogFormat
from sluice.formats.log.row_log import build_row_log_batch
from sluice.formats.types.types import arrow_schema
from sluice.model import Column, Schema
from sluice.model.types import BIGINT, STRING
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.error_codes import raise_in_body
from sluice.wire.messages import values
from tests.conformance.every_type import EVERY_TYPE, every_value
from tests.unit.server.kv_support import KvCaller
from tests.unit.server.support import PATH, SCHEMA, Caller, Node, batch, to_pb

ROW_FORMATS = ["INDEXED", "COMPACTED"]
TEXT_ONLY = Schema((Column("text", STRING.not_null(), 0),), highest_field_id=0)


def properties(log_format: str) -> dict[str, str]:
    return {"table.log.format": log_format}


def rows_batch(log_format: str, *texts: str, schema_id: int = 1) -> bytes:
    """What ``support.batch`` is, in a row format."""
    data = pa.RecordBatch.from_pydict(
        {"id": list(range(len(texts))), "text": list(texts)}, schema=arrow_schema(SCHEMA)
    )
    of = LogFormat(log_format)
    return of.encode(of.rows(data, SCHEMA), schema_id)


def projected(caller: Caller, table_id: int) -> pb.PbFetchLogRespForBucket:
    request = pb.FetchLogRequest(follower_server_id=-1, max_bytes=1 << 20)
    table = request.tables_req.add(
        table_id=table_id, projection_pushdown_enabled=True, projected_fields=[0]
    )
    table.buckets_req.add(bucket_id=0, fetch_offset=0, max_fetch_bytes=1 << 20)
    (found,) = caller.call(apis.FETCH_LOG, request).tables_resp
    return found.buckets_resp[0]


@pytest.mark.parametrize("log_format", ROW_FORMATS)
def test_what_is_fetched_is_what_was_sent(caller: Caller, node: Node, log_format: str) -> None:
    table = caller.create_table(properties=properties(log_format))
    sent = [rows_batch(log_format, "a", "b"), rows_batch(log_format), rows_batch(log_format, "ü")]
    assert [caller.produce(table, each) for each in sent] == [0, 2, 3]
    whole = [(base, each[25:]) for base, each in zip([0, 2, 3], sent, strict=True)]
    assert caller.read_all(table) == whole
    request = pb.LimitScanRequest(table_id=table, bucket_id=0, limit=1)
    answer = caller.call(apis.LIMIT_SCAN, request)
    raise_in_body(answer)
    assert [h.base_offset for h, _ in iter_batches(answer.records)] == [3]
    node.restart()
    assert node.caller.read_all(table) == whole


@pytest.mark.parametrize("log_format", ROW_FORMATS)
def test_columns_cannot_be_projected(caller: Caller, log_format: str) -> None:
    table = caller.create_table(properties=properties(log_format))
    caller.produce(table, rows_batch(log_format, "a"))
    with pytest.raises(InvalidColumnProjection, match=f"{log_format}: only ARROW can be projected"):
        raise_in_body(projected(caller, table))


@pytest.mark.parametrize(
    ("log_format", "rows", "why"),
    [
        ("COMPACTED", [b"\0\1a", b"\0\2a"], r"row 1: column 0 \(STRING NOT NULL\): it ends early"),
        ("COMPACTED", [b"\0\1a\0"], "extra bytes at the end"),
        ("COMPACTED", [b"\0\1\xff"], "Invalid UTF8"),
        ("COMPACTED", [b"\1"], "'text' is NOT NULL but has 1 nulls"),
        ("COMPACTED", [b""], "it ends early"),
        ("INDEXED", [b"\0\1\0\0\0a", b"\0\2\0\0\0a"], "row 1: .*it ends early"),
        ("INDEXED", [b"\0\xff\xff\xff\xffa"], "a length is negative"),
    ],
)
def test_rows_that_nobody_could_read_are_refused(
    caller: Caller, log_format: str, rows: list[bytes], why: str
) -> None:
    table = caller.create_table(schema=TEXT_ONLY, properties=properties(log_format))
    with pytest.raises(CorruptRecord, match=rf"table db\.t, bucket .*{why}"):
        caller.produce(table, build_row_log_batch(pa.array(rows), 1))
    assert caller.offsets(table) == [0]


def test_records_that_are_none_are_refused(caller: Caller) -> None:
    table = caller.create_table(schema=TEXT_ONLY, properties=properties("COMPACTED"))
    cases = [
        (build_row_log_batch(pa.array([b"\0\1a"]), 1, change_types=b"\1"), "must not have change"),
        (seal([b"\4\0\0\0\3\0\1a"], 1, 1, -1, -1, 1), "change type 3, which is not 0"),
        (seal([b"\5\0\0\0\0\0\1a"], 1, 1, -1, -1, 1), "record 0: it ends early"),
        (seal([b"\0\0\0\0"], 1, 1, -1, -1, 1), "record 0 has 0 bytes"),
        (batch("a", "b"), "record 0"),  # Arrow's
    ]
    for content, why in cases:
        with pytest.raises(CorruptRecord, match=why):
            caller.produce(table, content)
    assert caller.offsets(table) == [0]


@pytest.mark.parametrize("log_format", ROW_FORMATS)
def test_batches_of_an_older_schema_are_checked_by_it(caller: Caller, log_format: str) -> None:
    table = caller.create_table(properties=properties(log_format))
    request = pb.AlterTableRequest(table_path=to_pb(PATH), ignore_if_not_exists=False)
    request.add_columns.add(
        column_name="more",
        data_type_json=b'{"type":"INTEGER"}',
        column_position_type=values.POSITION_LAST,
    )
    caller.call(apis.ALTER_TABLE, request)
    caller.produce(table, rows_batch(log_format, "a"))
    with pytest.raises(CorruptRecord):
        caller.produce(table, rows_batch(log_format, "a", schema_id=2))
    assert caller.offsets(table) == [1]


@pytest.mark.parametrize(
    ("kv_format", "log_format", "image"),
    [
        ("COMPACTED", "COMPACTED", "FULL"),
        ("INDEXED", "INDEXED", "FULL"),
        ("INDEXED", "COMPACTED", "WAL"),
    ],
)
def test_a_changelog_of_rows_makes_the_store_anew(
    start: Callable[..., Node], tmp_path: Path, kv_format: str, log_format: str, image: str
) -> None:
    node = start(kv_snapshot_interval_ms=0)
    of = {"table.kv.format": kv_format, "table.changelog.image": image} | properties(log_format)
    kv = KvCaller(node.caller, properties=of)
    kv.put((1, "a", 1), (2, None, None), (3, "c", 3))
    kv.put((1, "b", None))
    kv.delete((3,))
    kv.delete((9,))  # no change: an empty batch
    kv.put((2, "p"), targets=(0, 1))
    changes = kv.changelog()
    if image == "FULL":
        assert [kind for kind, _ in changes] == ["+I"] * 3 + ["-U", "+U", "-D", "-U", "+U"]
    expected = {1: (1, "b", None), 2: (2, "p", None)}
    assert kv.table() == expected
    node.stop()
    shutil.rmtree(tmp_path / "data" / "kv")
    node.restart()
    kv = KvCaller(node.caller, create=False)
    assert kv.table() == expected
    assert kv.changelog() == changes
    with pytest.raises(InvalidColumnProjection, match="only ARROW"):
        raise_in_body(projected(node.caller, kv.table_id))


@pytest.mark.parametrize("log_format", ROW_FORMATS)
def test_every_type_is_logged_as_it_was_put(caller: Caller, log_format: str) -> None:
    columns = tuple(Column(name, of, i) for i, (name, of) in enumerate(EVERY_TYPE.items()))
    schema = Schema((*columns, Column("big", BIGINT, len(columns))), ("f_not_null",), len(columns))
    of = {"table.kv.format": log_format} | properties(log_format)
    kv = KvCaller(caller, schema=schema, properties=of)
    rows = [(*row.values(), n) for n, row in enumerate(every_value().to_pylist())]
    kv.put(*rows)
    assert kv.changelog() == [("+I", row) for row in rows]
