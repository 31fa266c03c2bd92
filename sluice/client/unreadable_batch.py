"""Checks a batch of a log that a user wants to skip, because it cannot be read."""

from __future__ import annotations

import threading

from sluice.client.client import Client
from sluice.client.log_fetches import FetchRange, LogFetches
from sluice.client.log_reader import LogReader
from sluice.errors import (
    ConfigurationError,
    CorruptMessage,
    CorruptRecord,
    LogOffsetOutOfRange,
    PartitionNotExists,
    UnknownTableOrBucket,
)
from sluice.formats.log_batch import LogBatchHeader, batch_ends, check_crc, complete_batches
from sluice.model import TableBucket, TablePath
from sluice.rounds.types import OffsetRange


def unreadable_batch(
    client: Client, path: TablePath, bucket: TableBucket, offset: int, tiered: int
) -> tuple[OffsetRange, str]:
    """The batch at an offset, which must be unreadable, and the text of its error.

    The range is empty if its end is unknown, because its header is damaged too.

    :param tiered: the end offset of the bucket in the lake.
    :raises ConfigurationError: the bucket does not exist, or no unreadable batch begins there.
    """
    option = f"--skip {bucket.name}:{offset}"
    reader = client.log_reader(path)
    start, end = _bounds(reader, path, bucket, option)
    if offset < tiered:
        raise ConfigurationError(f"{option}: the lake already holds offsets up to {tiered - 1}")
    if not start <= offset < end:
        raise ConfigurationError(f"{option}: the log has offsets {start} to {end - 1}")
    fetches = LogFetches(reader.connection, reader.info)
    window = FetchRange(bucket, offset, offset + 1, offset)
    try:
        base_offset = next(fetches.fetch([window], threading.Event())).batches[0][0].base_offset
        if base_offset != offset:
            raise ConfigurationError(
                f"{option}: no batch begins there; the batch that holds it begins at {base_offset}"
            )
        for _ in reader.read(bucket, offset, offset + 1):
            pass
    except CorruptRecord as error:
        if error.details.get("base_offset") != offset:
            raise
        stop = _end_of_batch(fetches, bucket, offset, end)
        return OffsetRange(bucket, offset, offset if stop is None else stop), str(error)
    raise ConfigurationError(f"{option}: the batch can be read: there is nothing to skip")


def _end_of_batch(fetches: LogFetches, bucket: TableBucket, offset: int, end: int) -> int | None:
    """The offset after a damaged batch; None: it is unknown.

    No checksum covers the length of a batch and base offsets. A wrong end would lose rows that can
    be read. So an end counts only if two of these agree: the header of the damaged batch, the base
    offset of the next one, and what the log has at that offset.

    :param end: the end of the log.
    """
    ends = batch_ends(fetches.bytes_from(bucket, offset), offset)
    if 0 < ends.bytes_needed <= fetches.bytes_max:
        ends = batch_ends(fetches.bytes_from(bucket, offset, ends.bytes_needed), offset)
    found = ends.following if ends.own is None else ends.own
    if found is None or not offset < found <= end:
        return None
    if found == end:
        return end if ends.own == end else None  # no batch begins at the end
    confirmed = ends.own == ends.following or _continues_at(fetches, bucket, found, end)
    return found if confirmed else None


def _continues_at(fetches: LogFetches, bucket: TableBucket, offset: int, end: int) -> bool:
    """Whether a readable batch begins exactly there, and the log continues after it."""
    batch = _batch_at(fetches, bucket, offset)
    if batch is None or batch[0].next_offset > end:
        return False
    header, view = batch
    try:
        check_crc(view, header)
    except CorruptRecord:
        return False
    after = header.next_offset
    return after == end or _batch_at(fetches, bucket, after) is not None


def _batch_at(
    fetches: LogFetches, bucket: TableBucket, offset: int
) -> tuple[LogBatchHeader, memoryview] | None:
    """The complete batch that begins exactly at an offset, if the log has one."""
    try:
        content = fetches.bytes_from(bucket, offset)
        needed = batch_ends(content, offset).bytes_needed
        if len(content) < needed <= fetches.bytes_max:
            content = fetches.bytes_from(bucket, offset, needed)
    except (CorruptMessage, CorruptRecord, LogOffsetOutOfRange):
        return None
    batches, _ = complete_batches(content)
    return next((one for one in batches if one[0].base_offset == offset), None)


def _bounds(
    reader: LogReader, path: TablePath, bucket: TableBucket, option: str
) -> tuple[int, int]:
    try:
        found = [
            reader.admin.list_offsets(path, [bucket.bucket], bucket.partition_id, which)
            for which in ("earliest", "latest")
        ]
    except (PartitionNotExists, UnknownTableOrBucket) as error:
        raise ConfigurationError(f"{option}: {error}") from error
    return found[0][bucket.bucket], found[1][bucket.bucket]
