"""Reads log segments that Fluss moved to its remote storage.

See docs/fluss/remote-storage.md#log-segments. A segment's file holds log batches as a fetch returns
them. It is read in pieces of bounded size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from sluice.client.connection.remote_files import RemoteFiles
from sluice.errors import CorruptMessage, CorruptRecord, RecordTooLarge, StorageError
from sluice.formats.log.batch import V0_HEADER_SIZE, LogBatchHeader, complete_batches, read_header
from sluice.wire import fluss_api_pb2 as pb

Batches = list[tuple[LogBatchHeader, memoryview]]

_HEADER_BYTES_MAX = 64


@dataclass(frozen=True, slots=True)
class Segment:
    """One file of a bucket's log; the end offset is exclusive."""

    uri: str
    start_offset: int
    end_offset: int
    size_bytes: int
    position: int
    """The byte of the file at which to start."""


def segments_of(info: pb.PbRemoteLogFetchInfo) -> list[Segment]:
    """Returns the segment files that a fetch response names.

    :raises CorruptMessage: the description of a segment is not valid.
    """
    found = []
    folder = info.remote_log_tablet_dir.rstrip("/")
    for number, part in enumerate(info.remote_log_segments):
        start = part.remote_log_start_offset
        segment = Segment(
            f"{folder}/{part.remote_log_segment_id}/{start:020d}.log",
            start,
            part.remote_log_end_offset,
            part.segment_size_in_bytes,
            0 if number else info.first_start_pos,
        )
        if not 0 <= start < segment.end_offset or not 0 <= segment.position < segment.size_bytes:
            raise CorruptMessage(
                f"remote log segment {segment.uri}: offsets {start} to {segment.end_offset},"
                f" {segment.size_bytes} bytes, start at byte {segment.position} are not valid"
            )
        found.append(segment)
    return found


def read_segment(
    segment: Segment, files: RemoteFiles, piece_bytes: int, batch_bytes_max: int
) -> Iterator[Batches]:
    """Yields the complete batches of a segment, one piece of the file at a time.

    :param piece_bytes: the bytes to read at once; a larger batch is read separately.
    :raises StorageError: the file does not exist, cannot be read, or is truncated.
    :raises CorruptRecord: the file holds something other than log batches.
    :raises RecordTooLarge: a batch is larger than ``batch_bytes_max``.
    """
    try:
        with files.open(segment.uri) as file:
            size = file.size()
            if size < segment.size_bytes:
                raise _cut(segment, f"it has {size} of {segment.size_bytes} bytes")
            yield from _pieces(file, segment, piece_bytes, batch_bytes_max)
    except (OSError, pa.ArrowException, ValueError, ImportError) as error:
        files.forget_token()
        raise StorageError(
            f"remote log segment {segment.uri} cannot be read: {type(error).__name__}: {error}"
        ) from error


def _pieces(
    file: pa.NativeFile, segment: Segment, piece_bytes: int, batch_bytes_max: int
) -> Iterator[Batches]:
    position, reached = segment.position, segment.start_offset
    while position < segment.size_bytes:
        view = _read(file, segment, position, piece_bytes)
        batches, damage = complete_batches(view)
        if not batches and damage is None:  # one batch larger than a piece
            size = _batch_bytes(view, segment, position, batch_bytes_max)
            batches, damage = complete_batches(_read(file, segment, position, size))
        piece_at = position
        if batches:
            position += sum(header.size for header, _ in batches)
            reached = batches[-1][0].next_offset
            yield batches
        if damage is not None:
            raise CorruptRecord(
                f"remote log segment {segment.uri}, from byte {piece_at}: {damage}"
            ) from damage
    if reached < segment.end_offset:
        raise _cut(segment, f"it ends at offset {reached} instead of {segment.end_offset}")


def read_ahead(segment: Segment, files: RemoteFiles, count: int) -> memoryview:
    """At most that many bytes of a segment, from its position on.

    :raises StorageError: as :func:`read_segment`.
    """
    try:
        with files.open(segment.uri) as file:
            return _read(file, segment, segment.position, count)
    except (OSError, pa.ArrowException, ValueError, ImportError) as error:
        raise StorageError(
            f"remote log segment {segment.uri} cannot be read: {type(error).__name__}: {error}"
        ) from error


def _read(file: pa.NativeFile, segment: Segment, position: int, count: int) -> memoryview:
    file.seek(position)
    wanted = min(count, segment.size_bytes - position)
    view = memoryview(file.read_buffer(wanted)).cast("B")
    if len(view) < wanted:
        raise _cut(
            segment, f"only {len(view)} of {wanted} bytes could be read from byte {position}"
        )
    return view


def _batch_bytes(view: memoryview, segment: Segment, position: int, limit: int) -> int:
    """Returns the size of the batch at the start of a view that holds only a part of it."""
    left = segment.size_bytes - position
    if len(view) < V0_HEADER_SIZE:
        raise _cut(segment, f"the last {left} bytes hold no complete batch")
    try:
        size = read_header(view[:_HEADER_BYTES_MAX]).size
    except CorruptRecord as error:
        raise CorruptRecord(
            f"remote log segment {segment.uri}, at byte {position}: {error}"
        ) from error
    if size > left:
        raise _cut(segment, f"its last batch, at byte {position}, has {left} of {size} bytes")
    if size > limit:
        raise RecordTooLarge(
            f"remote log segment {segment.uri}: the batch at byte {position} has {size:,} bytes,"
            f" client.max_message_bytes allows {limit:,}"
        )
    return size


def _cut(segment: Segment, how: str) -> StorageError:
    return StorageError(f"remote log segment {segment.uri} is truncated: {how}")
