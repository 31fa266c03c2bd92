"""Checks a batch of a log that a user wants to skip, because it cannot be read."""

from __future__ import annotations

import threading

from sluice.client.client import Client
from sluice.client.log_fetches import FetchRange, LogFetches
from sluice.client.log_reader import LogReader
from sluice.errors import (
    ConfigurationError,
    CorruptRecord,
    PartitionNotExists,
    UnknownTableOrBucket,
)
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
        stop = fetches.following_offset(bucket, offset)
        return OffsetRange(bucket, offset, offset if stop is None else stop), str(error)
    raise ConfigurationError(f"{option}: the batch can be read: there is nothing to skip")


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
