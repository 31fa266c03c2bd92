"""Explains why splits failed, with the command that repairs their buckets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from sluice.errors import (
    CorruptRecord,
    FlussError,
    LogBeginsAfterLake,
    LogOffsetOutOfRange,
    SluiceError,
    SplitFailed,
)
from sluice.errors.fluss import unreadable_text
from sluice.model import Claim, Reason, TableBucket, TablePath
from sluice.rounds.records.result import RoundResult
from sluice.rounds.values.ports import Cluster
from sluice.rounds.values.types import OffsetRange, Split, SplitFailure, SplitResult, StartMode

WITH_LAKE = "with the same --warehouse or --config"
_NAMED = re.compile(r"`sluice repair (\S+) --skip (\S+):(\d+)`")


def split_failed(
    claim: Claim,
    cluster: Cluster,
    splits: Sequence[Split],
    failures: Sequence[SplitFailure],
    committed: RoundResult | None = None,
    results: Sequence[SplitResult] = (),
    rebuilt: OffsetRange | None = None,
    *,
    can_skip: bool = True,
) -> SluiceError:
    """The error of a round with failed splits.

    It is LogBeginsAfterLake if a log begins after its split's start, else SplitFailed. If several
    splits failed, it names one that only a user can repair, else one that no retry repairs.

    :param splits: as planned, not divided into parts.
    :param committed: what the round has committed. :param results: of the committed buckets.
    :param rebuilt: the unreadable batch whose bucket the round was to rebuild.
    :param can_skip: whether ``sluice repair --by skip`` may leave that batch out in place of it.
    """
    retryable = any(failure.reason.retryable for failure in failures)
    values = {split.bucket: split.partition_values for split in splits}
    for failure in failures:
        if (gap := _gap(claim, cluster, splits, failure)) is not None:
            place = f"{bucket_text(failure.bucket, values[failure.bucket])} of table {claim.path}"
            words = _words(place, failure, failures, committed, results)
            prefix = "" if words == place else f"{words}: "
            return LogBeginsAfterLake(
                f"{prefix}{begins_text(gap)}. The log has lost the offsets in between. Run"
                f" `sluice repair {claim.path}` {WITH_LAKE}: it lists the possible repairs",
                retryable=retryable,
                table=str(claim.path),
                bucket=gap.bucket,
                tiered_offset=gap.start,
                log_start_offset=gap.stop,
                committed=committed,
            )
    shown = min(failures, key=lambda one: (one.unreadable_offset is None, one.reason.retryable))
    place = f"{bucket_text(shown.bucket, values.get(shown.bucket, ()))} of table {claim.path}"
    words = _words(place, shown, failures, committed, results)
    if shown.unreadable_offset is None and rebuilt and shown.bucket == rebuilt.bucket:
        can_skip = can_skip and rebuilt.start < rebuilt.stop
        return _rebuild_failed(claim.path, words, splits, shown, rebuilt, can_skip)
    if shown.unreadable_offset is None:
        reason = replace(shown.reason.caused(SplitFailed.__name__, words), retryable=retryable)
        return SplitFailed(reason.text, reason=reason, committed=committed)
    reason = Reason.from_text(
        f"{words}: {unreadable_text(shown.unreadable_offset, shown.reason.text)}."
        f" {_repair_command(claim.path, shown.bucket, shown.unreadable_offset)}",
        kind=SplitFailed.__name__,
        deepest_cause=str(shown.reason),
        retryable=retryable,
    )
    return SplitFailed(
        reason.text,
        reason=reason,
        committed=committed,
        table=str(claim.path),
        bucket=shown.bucket,
        unreadable_offset=shown.unreadable_offset,
    )


def _rebuild_failed(
    path: TablePath,
    words: str,
    splits: Sequence[Split],
    failure: SplitFailure,
    batch: OffsetRange,
    can_skip: bool,
) -> SplitFailed:
    """The error of a rebuild, which names the batch again.

    After a crash, a server may itself need the batch to read the bucket.
    """
    scans = any(one.keyed and one.keyed.start_mode is StartMode.SCAN for one in splits)
    server_too = scans and failure.reason.kind == CorruptRecord.__name__
    why = "the server cannot read the rows of the bucket either"
    if not server_too:
        why = "the rebuild of the bucket failed"
    skip = ", and --by skip leaves the batch out" if can_skip else ""
    reason = Reason.from_text(
        f"{words}: the batch at offset {batch.start} cannot be read, and {why}: {failure.reason}."
        f" {_repair_command(path, batch.bucket, batch.start)}{skip}",
        kind=SplitFailed.__name__,
        deepest_cause=failure.reason.deepest_cause or str(failure.reason),
        retryable=failure.reason.retryable,
    )
    return SplitFailed(
        reason.text,
        reason=reason,
        table=str(path),
        bucket=batch.bucket,
        unreadable_offset=batch.start,
    )


def _repair_command(path: TablePath, bucket: TableBucket, offset: int) -> str:
    """The command that :func:`named_batch` finds."""
    return (
        f"Run `sluice repair {path} --skip {bucket.name}:{offset}` {WITH_LAKE}: it lists the"
        " possible repairs"
    )


def named_batch(text: str) -> tuple[TablePath, str, int] | None:
    """The batch that cannot be read, by the text of :func:`split_failed`: table, bucket, offset."""
    found = _NAMED.search(text)
    return None if found is None else (TablePath.parse(found[1]), found[2], int(found[3]))


def bucket_text(bucket: TableBucket, partition_values: Sequence[str]) -> str:
    """A bucket in words: ``bucket 0`` or ``bucket 0 of partition 2026-11-23``."""
    if bucket.partition_id is None:
        return f"bucket {bucket.bucket}"
    return f"bucket {bucket.bucket} of partition {'/'.join(partition_values)}"


def _words(
    place: str,
    shown: SplitFailure,
    failures: Sequence[SplitFailure],
    committed: RoundResult | None,
    results: Sequence[SplitResult],
) -> str:
    words = place
    if len(failures) > 1:
        words += f" and {_buckets(len(failures) - 1)}"
    if committed is None:
        return f"{words} failed" if len(failures) > 1 else words
    words += " failed"
    ends = {result.bucket: result.next_offset for result in results}
    if shown.bucket in ends:
        words += f" from offset {ends[shown.bucket]} on"
    if others := len(ends.keys() - {failure.bucket for failure in failures}):
        words += f", {_buckets(others)} {'was' if others == 1 else 'were'} committed"
    return words


def _buckets(number: int) -> str:
    return f"{number} other bucket{'' if number == 1 else 's'}"


def begins_text(gap: OffsetRange) -> str:
    """States where a log begins and where the lake ends."""
    return (
        f"the log of bucket {gap.bucket.name} begins at offset {gap.stop}, the lake ends at offset"
        f" {gap.start}"
    )


def _gap(
    claim: Claim, cluster: Cluster, splits: Sequence[Split], failure: SplitFailure
) -> OffsetRange | None:
    """What the log has lost after the lake's end, if a split failed because of that."""
    split = next((one for one in splits if one.bucket == failure.bucket), None)
    if failure.reason.kind != LogOffsetOutOfRange.__name__ or split is None:
        return None
    if split.keyed is not None and split.keyed.start_mode is not StartMode.INCREMENTAL:
        return None  # it does not begin at the lake's end
    bucket = failure.bucket
    with suppress(FlussError):
        where = (claim.path, claim.table_id, bucket.partition_id, [bucket.bucket])
        start = cluster.earliest_offsets(*where)[bucket.bucket]
        # Read again: another round may have tiered the range before retention deleted it.
        registered = cluster.lake_snapshot(claim.path)
        end = registered.offsets.get(bucket, -1) if registered is not None else -1
        if start > end >= split.start_offset >= 0:
            return OffsetRange(bucket, end, start)
    return None
