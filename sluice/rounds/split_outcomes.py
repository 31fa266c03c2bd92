"""What a round does with the outcomes of its splits.

The results of healthy buckets are always committed. Failures of dropped partitions become notes,
because no later round could copy those rows. Every other failure fails the round, after the commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sluice.errors import ClaimLost, SplitFailed
from sluice.model import TablePath
from sluice.rounds.dropped import dropped_of
from sluice.rounds.files import RoundResult
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
            raise split_failed(plan.info.path, [failure])
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


def split_failed(
    path: TablePath,
    failures: Sequence[SplitFailure],
    committed: RoundResult | None = None,
    others: int = 0,
) -> SplitFailed:
    """The error of a round with failed splits; it names one that no retry repairs, if any.

    :param committed: what the round has committed of the other buckets. :param others: their
        number.
    """
    shown = next((failure for failure in failures if not failure.reason.retryable), failures[0])
    words = f"bucket {shown.bucket} of table {path}"
    if len(failures) > 1:
        words += f" and {_buckets(len(failures) - 1)}"
    if committed is not None:
        words += f" failed, {_buckets(others)} {'was' if others == 1 else 'were'} committed"
    elif len(failures) > 1:
        words += " failed"
    reason = shown.reason.caused(SplitFailed.__name__, words)
    reason = replace(reason, retryable=any(failure.reason.retryable for failure in failures))
    return SplitFailed(reason.text, reason=reason, committed=committed)


def _buckets(number: int) -> str:
    return f"{number} other bucket{'' if number == 1 else 's'}"
