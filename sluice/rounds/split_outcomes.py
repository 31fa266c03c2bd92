"""What a round does with the outcomes of its splits.

The results of healthy buckets are always committed. Failures of dropped partitions become notes,
because no later round could copy those rows. Every other failure fails the round, after the commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sluice.errors import ClaimLost, SplitFailed
from sluice.rounds.dropped import dropped_of
from sluice.rounds.plan import RoundPlan
from sluice.rounds.ports import Cluster
from sluice.rounds.types import SplitFailure, SplitResult


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
        return sum(split.weight for split in self.plan.splits if split.bucket in failed)


def sort_outcomes(
    plan: RoundPlan, cluster: Cluster, outcomes: Sequence[SplitResult | SplitFailure]
) -> SplitOutcomes:
    """Sorts the outcomes, and asks the coordinator about the partitions of failed splits.

    :raises ClaimLost: the table was dropped.
    :raises SplitFailed: a split was cancelled, or has no outcome.
    """
    failed = {o.bucket: o for o in outcomes if isinstance(o, SplitFailure)}
    results = {o.bucket: o for o in outcomes if isinstance(o, SplitResult)}
    for failure in failed.values():
        if failure.reason.kind == ClaimLost.__name__:  # the round was cancelled
            words = f"bucket {failure.bucket} of table {plan.info.path}"
            reason = failure.reason.caused(SplitFailed.__name__, words)
            raise SplitFailed(reason.text, reason=reason)
    buckets = {split.bucket for split in plan.splits}
    if failed.keys() | results.keys() != buckets or len(outcomes) != len(buckets):
        raise SplitFailed(
            f"table {plan.info.path}: {len(plan.splits)} splits were planned, but"
            f" {len(outcomes)} returned a result"
        )
    if failed:
        dropped = dropped_of({b.partition_id for b in failed}, plan.info, cluster)
        plan = plan.without_dropped([s for s in plan.splits if s.bucket in failed], dropped)
    # A partition without a result is not in the offsets of this commit.
    begun = {split.partition_values for split in plan.splits if split.bucket in results}
    created = tuple(values for values in plan.created_again if values in begun)
    failures = [failed[split.bucket] for split in plan.splits if split.bucket in failed]
    return SplitOutcomes(replace(plan, created_again=created), list(results.values()), failures)
