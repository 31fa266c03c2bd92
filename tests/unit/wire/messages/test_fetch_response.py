"""The reader of FetchLogResponse against the generated class: what one takes the other takes."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.errors import CorruptMessage
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.messages.fetch_response import FetchedBucket, read_fetch_response

MANY = 1_000
"""More buckets than any answer here has."""
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


def optional(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


SEGMENT = st.builds(
    pb.PbRemoteLogSegment,
    remote_log_segment_id=st.text(max_size=5),
    remote_log_start_offset=INT64,
    remote_log_end_offset=INT64,
    segment_size_in_bytes=INT32,
    max_timestamp=optional(INT64),
)
REMOTE = st.builds(
    pb.PbRemoteLogFetchInfo,
    remote_log_tablet_dir=st.text(max_size=5),
    partition_name=optional(st.text(max_size=3)),
    remote_log_segments=st.lists(SEGMENT, max_size=2),
    first_start_pos=optional(INT32),
)
BUCKET = st.builds(
    pb.PbFetchLogRespForBucket,
    partition_id=optional(INT64),
    bucket_id=INT32,
    error_code=optional(INT32),
    error_message=optional(st.text(max_size=5)),
    high_watermark=optional(INT64),
    log_start_offset=optional(INT64),
    remote_log_fetch_info=optional(REMOTE),
    records=optional(st.binary(max_size=20)),
    filtered_end_offset=optional(INT64),
)
TABLE = st.builds(
    pb.PbFetchLogRespForTable, table_id=INT64, buckets_resp=st.lists(BUCKET, max_size=3)
)
RESPONSE = st.builds(pb.FetchLogResponse, tables_resp=st.lists(TABLE, max_size=3))


def expected(response: Any) -> list[FetchedBucket]:
    """What the generated class says."""

    def field(entry: Any, name: str) -> Any:
        return getattr(entry, name) if entry.HasField(name) else None

    found = []
    for table in response.tables_resp:
        for entry in table.buckets_resp:
            records, text = field(entry, "records"), entry.error_message
            if isinstance(text, bytes):  # what the generated class makes of a text that is none
                text = text.decode(errors="replace")
            found.append(
                FetchedBucket(
                    table.table_id,
                    field(entry, "partition_id"),
                    entry.bucket_id,
                    field(entry, "error_code"),
                    text,
                    field(entry, "high_watermark"),
                    field(entry, "log_start_offset"),
                    field(entry, "remote_log_fetch_info"),
                    None if records is None else memoryview(records),
                    field(entry, "filtered_end_offset"),
                )
            )
    return found


def check_same(data: bytes) -> None:
    try:
        response = pb.FetchLogResponse.FromString(data)
        if not response.IsInitialized():  # FromString does not always look
            raise DecodeError("a required field is missing")
        wanted = expected(response)
    except DecodeError:
        with pytest.raises(CorruptMessage, match=rf"\({len(data)} bytes\) cannot be parsed"):
            read_fetch_response(memoryview(data), MANY)
    else:
        assert read_fetch_response(memoryview(data), MANY) == wanted


@given(RESPONSE)
def test_says_what_the_generated_class_says(response: Any) -> None:
    check_same(response.SerializeToString())


@given(RESPONSE, st.data())
@settings(max_examples=400)
def test_bytes_with_damage_are_taken_or_refused_as_the_generated_class_does(
    response: Any, data: st.DataObject
) -> None:
    damaged = bytearray(response.SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(damaged)))
        end = data.draw(st.integers(place, min(place + 3, len(damaged))))
        damaged[place:end] = data.draw(st.binary(max_size=3))
    check_same(bytes(damaged))


@given(st.binary(max_size=60))
@settings(max_examples=400)
def test_any_bytes_are_taken_or_refused_as_the_generated_class_does(data: bytes) -> None:
    check_same(data)


@given(RESPONSE, RESPONSE)
def test_two_messages_one_behind_the_other_are_one(first: Any, second: Any) -> None:
    check_same(first.SerializeToString() + second.SerializeToString())


def test_a_field_sent_twice_counts_as_sent_last_and_remote_parts_are_merged() -> None:
    one = pb.PbRemoteLogFetchInfo(remote_log_tablet_dir="a", first_start_pos=3)
    two = pb.PbRemoteLogFetchInfo(remote_log_tablet_dir="b")
    bucket = b""
    for info, records in ((one, b"first"), (two, b"second")):
        part = pb.PbFetchLogRespForBucket(bucket_id=1, records=records)
        part.remote_log_fetch_info.CopyFrom(info)
        bucket += part.SerializeToString()
    table = pb.PbFetchLogRespForTable(table_id=1).SerializeToString()
    table += b"\x12" + bytes([len(bucket)]) + bucket
    data = b"\x0a" + bytes([len(table)]) + table
    check_same(data)
    [found] = read_fetch_response(memoryview(data), MANY)
    assert found.records == b"second"
    assert found.remote_log_fetch_info == pb.PbRemoteLogFetchInfo(
        remote_log_tablet_dir="b", first_start_pos=3
    )


@pytest.mark.parametrize(
    "unknown",
    ["a00601", "a306a001ff01a406", "a20603616263", "a50601020304", "a1060102030405060708"],
)
def test_unknown_fields_are_skipped(unknown: str) -> None:
    response = pb.FetchLogResponse()
    response.tables_resp.add(table_id=7).buckets_resp.add(bucket_id=1, records=b"r")
    data = bytes.fromhex(unknown) + response.SerializeToString() + bytes.fromhex(unknown)
    check_same(data)
    assert len(read_fetch_response(memoryview(data), MANY)) == 1


@pytest.mark.parametrize("last", ["01", "02", "7f"])
def test_bits_beyond_the_64th_are_cut_off(last: str) -> None:
    number = bytes.fromhex("ff" * 9 + last)
    bucket = b"\x10\x01\x28" + number
    table = b"\x08\x07\x12" + bytes([len(bucket)]) + bucket
    check_same(b"\x0a" + bytes([len(table)]) + table)


def test_an_error_text_that_is_no_text_is_read_as_far_as_it_goes() -> None:
    data = bytes.fromhex("0a0a0801120610012202ff41")
    check_same(data)
    [found] = read_fetch_response(memoryview(data), MANY)
    assert found.error_message == "\N{REPLACEMENT CHARACTER}A"


def test_deeply_nested_groups_are_refused_without_recursion() -> None:
    data = b"\xa3\x06" * 100_000
    with pytest.raises(CorruptMessage, match="groups in each other"):
        read_fetch_response(memoryview(data), MANY)


def test_records_are_views_over_the_answer() -> None:
    response = pb.FetchLogResponse()
    response.tables_resp.add(table_id=7).buckets_resp.add(bucket_id=1, records=b"abc")
    answer = bytearray(response.SerializeToString())
    [found] = read_fetch_response(memoryview(answer), MANY)
    answer[answer.index(b"abc")] = ord("x")
    assert found.records is not None
    assert bytes(found.records) == b"xbc"


def nested(*numbers: int, body: bytes = b"", times: int = 1) -> bytes:
    """A message many times in a field, within fields of these numbers."""
    for number in reversed(numbers):
        body = (bytes([number << 3 | 2]) + varint(len(body)) + body) * times
        times = 1
    return body


def varint(value: int) -> bytes:
    encoded = b""
    while value > 0x7F:
        encoded, value = encoded + bytes([value & 0x7F | 0x80]), value >> 7
    return encoded + bytes([value])


def table_with(content: bytes) -> bytes:
    return nested(1, body=b"\x08\x07" + content)


COUNT = 1_000_000
HOSTILE = {
    "buckets": (table_with(nested(2, body=b"\x10\x01", times=COUNT)), "the 3 buckets requested"),
    "tables": (nested(1, body=b"\x08\x07", times=COUNT), "448 fields, for 3 buckets"),
    "fields of the answer": (b"\x50\x01" * COUNT, "448 fields"),
    "fields of a table": (table_with(b"\x50\x01" * COUNT), "448 fields"),
    "fields of a bucket": (table_with(nested(2, body=b"\x10\x01" * COUNT)), "448 fields"),
    "groups": (b"\x53\x54" * COUNT, "448 fields"),
    "fields of a group": (b"\x53" + b"\x08\x01" * COUNT + b"\x54", "448 fields"),
    "remote segments": (
        table_with(nested(2, 7, 3, times=COUNT)),
        "100000 remote log segments",
    ),
    "remote fields": (table_with(nested(2, 7, body=b"\x50\x01" * COUNT)), "100000 remote log"),
}


@pytest.mark.parametrize(("data", "expected"), HOSTILE.values(), ids=HOSTILE)
def test_what_is_made_of_an_answer_is_bounded_by_what_was_asked(data: bytes, expected: str) -> None:
    """Megabytes of the smallest entries there are used to become a hundred times as much."""
    view = memoryview(data)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptMessage, match=expected):
            read_fetch_response(view, 3)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 300_000


def test_an_answer_of_just_what_was_asked_is_read() -> None:
    response = pb.FetchLogResponse()
    for number in range(50):
        bucket = response.tables_resp.add(table_id=number).buckets_resp.add(bucket_id=1)
        for part in range(1000):
            bucket.remote_log_fetch_info.remote_log_tablet_dir = "d"
            bucket.remote_log_fetch_info.remote_log_segments.add(
                remote_log_segment_id=str(part),
                remote_log_start_offset=part,
                remote_log_end_offset=part + 1,
                segment_size_in_bytes=1,
            )
    data = memoryview(response.SerializeToString())
    assert len(read_fetch_response(data, 50)) == 50
    with pytest.raises(CorruptMessage, match="more than the 49 buckets requested"):
        read_fetch_response(data, 49)
