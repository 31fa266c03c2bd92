"""Divides the window of one bucket into parts, which several executors copy at the same time.

Only windows of log tables are divided: their rows are copied unchanged, in any order. The parts are
joined again right after the copy, so that a round sees one result for each bucket.

A round with a limit of bytes is not divided. How many bytes a part has is only known once it was
read, so each part would end at its own share of the limit, and all parts after the first such end
would have been copied for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from sluice.errors import LogOffsetOutOfRange, SplitFailed
from sluice.model import TableBucket
from sluice.rounds.values.lake_files import DataFile
from sluice.rounds.values.reasons import reason_of
from sluice.rounds.values.types import Split, SplitFailure, SplitPart, SplitResult

PART_OFFSETS = 1_000_000
"""Default for the offsets that a part has at least: about a second's work of one core."""
_PART_OFFSETS_MAX = 4_000_000
"""Parts have more only if there would be too many. At a time limit, the parts that are being copied
after an unfinished one are discarded."""
_PARTS_PER_CORE = 2
_PARTS_MAX = 1_000

Outcome = SplitResult | SplitFailure


@dataclass(frozen=True, slots=True)
class JoinedParts:
    """The outcomes of a round's copy, by bucket."""

    results: list[SplitResult] = field(default_factory=list)
    """One for each bucket of which something was copied."""
    failures: list[SplitFailure] = field(default_factory=list)
    """At most one for each bucket. Such a bucket may have a result too: the parts before."""
    unused: list[DataFile] = field(default_factory=list)
    """Files of parts that follow a gap; nothing may reference them."""


@dataclass(frozen=True, slots=True)
class PartRules:
    """How windows are divided into parts, and parts joined."""

    parallelism: int = 1
    """Splits that are copied at the same time; 1: windows are not divided."""
    offsets: int = PART_OFFSETS
    """Offsets that a part has at least, about; 0: windows are not divided."""

    def divide(self, splits: Sequence[Split]) -> list[Split]:
        """The splits, with long windows in parts.

        Together they have about twice as many parts as the parallelism, or more if those parts
        would be long.
        """
        if self.parallelism < 2 or not self.offsets:
            return list(splits)
        total = sum(split.weight for split in splits)
        even = min(total // (_PARTS_PER_CORE * self.parallelism), _PART_OFFSETS_MAX)
        size = max(self.offsets, even, total // _PARTS_MAX)
        return [part for split in splits for part in _parts_of(split, size)]

    def join(self, splits: Sequence[Split], outcomes: Sequence[Outcome]) -> JoinedParts:
        """Joins the outcomes of parts to one result for each bucket.

        A bucket's result ends with the first part that was cut by a limit, or before the first part
        that failed. What follows there is unused, because the offsets of a bucket have no gaps.

        :param splits: the splits that were run.
        :raises SplitFailed: a split has no outcome, or several.
        """
        found = {(outcome.bucket, outcome.part_number): outcome for outcome in outcomes}
        if len(outcomes) != len(splits) or len(found) != len(splits):
            raise SplitFailed(
                f"{len(splits)} splits were planned, but {len(outcomes)} returned a result"
            )
        windows: dict[TableBucket, list[Split]] = {}
        for split in splits:
            windows.setdefault(split.bucket, []).append(split)
        joined = JoinedParts()
        for parts in windows.values():
            _join_bucket(joined, parts, [found[s.bucket, s.part_number] for s in parts])
        return joined


NO_PARTS = PartRules()


def in_copy_order(splits: Iterable[Split]) -> list[Split]:
    """The splits in the order in which to start them.

    The first parts of all buckets come first, as a bucket's later parts are useless without them.
    Among equals the largest comes first, so that none of them runs alone at the end. What copies
    nothing comes last: it may be left out.
    """
    return sorted(splits, key=lambda split: (not split.copies, split.part_number, -split.cost))


def _parts_of(split: Split, size: int) -> list[Split]:
    limited = split.limit is not None and split.limit.max_bytes is not None
    undivided = limited or split.keyed is not None or bool(split.skipped)
    count = 1 if undivided else round(split.weight / size)
    if count < 2:
        return [split]
    cuts = [split.first_offset + split.weight * i // count for i in range(count + 1)]
    starts = [split.start_offset, *cuts[1:-1]]
    window = SplitPart(0, split.stop_offset, from_earliest=split.start_offset < 0)
    return [
        replace(split, start_offset=start, stop_offset=stop, part=replace(window, number=i))
        for i, (start, stop) in enumerate(zip(starts, cuts[1:], strict=True))
    ]


def _join_bucket(joined: JoinedParts, parts: Sequence[Split], outcomes: Sequence[Outcome]) -> None:
    """Joins the parts of one bucket, which are in the order of their offsets."""
    kept: list[SplitResult] = []
    failure: SplitFailure | None = None
    end = -1
    for part, outcome in zip(parts, outcomes, strict=True):
        if end >= part.stop_offset:
            continue  # the last batch of the part before contains its range
        if isinstance(outcome, SplitFailure):
            failure = outcome
            break
        if kept and outcome.begin_offset not in (None, end):
            failure = _changed(part, end, outcome)
            break
        kept.append(outcome)
        end = max(end, outcome.next_offset)  # a part may have read nothing
        if outcome.limit_reached:
            break
    if len(parts) > 1 and all(result.max_timestamp_ms < 0 for result in kept):
        kept.clear()  # retention has deleted the first parts; where the next round starts is open
        failure = failure or _deleted(parts[0], end)
    if kept:
        joined.results.append(_sum(kept, end))
    if failure is not None:
        joined.failures.append(failure)
    numbers = {result.part_number for result in kept}
    for outcome in outcomes:
        if isinstance(outcome, SplitResult) and outcome.part_number not in numbers:
            joined.unused.extend(outcome.files)


def _changed(part: Split, end: int, result: SplitResult) -> SplitFailure:
    error = SplitFailed(
        f"bucket {part.bucket}: a part of its log ended at offset {end}, and the next part began at"
        f" offset {result.begin_offset}: the log has changed while it was read"
    )
    return SplitFailure(part.bucket, reason_of(error), part_number=part.part_number)


def _deleted(part: Split, end: int) -> SplitFailure:
    error = LogOffsetOutOfRange(
        f"bucket {part.bucket}: its log begins at offset {end} since the round was planned, and a"
        " limit was reached before any batch was read"
    )
    reason = replace(reason_of(error), retryable=True)
    return SplitFailure(part.bucket, reason, part_number=part.part_number)


def _sum(parts: Sequence[SplitResult], end: int) -> SplitResult:
    """One result for consecutive parts."""
    if len(parts) == 1:
        return parts[0]
    seconds: dict[str, float] = {}
    for part in parts:
        for phase, spent_s in part.seconds.items():
            seconds[phase] = seconds.get(phase, 0.0) + spent_s
    return replace(
        parts[0],
        files=tuple(file for part in parts for file in part.files),
        next_offset=end,
        rows=sum(part.rows for part in parts),
        bytes_read=sum(part.bytes_read for part in parts),
        max_timestamp_ms=max(part.max_timestamp_ms for part in parts),
        seconds=seconds,
        limit_reached=parts[-1].limit_reached,
        notes=tuple(note for part in parts for note in part.notes),
    )
