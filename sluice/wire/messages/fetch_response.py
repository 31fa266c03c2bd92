"""Reads a FetchLogResponse without copying its records (docs/fluss/messages.md#fetch-log).

The generated class copies every ``bytes`` field. Here the records stay views over the response as
it came from the socket. Everything else follows the rules of the generated class: the last value of
a field counts, unknown fields are skipped, nested messages of one field are merged.

The request, not the size of the response, limits how many buckets and fields are read: a server
could fill any message with the smallest possible entries.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError

from sluice.errors import CorruptMessage
from sluice.wire import fluss_api_pb2 as pb

_VARINT, _I64, _LEN, _GROUP, _END_GROUP, _I32 = range(6)
_VARINT_BYTES_MAX = 10
_UINT64_MAX = (1 << 64) - 1
_TAG_MAX = 2**32 - 1
_GROUPS_MAX = 100
"""Deepest nesting of unknown groups, as in protobuf's own readers."""
_FIELDS_MIN = 256
_FIELDS_PER_BUCKET = 64
"""Most fields of a response, including unknown ones: a bucket has 11 now, its table 2."""
_SEGMENTS_MAX = 100_000
"""Most remote segments and their fields in a response."""

_Field = tuple[int, int, Any]


@dataclass(frozen=True, slots=True)
class FetchedBucket:
    """The result of a fetch for one bucket; None is a field that was not sent."""

    table_id: int
    partition_id: int | None
    bucket_id: int
    error_code: int | None
    error_message: str
    high_watermark: int | None
    log_start_offset: int | None
    remote_log_fetch_info: pb.PbRemoteLogFetchInfo | None
    records: memoryview | None
    filtered_end_offset: int | None
    damaged_start_offset: int | None = None
    damaged_end_offset: int | None = None


def read_fetch_response(response: memoryview, buckets_max: int) -> list[FetchedBucket]:
    """The buckets of a response, in its order; their records are views over it.

    :param buckets_max: the number of buckets requested.
    :raises CorruptMessage: if it is no FetchLogResponse, or has more than was requested.
    """
    bounds = _Bounds(buckets_max)
    try:
        return [
            bucket
            for number, wire, table in bounds.fields(response)
            if number == 1 and wire == _LEN
            for bucket in _table(table, bounds)
        ]
    except (IndexError, struct.error, DecodeError, _NotProtobufError) as error:
        raise CorruptMessage(
            f"the FetchLog response ({len(response)} bytes) cannot be parsed:"
            f" {error or 'it ends inside a field'}"
        ) from error


class _NotProtobufError(Exception):
    """The bytes break a rule of protobuf's encoding."""


class _Bounds:
    """Counts the entries of a response against their limits."""

    def __init__(self, buckets_max: int) -> None:
        self._buckets_max = self._buckets = buckets_max
        self._fields_max = self._fields = _FIELDS_MIN + _FIELDS_PER_BUCKET * buckets_max
        self._segments = _SEGMENTS_MAX

    def fields(self, view: memoryview) -> Iterator[_Field]:
        return _fields(view, self._count_field)

    def count_bucket(self) -> None:
        self._buckets -= 1
        if self._buckets < 0:
            raise _NotProtobufError(f"it has more than the {self._buckets_max} buckets requested")

    def count_segments(self, view: memoryview) -> None:
        """Counts a PbRemoteLogFetchInfo before it is parsed."""
        for _ in _fields(view, self._count_segment):
            pass

    def _count_field(self) -> None:
        self._fields -= 1
        if self._fields < 0:
            raise _NotProtobufError(
                f"it has more than {self._fields_max} fields, for {self._buckets_max} buckets"
            )

    def _count_segment(self) -> None:
        self._segments -= 1
        if self._segments < 0:
            raise _NotProtobufError(f"it lists more than {_SEGMENTS_MAX} remote log segments")


def _table(view: memoryview, bounds: _Bounds) -> Iterator[FetchedBucket]:
    table_id: int | None = None
    buckets: list[memoryview] = []
    for number, wire, value in bounds.fields(view):
        if number == 1 and wire == _VARINT:
            table_id = _int64(value)
        elif number == 2 and wire == _LEN:
            bounds.count_bucket()
            buckets.append(value)
    if table_id is None:
        raise _NotProtobufError("a table has no table_id")
    for bucket in buckets:
        yield _bucket(table_id, bucket, bounds)


_INT64 = {
    1: "partition_id",
    5: "high_watermark",
    6: "log_start_offset",
    9: "filtered_end_offset",
    1001: "damaged_start_offset",
    1002: "damaged_end_offset",
}
_INT32 = {2: "bucket_id", 3: "error_code"}


def _bucket(table_id: int, view: memoryview, bounds: _Bounds) -> FetchedBucket:
    found: dict[str, Any] = dict.fromkeys((*_INT64.values(), *_INT32.values()))
    text, records = b"", None
    remote: pb.PbRemoteLogFetchInfo | None = None
    for number, wire, value in bounds.fields(view):
        if wire == _VARINT and number in _INT64:
            found[_INT64[number]] = _int64(value)
        elif wire == _VARINT and number in _INT32:
            found[_INT32[number]] = _int32(value)
        elif wire == _LEN and number == 8:
            records = value
        elif wire == _LEN and number == 4:
            text = bytes(value)
        elif wire == _LEN and number == 7:
            bounds.count_segments(value)
            remote = remote or pb.PbRemoteLogFetchInfo()
            remote.MergeFromString(value)
    if found["bucket_id"] is None:
        raise _NotProtobufError(f"a bucket of table {table_id} has no bucket_id")
    if remote is not None and not remote.IsInitialized():
        raise _NotProtobufError("remote_log_fetch_info lacks a required field")
    return FetchedBucket(
        table_id=table_id,
        error_message=text.decode(errors="replace"),
        remote_log_fetch_info=remote,
        records=records,
        **found,
    )


def _fields(view: memoryview, count: Callable[[], None]) -> Iterator[_Field]:
    """Number, wire type and value of each field; groups, which no known field uses, are skipped.

    :param count: called before each field, within groups too; may raise.
    """
    position, end = 0, len(view)
    while position < end:
        count()
        tag, position = _varint(view, position)
        number, wire = tag >> 3, tag & 7
        if not number or tag > _TAG_MAX:
            raise _NotProtobufError(f"{tag} is not a valid field tag")
        if wire == _GROUP:
            position = _skip_group(view, position, number, count)
            continue
        value, position = _value(view, position, wire)
        yield number, wire, value


def _value(view: memoryview, position: int, wire: int) -> tuple[Any, int]:
    if wire == _VARINT:
        return _varint(view, position)
    if wire == _LEN:
        size, position = _varint(view, position)
    elif wire in (_I64, _I32):
        size = 8 if wire == _I64 else 4
    else:
        raise _NotProtobufError(f"wire type {wire} is not supported")
    if size > len(view) - position:
        raise _NotProtobufError(f"a field of {size} bytes has only {len(view) - position}")
    return view[position : position + size], position + size


def _skip_group(view: memoryview, position: int, number: int, count: Callable[[], None]) -> int:
    open_groups = [number]
    while open_groups:
        count()
        tag, position = _varint(view, position)
        number, wire = tag >> 3, tag & 7
        if not number or tag > _TAG_MAX:
            raise _NotProtobufError(f"{tag} is not a valid field tag")
        if wire == _GROUP:
            open_groups.append(number)
            if len(open_groups) > _GROUPS_MAX:
                raise _NotProtobufError(f"more than {_GROUPS_MAX} groups in each other")
        elif wire == _END_GROUP:
            if open_groups.pop() != number:
                raise _NotProtobufError(f"the end of group {number} ends a different group")
        else:
            _, position = _value(view, position, wire)
    return position


def _varint(view: memoryview, position: int) -> tuple[int, int]:
    """An unsigned number of up to 64 bits, and the position after it."""
    byte = view[position]
    if byte < 0x80:
        return byte, position + 1
    value = byte & 0x7F
    for place in range(1, _VARINT_BYTES_MAX):
        byte = view[position + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value & _UINT64_MAX, position + place + 1  # as the generated class cuts it
    raise _NotProtobufError("a number takes more than 64 bits")


def _int64(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _int32(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value
