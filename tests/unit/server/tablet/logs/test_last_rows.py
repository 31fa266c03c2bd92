"""LimitScan: the last rows of a bucket of a log table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sluice.errors import InvalidScanRequest, RecordTooLarge, UnknownTableOrBucket
from sluice.formats.log.batch import iter_batches
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.error_codes import raise_in_body
from tests.unit.server.support import Caller, Node, batch, give_up


def offsets(caller: Caller, table_id: int, limit: int, **more: Any) -> list[int]:
    """Base offsets of the batches that come."""
    request = pb.LimitScanRequest(table_id=table_id, bucket_id=0, limit=limit)
    request.MergeFrom(pb.LimitScanRequest(**more))
    answer = caller.call(apis.LIMIT_SCAN, request)
    raise_in_body(answer)
    assert answer.is_log_table
    return [header.base_offset for header, _ in iter_batches(answer.records)]


def test_whole_batches_that_hold_the_last_rows(caller: Caller) -> None:
    table = caller.create_table()
    assert offsets(caller, table, 5) == []
    for texts in ("ab", "cde", "f"):  # offsets 0, 2, 5
        caller.produce(table, batch(*texts))
    found = [offsets(caller, table, limit) for limit in (1, 2, 4, 5, 6, 2**31 - 1)]
    assert found == [[5], [2, 5], [2, 5], [0, 2, 5], [0, 2, 5], [0, 2, 5]]


def test_over_several_segments(start: Callable[..., Node]) -> None:
    caller = start(segment_bytes=500).caller
    table = caller.create_table()
    for index in range(10):
        caller.produce(table, batch("x", first=index))
    assert offsets(caller, table, 7) == list(range(3, 10))


def test_none_of_what_was_given_up(start: Callable[..., Node], tmp_path: Path) -> None:
    node = start(segment_bytes=500)
    table = node.caller.create_table()
    for index in range(10):
        node.caller.produce(table, batch("x", first=index))
    node.stop()
    newest = max((tmp_path / "data" / "log").rglob("*.log"))
    for path in (newest, newest.with_suffix(".index")):
        path.unlink()
    node.start()
    give_up(node.caller.address)
    assert offsets(node.caller, table, 7) == []
    assert node.caller.produce(table, batch("x")) == 10
    assert offsets(node.caller, table, 7) == [10]


def test_more_than_an_answer_holds(start: Callable[..., Node]) -> None:
    caller = start(max_message_bytes=2_000, segment_bytes=500).caller
    table = caller.create_table()
    for index in range(20):
        caller.produce(table, batch("x", first=index))
    assert offsets(caller, table, 3) == [17, 18, 19]
    with pytest.raises(RecordTooLarge, match="last 20 rows"):
        offsets(caller, table, 20)


def test_refusals(caller: Caller) -> None:
    table = caller.create_table()
    for limit in (0, -1):
        with pytest.raises(InvalidScanRequest, match=f"limit = {limit}"):
            offsets(caller, table, limit)
    with pytest.raises(UnknownTableOrBucket):
        offsets(caller, table + 1, 1)
    with pytest.raises(UnknownTableOrBucket):
        offsets(caller, table, 1, bucket_id=9)
    with pytest.raises(UnknownTableOrBucket):
        offsets(caller, table, 1, partition_id=3)
