"""Native frames: the bytes of docs/fluss/test-vectors.md#frames, cuts and nonsense."""

from __future__ import annotations

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.errors import CorruptMessage, FlussError, RecordTooLarge, TableNotExist
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.messages import frames
from sluice.wire.messages.frames import FrameReader, RequestHead, ResponseHead, ResponseType
from tests.support.network.native_peer import feed

API_VERSIONS_FRAME = bytes.fromhex("0000001603e80000000000000a05666c7573731205302e312e30")
TABLE_NOT_EXIST_FRAME = bytes.fromhex("0000000701000000050807")


def test_request_has_the_bytes_of_the_docs() -> None:
    hello = pb.ApiVersionsRequest(client_software_name="fluss", client_software_version="0.1.0")
    encoded = frames.encode_request(apis.API_VERSIONS.key, 0, 0, hello.SerializeToString())
    assert encoded == API_VERSIONS_FRAME
    head, body = frames.parse_request(memoryview(encoded)[4:])
    assert head == RequestHead(1000, 0, 0)
    assert pb.ApiVersionsRequest.FromString(bytes(body)) == hello


def test_error_has_the_bytes_of_the_docs() -> None:
    assert frames.encode_error(5, pb.ErrorResponse(error_code=7)) == TABLE_NOT_EXIST_FRAME
    head, body = frames.parse_response(memoryview(TABLE_NOT_EXIST_FRAME)[4:])
    assert head == ResponseHead(ResponseType.ERROR, 5)
    assert type(frames.parse_error(body)) is TableNotExist


def test_server_failure_has_no_request_id() -> None:
    encoded = frames.encode_failure(pb.ErrorResponse(error_code=7, error_message="gone"))
    assert struct.unpack(">i", encoded[:4])[0] == len(encoded) - 4
    head, body = frames.parse_response(memoryview(encoded)[4:])
    assert head == ResponseHead(ResponseType.SERVER_FAILURE, None)
    assert str(frames.parse_error(body)) == "gone"


@given(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=50))
def test_responses_come_back(request_id: int, body: bytes) -> None:
    [frame] = feed(FrameReader(100), frames.encode_response(request_id, body))
    head, found = frames.parse_response(frame)
    assert (head, bytes(found)) == (ResponseHead(ResponseType.SUCCESS, request_id), body)


@given(st.lists(st.binary(min_size=1, max_size=40)), st.lists(st.integers(0, 200)))
def test_frames_survive_any_cut_of_the_stream(bodies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(struct.pack(">i", len(body)) + body for body in bodies)
    edges = sorted({0, len(stream), *(min(cut, len(stream)) for cut in cuts)})
    reader, found = FrameReader(40), []
    for start, end in itertools.pairwise(edges):
        found += feed(reader, stream[start:end])
    assert [bytes(frame) for frame in found] == bodies
    assert not reader.inside


def test_frame_is_read_in_place() -> None:
    reader = FrameReader(100)
    reader.free_buffer()[:4] = struct.pack(">i", 3)
    assert reader.received(4) is None
    room = reader.free_buffer()
    room[:2] = b"ab"
    assert reader.received(2) is None
    assert reader.inside
    assert len(reader.free_buffer()) == 1
    reader.free_buffer()[:] = b"c"
    frame = reader.received(1)
    assert frame is not None
    room[0] = ord("x")
    assert bytes(frame) == b"xbc"


@pytest.mark.parametrize("size", [101, 2**31 - 1])
def test_frame_over_the_limit_is_refused_before_anything_is_allocated(size: int) -> None:
    with pytest.raises(RecordTooLarge, match=rf"a frame of {size:,} bytes, the limit is 100"):
        feed(FrameReader(100), struct.pack(">i", size))


@pytest.mark.parametrize("size", [0, -1, -(2**31)])
def test_length_that_is_none_is_refused(size: int) -> None:
    with pytest.raises(CorruptMessage, match=f"length is {size}"):
        feed(FrameReader(100), struct.pack(">i", size))


@given(st.binary(max_size=200))
def test_nonsense_is_a_frame_or_a_typed_error(data: bytes) -> None:
    try:
        for frame in feed(FrameReader(100), data):
            assert 0 < len(frame) <= 100
            for parse in (frames.parse_request, frames.parse_response):
                try:
                    _, body = parse(frame)
                except CorruptMessage:
                    continue
                assert isinstance(frames.parse_error(body), FlussError)
    except (CorruptMessage, RecordTooLarge):
        pass


def test_unknown_type_of_response_is_refused() -> None:
    with pytest.raises(CorruptMessage, match="type 72"):
        frames.parse_response(memoryview(b"HTTP/1.1 400 Bad Request"))


def test_message_that_cannot_be_parsed_is_named() -> None:
    with pytest.raises(CorruptMessage, match=r"ListTables \(2 bytes\) cannot be parsed"):
        frames.parse_body(pb.ListTablesResponse, memoryview(b"\x0a\x50"), "ListTables")
