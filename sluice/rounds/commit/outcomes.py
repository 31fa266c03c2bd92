"""What a round does with the outcomes of its splits.

The results of healthy buckets are always committed. Failures of dropped partitions become notes,
because no later round could copy those rows. Every other failure fails the round, after the commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from sluice.errors import ClaimLost, FlussError, SplitFailed
from sluice.model import TableBucket
from sluice.rounds.plan.dropped import dropped_of, is_unanswered
from sluice.rounds.plan.plan import RoundPlan
from sluice.rounds.values.ports import Cluster
from sluice.rounds.values.types import Split, SplitFailure, SplitResult, StartMode


@dataclass(frozen=True, slots=True)
class SplitOutcomes:
    """The outcomes of all splits of a plan."""

    plan: RoundPlan
    """Without splits that failed because their partition was dropped."""
    results: Sequence[SplitResult]
    failures: Sequence[SplitFailure]
    """In the order of the plan."""

    @property
    def offsets_not_copied(self) -> int:
        """About the number of offsets of the splits that failed."""
        failed = {failure.bucket for failure in self.failures}
        ends = {result.bucket: result.next_offset for result in self.results}
        return sum(_rest(s, ends).weight for s in self.plan.splits if s.bucket in failed)


def sort_outcomes(
    plan: RoundPlan,
    cluster: Cluster,
    results: Sequence[SplitResult],
    failures: Sequence[SplitFailure],
) -> SplitOutcomes:
    """Sorts the outcomes, and asks the coordinator about the partitions of failed splits.

    If the coordinator does not answer, there are no results: the table may have been dropped.

    :param results: at most one for each bucket. A failed bucket has one if the first part of its
        window was copied.
    :raises ClaimLost: the table was dropped.
    :raises SplitFailed: a split was cancelled.
    """
    failed = {failure.bucket: failure for failure in failures}
    ends = {result.bucket: result.next_offset for result in results}
    for failure in failures:
        if failure.reason.kind == ClaimLost.__name__:  # the round was cancelled
            words = f"bucket {failure.bucket} of table {plan.info.path}"
            reason = failure.reason.caused(SplitFailed.__name__, words)
            raise SplitFailed(reason.text, reason=reason)
    if failed:
        try:
            dropped = dropped_of({b.partition_id for b in failed}, plan.info, cluster)
        except FlussError as error:
            if not is_unanswered(error):
                raise
            return SplitOutcomes(plan, (), failures)  # the errors of the splits say more
        left = [_rest(split, ends) for split in plan.splits if split.bucket in failed]
        plan = plan.without_dropped(left, dropped)
    failures = [failed[split.bucket] for split in plan.splits if split.bucket in failed]
    return SplitOutcomes(plan, results, failures)


def offsets_missing(
    splits: Sequence[Split], ends: Mapping[TableBucket, int], partitions: Set[int | None]
) -> int:
    """About the number of offsets that the lake lacks of splits in existing partitions.

    :param ends: end offset of each bucket in the lake.
    """
    left = [split for split in splits if ends.get(split.bucket, -1) < split.stop_offset]
    return sum(_rest(one, ends).weight for one in left if one.bucket.partition_id in partitions)


def _rest(split: Split, ends: Mapping[TableBucket, int]) -> Split:
    """The offsets of a split that were not copied. Behind what was copied they are in the log."""
    if split.bucket not in ends:
        return split
    keyed = split.keyed and replace(split.keyed, start_mode=StartMode.INCREMENTAL)
    return replace(split, start_offset=ends[split.bucket], keyed=keyed)
