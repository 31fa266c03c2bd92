"""Checks a batch of a log that a user wants to skip, because it cannot be read or tiered."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial

from sluice.client.client import Client
from sluice.client.log.fetches import FetchRange, LogFetches
from sluice.client.log.reader import LogReader
from sluice.errors import (
    ConfigurationError,
    CorruptMessage,
    CorruptRecord,
    LogOffsetOutOfRange,
    PartitionNotExists,
    UnknownTableOrBucket,
)
from sluice.errors.fluss import unreadable_text
from sluice.formats.log.batch import LogBatchHeader, batch_ends, check_crc, complete_batches
from sluice.model import Partition, TableBucket, TableInfo, TablePath, bucket_count_in
from sluice.rounds.commit.failures import WITH_LAKE, bucket_text
from sluice.rounds.repair.diagnosis import NAMED_MAX
from sluice.rounds.values.note_lists import first_of
from sluice.rounds.values.types import OffsetRange


def unreadable_batch(
    client: Client,
    path: TablePath,
    bucket: TableBucket,
    offset: int,
    tiered: int,
    left_out: Sequence[OffsetRange] = (),
) -> tuple[OffsetRange, str]:
    """The batch at an offset, which a round cannot copy, and a text that says why.

    The range is empty if its end is unknown, because its header is damaged too.

    :param tiered: the end offset of the bucket in the lake.
    :param left_out: what earlier repairs left out of the lake.
    :raises ConfigurationError: the bucket does not exist, or no unreadable batch begins there.
    """
    reader = client.log_reader(path)
    refused = partial(_refused, path, bucket, offset)
    place = _place(client, reader.info, bucket, refused)
    start, end = _bounds(reader, path, bucket, refused)
    fetches = LogFetches(reader.connection, reader.info)
    first = max(start, tiered)
    rest = _rest_of_range(fetches, bucket, offset, first, end)
    if rest is not None:
        return rest
    if offset < tiered:
        if any(one.holds(bucket, offset) for one in left_out):
            raise refused(
                f"an earlier repair already left out offset {offset}",
                f"`sluice status {path}` shows what the lake lacks",
            )
        raise refused(f"the bucket was already tiered up to offset {tiered}")
    if start == end:
        raise refused(f"the log of this bucket is empty and ends at offset {end}")
    if not start <= offset < end:
        raise refused(f"the log of this bucket has no offset {offset}, only {start} to {end - 1}")
    window = FetchRange(bucket, offset, offset + 1, offset)
    try:
        base_offset = next(fetches.fetch([window], threading.Event())).batches[0][0].base_offset
        if base_offset != offset:
            raise refused(
                f"no batch begins at offset {offset}. The batch that holds it begins at offset"
                f" {base_offset}",
                f"Use --skip {bucket.name}:{base_offset}",
            )
        for records in reader.read(bucket, offset, offset + 1, whole_batches=True):
            reader.check_for_lake(bucket, records)
    except CorruptRecord as error:
        begin = error.details.get("base_offset")
        if error.details.get("is_certain"):
            begin = max(error.details["base_offset"], first)
            if begin != offset:
                raise refused(
                    f"no damaged range begins at offset {offset}. The range that holds it begins at"
                    f" offset {begin}",
                    f"Use --skip {bucket.name}:{begin}",
                ) from error
            return OffsetRange(bucket, offset, error.details["next_offset"]), str(error)
        if begin != offset:
            raise
        stop = _end_of_batch(fetches, bucket, offset, end)
        why = f"{place}: {unreadable_text(offset, error.details['problem'])}"
        return OffsetRange(bucket, offset, offset if stop is None else stop), why
    raise refused(f"the batch at offset {offset} can be read, so there is nothing to skip")


def _rest_of_range(
    fetches: LogFetches, bucket: TableBucket, begin: int, first: int, end: int
) -> tuple[OffsetRange, str] | None:
    """The damaged range that begins at ``begin`` from offset ``first`` on, and why; else None.

    Errors name the begin of a range, also if it was tiered or deleted in part: a range grows when
    the batch after it is damaged too.

    :param end: the end of the log.
    """
    if not begin < first < end:
        return None
    try:
        for _ in fetches.fetch([FetchRange(bucket, first, first + 1, first)], threading.Event()):
            return None
    except CorruptRecord as error:
        if error.details.get("is_certain") and error.details["base_offset"] == begin:
            return OffsetRange(bucket, first, error.details["next_offset"]), str(error)
    return None


def _refused(
    path: TablePath, bucket: TableBucket, offset: int, problem: str, advice: str = ""
) -> ConfigurationError:
    advice = advice or (
        f"`sluice repair {path}` {WITH_LAKE} names the batch that the last round could not read"
    )
    return ConfigurationError(
        f"--skip {bucket.name}:{offset}: {problem}. {advice}", problem=problem
    )


def _place(
    client: Client,
    info: TableInfo,
    bucket: TableBucket,
    refused: Callable[..., ConfigurationError],
) -> str:
    """The bucket in words.

    :raises ConfigurationError: it is no bucket of the table.
    """
    partition: Partition | None = None
    if not info.is_partitioned and bucket.partition_id is not None:
        raise refused(f"table {info.path} has no partitions", "Leave out the partition id")
    if info.is_partitioned:
        partitions = {one.partition_id: one for one in client.admin.partitions(info.path)}
        partition = None if bucket.partition_id is None else partitions.get(bucket.partition_id)
        if partition is None:
            named = [f"{number} ({'/'.join(one.values)})" for number, one in partitions.items()]
            listed = f"The ids of its partitions are {first_of(named, limit=NAMED_MAX)}"
            raise refused(
                f"table {info.path} has no partition with the id {bucket.partition_id}"
                if bucket.partition_id is not None
                else f"table {info.path} is partitioned: write PARTITION_ID/BUCKET:OFFSET",
                listed if named else "It has no partition",
            )
    count = bucket_count_in(info, partition)
    if bucket.bucket >= count:
        where = "" if partition is None else f" in partition {bucket.partition_id}"
        raise refused(
            f"table {info.path} has no bucket {bucket.bucket}{where}, its last is bucket"
            f" {count - 1}"
        )
    return bucket_text(bucket, () if partition is None else partition.values)


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
    reader: LogReader,
    path: TablePath,
    bucket: TableBucket,
    refused: Callable[..., ConfigurationError],
) -> tuple[int, int]:
    try:
        found = [
            reader.admin.list_offsets(path, [bucket.bucket], bucket.partition_id, which)
            for which in ("earliest", "latest")
        ]
    except (PartitionNotExists, UnknownTableOrBucket) as error:
        raise refused(str(error)) from error
    return found[0][bucket.bucket], found[1][bucket.bucket]
