"""Encodes and decodes the frames of Fluss's native protocol (docs/fluss/rpc.md#frames).

Pure: bytes in, bytes out. All numbers of a frame are big endian; its length does not count itself.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

import numpy as np
from google.protobuf.message import DecodeError, Message

from sluice.errors import CorruptMessage, FlussError, RecordTooLarge, from_code
from sluice.wire import fluss_api_pb2 as pb

M = TypeVar("M", bound=Message)

LENGTH_BYTES = 4
FRAME_BYTES_MAX = 2**31 - 1
"""The longest frame that a length field can express."""

_LENGTH = struct.Struct(">i")
_REQUEST = struct.Struct(">ihhi")
_RESPONSE = struct.Struct(">ibi")
_FAILURE = struct.Struct(">ib")
_REQUEST_HEAD_BYTES = 8
_RESPONSE_HEAD_BYTES = 5
_FAILURE_HEAD_BYTES = 1
_GROWTH = 4
"""How much larger a frame's memory gets each time: a third of the frame is copied in total."""


class ResponseType(IntEnum):
    """The kind of a response's body."""

    SUCCESS = 0
    """The response message of the call."""
    ERROR = 1
    """An ErrorResponse to this one request."""
    SERVER_FAILURE = 2
    """An ErrorResponse to no request: the server closes the connection."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    """The fields of a request's frame before its message."""

    api_key: int
    api_version: int
    request_id: int


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """The fields of a response's frame before its message; a server failure has no request id."""

    type: ResponseType
    request_id: int | None


def request_prefix(api_key: int, api_version: int, request_id: int, body_bytes: int) -> bytes:
    """The 12 bytes before a request's message.

    :raises RecordTooLarge: if no frame can hold the message.
    """
    size = _frame_bytes(_REQUEST_HEAD_BYTES, body_bytes)
    return _REQUEST.pack(size, api_key, api_version, request_id)


def response_prefix(request_id: int, body_bytes: int) -> bytes:
    """The 9 bytes before a response's message.

    :raises RecordTooLarge: if no frame can hold the message.
    """
    size = _frame_bytes(_RESPONSE_HEAD_BYTES, body_bytes)
    return _RESPONSE.pack(size, ResponseType.SUCCESS, request_id)


def encode_request(api_key: int, api_version: int, request_id: int, body: bytes) -> bytes:
    """A complete request. :raises RecordTooLarge: if no frame can hold the message."""
    return request_prefix(api_key, api_version, request_id, len(body)) + body


def encode_response(request_id: int, body: bytes) -> bytes:
    """A complete response. :raises RecordTooLarge: if no frame can hold the message."""
    return response_prefix(request_id, len(body)) + body


def encode_error(request_id: int, error: pb.ErrorResponse) -> bytes:
    """The complete response to a request that failed."""
    body: bytes = error.SerializeToString()
    size = _frame_bytes(_RESPONSE_HEAD_BYTES, len(body))
    return _RESPONSE.pack(size, ResponseType.ERROR, request_id) + body


def encode_failure(error: pb.ErrorResponse) -> bytes:
    """The frame that a server sends before it closes a connection that it can no longer serve."""
    body: bytes = error.SerializeToString()
    size = _frame_bytes(_FAILURE_HEAD_BYTES, len(body))
    return _FAILURE.pack(size, ResponseType.SERVER_FAILURE) + body


def parse_request(frame: memoryview) -> tuple[RequestHead, memoryview]:
    """Head and message of a request's frame, which comes without its length.

    :raises CorruptMessage: if the frame is shorter than a head.
    """
    if len(frame) < _REQUEST_HEAD_BYTES:
        raise CorruptMessage(
            f"a request's frame of {len(frame)} bytes is shorter than its head of"
            f" {_REQUEST_HEAD_BYTES}"
        )
    return RequestHead(*struct.unpack_from(">hhi", frame)), frame[_REQUEST_HEAD_BYTES:]


def parse_response(frame: memoryview) -> tuple[ResponseHead, memoryview]:
    """Head and message of a response's frame, which comes without its length.

    :raises CorruptMessage: if the frame is shorter than a head, or of no known type.
    """
    if not len(frame):
        raise CorruptMessage("a response's frame is empty; it must start with its type")
    try:
        kind = ResponseType(frame[0])
    except ValueError:
        raise CorruptMessage(
            f"a response's frame has type {frame[0]}, not 0 to 2: is this a Fluss server?"
        ) from None
    if kind is ResponseType.SERVER_FAILURE:
        return ResponseHead(kind, None), frame[_FAILURE_HEAD_BYTES:]
    if len(frame) < _RESPONSE_HEAD_BYTES:
        raise CorruptMessage(
            f"a response's frame of {len(frame)} bytes is shorter than its head of"
            f" {_RESPONSE_HEAD_BYTES}"
        )
    (request_id,) = struct.unpack_from(">i", frame, 1)
    return ResponseHead(kind, request_id), frame[_RESPONSE_HEAD_BYTES:]


def parse_error(body: memoryview) -> FlussError:
    """The exception of an error's or a server failure's message."""
    try:
        error = pb.ErrorResponse.FromString(bytes(body))
    except DecodeError as problem:
        return CorruptMessage(f"an error of {len(body)} bytes cannot be parsed: {problem}")
    return from_code(error.error_code, error.error_message)


class FrameReader:
    """Splits a stream into frames without a copy: provides the buffer for the next bytes.

    Read into ``free_buffer()``, then pass the number of bytes to ``received()``. Each frame has its
    own memory, exactly as large as its length field, and never larger than the limit. Not thread
    safe.

    :param grow_from: initial size of a frame's memory; the memory grows as bytes arrive, with a
        copy each time. By default all memory of a frame is allocated at once, without copies.
    """

    def __init__(
        self, max_frame_bytes: int, min_frame_bytes: int = 1, *, grow_from: int = FRAME_BYTES_MAX
    ) -> None:
        self._max, self._min = min(max_frame_bytes, FRAME_BYTES_MAX), min_frame_bytes
        self._grow_from = grow_from
        self._length = memoryview(bytearray(LENGTH_BYTES))
        self._target, self._filled = self._length, 0
        self._size = 0

    @property
    def inside(self) -> bool:
        """Whether a frame has started and is not yet complete."""
        return self._filled > 0 or self._target is not self._length

    @property
    def rest(self) -> int:
        """Bytes that the frame lacks; 0 while its length is not known."""
        return 0 if self._target is self._length else self._size - self._filled

    def free_buffer(self) -> memoryview:
        """The buffer for the next bytes of the stream; never empty."""
        return self._target[self._filled :]

    def received(self, count: int) -> memoryview | None:
        """Records that ``count`` bytes were read into ``free_buffer()``.

        :return: the frame if it is now complete.
        :raises CorruptMessage: if the frame length is not valid.
        :raises RecordTooLarge: if the frame is over the limit; nothing is allocated for it.
        """
        self._filled += count
        if self._filled < len(self._target):
            return None
        if self._target is not self._length:
            if self._filled < self._size:
                self._grow()
                return None
            frame, self._target, self._filled = self._target, self._length, 0
            return frame
        (size,) = _LENGTH.unpack(self._length)
        if size < self._min:
            raise CorruptMessage(f"a frame's length is {size}; it must be {self._min} or more")
        if size > self._max:
            raise RecordTooLarge(
                f"the peer announced a frame of {size:,} bytes, the limit is {self._max:,}: raise"
                " max_message_bytes, or check that the peer is a Fluss server or client"
            )
        # Pages are used only once bytes arrive: a false length alone takes no memory.
        self._size, self._filled = size, 0
        self._target = np.empty(min(size, self._grow_from), np.uint8).data
        return None

    def _grow(self) -> None:
        larger = np.empty(min(self._size, self._filled * _GROWTH), np.uint8).data
        larger[: self._filled] = self._target
        self._target = larger


def parse_body(message: type[M], body: memoryview, what: str) -> M:
    """A frame's message. :raises CorruptMessage: if it is not valid; ``what`` names it."""
    try:
        return message.FromString(bytes(body))
    except DecodeError as error:
        raise CorruptMessage(f"{what} ({len(body)} bytes) cannot be parsed: {error}") from error


def _frame_bytes(head_bytes: int, body_bytes: int) -> int:
    size = head_bytes + body_bytes
    if size > FRAME_BYTES_MAX:
        raise RecordTooLarge(f"a message of {body_bytes:,} bytes does not fit into one frame")
    return size
