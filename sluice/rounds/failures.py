"""Explains why splits failed, with the command that repairs their buckets."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from sluice.errors import (
    FlussError,
    LogBeginsAfterLake,
    LogOffsetOutOfRange,
    SluiceError,
    SplitFailed,
)
from sluice.model import Claim
from sluice.rounds.files import RoundResult
from sluice.rounds.ports import Cluster
from sluice.rounds.types import OffsetRange, Split, SplitFailure, SplitResult, StartMode

WITH_LAKE = "with the same --warehouse or --config"


def split_failed(
    claim: Claim,
    cluster: Cluster,
    splits: Sequence[Split],
    failures: Sequence[SplitFailure],
    committed: RoundResult | None = None,
    results: Sequence[SplitResult] = (),
) -> SluiceError:
    """The error of a round with failed splits.

    It is LogBeginsAfterLake if a log begins after its split's start, else SplitFailed. If several
    splits failed, it names one that only a user can repair, else one that no retry repairs.

    :param splits: as planned, not divided into parts.
    :param committed: what the round has committed. :param results: of the committed buckets.
    """
    retryable = any(failure.reason.retryable for failure in failures)
    for failure in failures:
        if (gap := _gap(claim, cluster, splits, failure)) is not None:
            words = _words(claim, failure, failures, committed, results)
            prefix = "" if words == _bucket(claim, failure) else f"{words}: "
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
    words = _words(claim, shown, failures, committed, results)
    if shown.unreadable_offset is not None:
        named = f"{shown.bucket.name}:{shown.unreadable_offset}"
        words += (
            f": the batch at offset {shown.unreadable_offset} cannot be read; `sluice repair"
            f" {claim.path} --skip {named}` {WITH_LAKE} shows how to continue without it"
        )
    reason = replace(shown.reason.caused(SplitFailed.__name__, words), retryable=retryable)
    return SplitFailed(reason.text, reason=reason, committed=committed)


def _bucket(claim: Claim, failure: SplitFailure) -> str:
    return f"bucket {failure.bucket} of table {claim.path}"


def _words(
    claim: Claim,
    shown: SplitFailure,
    failures: Sequence[SplitFailure],
    committed: RoundResult | None,
    results: Sequence[SplitResult],
) -> str:
    words = _bucket(claim, shown)
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
