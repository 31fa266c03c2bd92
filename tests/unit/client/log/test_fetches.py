"""The log reader before servers that answer fetches in ways the embedded one does not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from sluice.client import LogReader, connect
from sluice.errors import CorruptMessage, CorruptRecord, LogOffsetOutOfRange, RequestTimeOut
from sluice.model import TableBucket
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Role
from tests.support.network.fetch_server import BUCKET, INFO, batch, ids, reading
from tests.support.network.wire_server import WireServer

OTHER = TableBucket(1, None, 1)


def test_a_server_may_begin_earlier_than_it_was_asked() -> None:
    whole = batch(0, 10) + batch(10, 10) + batch(20, 10)

    def answer(request: Any, bucket: Any) -> None:
        bucket.records = whole

    with reading(answer) as reader:
        assert ids(reader, 12, 27) == list(range(12, 27))


def test_a_cut_batch_at_the_end_is_fetched_again() -> None:
    asked: list[int] = []

    def answer(request: Any, bucket: Any) -> None:
        asked.append(request.fetch_offset)
        rest = batch(request.fetch_offset, 10)
        bucket.records = rest + batch(request.fetch_offset + 10, 10)[:-1]

    with reading(answer) as reader:
        assert ids(reader, 0, 30) == list(range(30))
    assert asked == [0, 10, 20]


def test_offsets_missing_in_between_are_an_error() -> None:
    def answer(request: Any, bucket: Any) -> None:
        bucket.records = batch(0, 10) + batch(20, 10)

    with reading(answer) as reader:
        rows = reader.read(BUCKET, 0, 30)
        with pytest.raises(
            CorruptRecord, match="offset 10 is missing, the next batch starts at offset 20"
        ):
            list(rows)


def test_bytes_without_a_whole_batch_are_an_error() -> None:
    def answer(request: Any, bucket: Any) -> None:
        bucket.records = batch(0, 10)[:-1]

    with reading(answer) as reader, pytest.raises(CorruptRecord, match="hold no complete batch"):
        ids(reader, 0, 10)


def test_change_types_are_not_read_as_plain_rows() -> None:
    def answer(request: Any, bucket: Any) -> None:
        bucket.records = batch(0, 2, change_types=b"\x02\x03")

    with reading(answer) as reader, pytest.raises(CorruptRecord, match="has change types"):
        ids(reader, 0, 2)


def test_an_answer_about_no_bucket_is_an_error() -> None:
    empty = pb.FetchLogResponse()
    handlers = {(Role.TABLET, apis.FETCH_LOG): lambda _: empty}
    with (
        WireServer(handlers) as server,
        connect(server.address) as client,
        pytest.raises(CorruptMessage, match="the response to a fetch lacks this bucket"),
    ):
        ids(LogReader(client._connection, client.admin, INFO.path, INFO), 0, 10)


@pytest.mark.parametrize("wrong", [{"bucket_id": 5}, {"partition_id": 9}])
def test_an_answer_about_another_bucket_is_an_error(wrong: dict[str, int]) -> None:
    def answer(request: Any, bucket: Any) -> None:
        bucket.records = batch(0, 10)
        for name, value in wrong.items():
            setattr(bucket, name, value)

    with reading(answer) as reader, pytest.raises(CorruptMessage, match="has an entry for bucket"):
        ids(reader, 0, 10)


def test_an_answer_that_is_none_is_an_error() -> None:
    handlers = {(Role.TABLET, apis.FETCH_LOG): lambda _: b"\x0a\x7f"}
    with (
        WireServer(handlers) as server,
        connect(server.address) as client,
        pytest.raises(CorruptMessage, match=r"FetchLog response \(2 bytes\) cannot be parsed"),
    ):
        ids(LogReader(client._connection, client.admin, INFO.path, INFO), 0, 10)


def test_many_buckets_are_fetched_in_one_request() -> None:
    asked: list[tuple[int, int]] = []

    def answer(request: Any, bucket: Any) -> None:
        asked.append((request.bucket_id, request.fetch_offset))
        bucket.records = batch(request.fetch_offset, 10)

    with reading(answer) as reader:
        found: dict[TableBucket, list[int]] = {BUCKET: [], OTHER: []}
        for bucket, records in reader.read_many({BUCKET: (0, 30), OTHER: (10, 25)}):
            found[bucket] += records.batch["id"].to_pylist()
    assert found == {BUCKET: list(range(30)), OTHER: list(range(10, 25))}
    assert sorted(asked) == [(0, 0), (0, 10), (0, 20), (1, 10), (1, 20)]


@pytest.mark.parametrize("empty", [None, b""], ids=["no field", "no bytes"])
def test_a_bucket_without_bytes_in_an_answer_is_asked_for_first_the_next_time(
    empty: bytes | None,
) -> None:
    first: list[int] = []

    def fetch(request: Any) -> Any:
        asked = [bucket.bucket_id for bucket in request.tables_req[0].buckets_req]
        first.append(asked[0])
        reply = pb.FetchLogResponse()
        table = reply.tables_resp.add(table_id=1)
        for place, bucket in enumerate(request.tables_req[0].buckets_req):
            table.buckets_resp.add(
                bucket_id=bucket.bucket_id,
                high_watermark=30,
                records=empty if place else batch(bucket.fetch_offset, 10),
            )
        return reply

    with (
        WireServer({(Role.TABLET, apis.FETCH_LOG): fetch}) as server,
        connect(server.address) as client,
    ):
        reader = LogReader(client._connection, client.admin, INFO.path, INFO)
        rows = sum(r.batch.num_rows for _, r in reader.read_many({BUCKET: (0, 30), OTHER: (0, 30)}))
    assert rows == 60
    assert first == [0, 1, 0, 1, 0, 1]


def left_out(asked: list[list[int]], times: float) -> Callable[[Any], Any]:
    """Answers fetches, but says nothing of bucket 1 so many times."""

    def fetch(request: Any) -> Any:
        wanted = request.tables_req[0].buckets_req
        asked.append([bucket.bucket_id for bucket in wanted])
        reply = pb.FetchLogResponse()
        table = reply.tables_resp.add(table_id=1)
        for bucket in wanted:
            if bucket.bucket_id == 0 or sum(1 in buckets for buckets in asked) > times:
                entry = table.buckets_resp.add(bucket_id=bucket.bucket_id, high_watermark=30)
                entry.records = batch(bucket.fetch_offset, 10)
        return reply

    return fetch


def test_a_bucket_that_an_answer_leaves_out_is_asked_for_alone() -> None:
    asked: list[list[int]] = []
    with (
        WireServer({(Role.TABLET, apis.FETCH_LOG): left_out(asked, 1)}) as server,
        connect(server.address) as client,
    ):
        reader = LogReader(client._connection, client.admin, INFO.path, INFO)
        found: dict[TableBucket, list[int]] = {BUCKET: [], OTHER: []}
        for bucket, records in reader.read_many({BUCKET: (0, 30), OTHER: (0, 30)}):
            found[bucket] += records.batch["id"].to_pylist()
    assert found == {BUCKET: list(range(30)), OTHER: list(range(30))}
    assert asked[:2] == [[0, 1], [1]]


def test_a_bucket_that_every_answer_leaves_out_is_an_error() -> None:
    asked: list[list[int]] = []
    with (
        WireServer({(Role.TABLET, apis.FETCH_LOG): left_out(asked, math.inf)}) as server,
        connect(server.address) as client,
    ):
        reader = LogReader(client._connection, client.admin, INFO.path, INFO)
        rows = reader.read_many({BUCKET: (0, 30), OTHER: (0, 30)})
        with pytest.raises(
            CorruptMessage,
            match="bucket 1 of table db.t: the response to a fetch lacks this bucket",
        ):
            list(rows)
    assert asked[:2] == [[0, 1], [1]]


def test_more_buckets_than_asked_for_are_an_error() -> None:
    def fetch(_: Any) -> Any:
        reply = pb.FetchLogResponse()
        for number in range(100):
            reply.tables_resp.add(table_id=1).buckets_resp.add(bucket_id=number)
        return reply

    with (
        WireServer({(Role.TABLET, apis.FETCH_LOG): fetch}) as server,
        connect(server.address) as client,
        pytest.raises(CorruptMessage, match="more than the 1 buckets requested"),
    ):
        ids(LogReader(client._connection, client.admin, INFO.path, INFO), 0, 10)


def test_the_error_of_one_bucket_among_many_is_its_own() -> None:
    def answer(request: Any, bucket: Any) -> None:
        if request.bucket_id == 1:
            bucket.error_code, bucket.error_message = 19, "offset 0 is gone"
        else:
            bucket.records = batch(request.fetch_offset, 10)

    with (
        reading(answer) as reader,
        pytest.raises(LogOffsetOutOfRange, match="bucket 1 of table db.t: offset"),
    ):
        list(reader.read_many({BUCKET: (0, 30), OTHER: (0, 30)}))


def test_the_error_of_a_bucket_without_a_text_is_described() -> None:
    def answer(_: Any, bucket: Any) -> None:
        bucket.error_code = LogOffsetOutOfRange.code

    with (
        reading(answer) as reader,
        pytest.raises(LogOffsetOutOfRange, match="of table db.t: .+ error"),
    ):
        list(reader.read_many({BUCKET: (0, 30)}))


def test_a_bucket_among_many_whose_data_never_come_has_a_deadline() -> None:
    def answer(request: Any, bucket: Any) -> None:
        if request.bucket_id == 0:
            bucket.records = batch(request.fetch_offset, 10)

    with reading(answer, request_timeout_ms=300) as reader:
        rows = reader.read_many({BUCKET: (0, 30), OTHER: (0, 30)})
        with pytest.raises(RequestTimeOut, match="bucket 1 of table db.t: no data from offset 0"):
            list(rows)
