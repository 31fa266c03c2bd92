"""What one round compacts: by the options of its table, or because that was requested."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sluice.errors import SluiceError
from sluice.model import Claim, TableBucket, TableInfo
from sluice.rounds.commit.files import Lookups, RoundFiles
from sluice.rounds.commit.outcomes import SplitOutcomes
from sluice.rounds.plan.plan import RoundPlan
from sluice.rounds.plan.position_lookups import planned_lookups
from sluice.rounds.upkeep.compacted import CompactionReport
from sluice.rounds.upkeep.compaction import (
    NO_COMPACTIONS,
    NOTHING_CHOSEN,
    Choice,
    CompactionOptions,
    with_compactions,
)
from sluice.rounds.upkeep.requested import NO_REQUEST, CompactionRequest
from sluice.rounds.upkeep.rewrites import Rewrites
from sluice.rounds.values.lake_files import LiveFiles, WrittenCompaction
from sluice.rounds.values.limits import LookupBudget
from sluice.rounds.values.note_lists import first_of
from sluice.rounds.values.ports import Cluster, LakeTable
from sluice.rounds.values.reasons import reason_of
from sluice.rounds.values.types import LakeSnapshot, Split

NOTHING_TO_DO = (
    "the requested compaction rewrote nothing: no bucket has two data files that are not full, as"
    " tiering.compaction_bytes says"
)


@dataclass(frozen=True, slots=True)
class PlannedLookups:
    """The splits of a round, with look-ups and compactions, and what these are planned from."""

    splits: tuple[Split, ...]
    live: LiveFiles | None = None
    """None: no split needs a look-up or compacts files."""
    choice: Choice = NOTHING_CHOSEN
    """What is compacted."""


class RoundCompaction:
    """The compaction of one round. Used by the round's thread."""

    def __init__(self, options: CompactionOptions, started_ms: int) -> None:
        """:param started_ms: the round's start, epoch milliseconds."""
        self._options, self._started_ms = options, started_ms
        self._request = NO_REQUEST
        self.rewrites = Rewrites()
        self._left = 0  # buckets that are worth it, but beyond the budget, or have failed
        self._beyond: Mapping[TableBucket, str] = {}  # why no round can compact these buckets
        self._not_compacted: Sequence[WrittenCompaction] = ()
        self._not_done: Sequence[str] = ()  # of what was requested

    def read_request(self, claim: Claim, cluster: Cluster, info: TableInfo) -> bool:
        """Returns whether buckets without new rows count, too, because that was requested."""
        self._request = CompactionRequest.read(claim, cluster, info, self._started_ms)
        return self._request.is_open and self._options.bytes_max > 0

    def plan(
        self, plan: RoundPlan, table: LakeTable, lookups: LookupBudget
    ) -> tuple[RoundPlan, LiveFiles | None, list[str]]:
        """The plan with what its splits look up and rewrite, from which files, and notes.

        If the files of all buckets cannot be listed, only those with new rows are compacted.

        :raises LakeNotWritable: the lake's metadata cannot be read.
        """
        options, notes = self._request.options(self._options, plan.info), list[str]()
        active = [one for one in plan.splits if not one.is_idle]
        try:
            planned = self._planned(plan, plan.splits, table, lookups, options)
            why = _unusable(planned, active) if len(active) < len(plan.splits) else ""
        except SluiceError as error:
            if len(active) == len(plan.splits):
                raise
            why = reason_of(error).text
        if why:
            notes.append(f"only buckets with new rows are compacted: {why}")
            planned = self._planned(plan, active, table, lookups, options)
            self._left += 1
        live = planned.live or self.rewrites.live
        self._not_done = self._request.not_done(options, live, self._beyond)
        notes += self._request.notes
        kept = [one for one in planned.splits if not one.is_idle or one.compaction is not None]
        return replace(plan, splits=tuple(kept)), planned.live, notes

    def _planned(
        self,
        plan: RoundPlan,
        splits: Sequence[Split],
        table: LakeTable,
        lookups: LookupBudget,
        options: CompactionOptions,
    ) -> PlannedLookups:
        planned = plan_lookups(table, splits, lookups, options)
        self._left, self._beyond = planned.choice.left, planned.choice.beyond
        if not plan.info.has_primary_key:
            # rows that the lake has in the others are of dropped partitions, and will be deleted
            kept = [s for s in splits if s.bucket.partition_id not in plan.created_again]
            self.rewrites = Rewrites.planned(table, kept, options)
            choice = self.rewrites.choice
            self._left, self._beyond = choice.left, choice.beyond
        return planned

    def without_idle(self, outcomes: SplitOutcomes) -> SplitOutcomes:
        """The outcomes without buckets that have no new rows, and of which nothing was rewritten.

        A commit of nothing else would be an empty snapshot.
        """
        splits, failed = outcomes.plan.splits, {one.bucket for one in outcomes.failures}
        self._left += sum(s.bucket in failed and s.compaction is not None for s in splits)
        idle = {split.bucket for split in splits if split.is_idle}
        empty = [r for r in outcomes.results if r.bucket in idle and not r.compacted.removed]
        self._not_compacted = [one.compacted for one in empty]
        gone = {one.bucket for one in empty}
        kept = [one for one in outcomes.results if one.bucket not in gone]
        return replace(outcomes, results=kept)

    def files(self, outcomes: SplitOutcomes, lookups: Lookups | None) -> RoundFiles:
        """The files of the round's commit."""
        return RoundFiles(outcomes.results, lookups, self._not_compacted)

    def commit_before(
        self, table: LakeTable, base: LakeSnapshot | None, write_id: str
    ) -> Callable[[], None] | None:
        """Commits rewritten files of a log table; None: there are none."""
        if not self.rewrites.is_done:
            return None
        return partial(self.rewrites.commit, table, base, write_id)

    def facts(self, files: RoundFiles | None = None) -> dict[str, Any]:
        """The fields of the round's result, with the request that it has completed.

        :param files: what was committed of a primary-key table; None: nothing, or a log table.
        """
        report = self.rewrites.report
        if files is not None:
            report = files.compacted
        elif self._not_compacted:
            report = CompactionReport.of(self._not_compacted)
        done_ms = self._request.completed_ms(report, self._left)
        said = "; ".join(filter(None, [str(report), first_of(self._not_done, "; ", limit=3)]))
        if done_ms is not None and not said:
            said = NOTHING_TO_DO
        return {**report.facts(), "compacted": said, "compaction_request_ms": done_ms}


def _unusable(planned: PlannedLookups, splits: Sequence[Split]) -> str:
    """Why rows of these splits' buckets cannot be deleted by position; empty: they can."""
    found = planned.live.buckets if planned.live is not None else {}
    whys = (found[one.bucket].unusable for one in splits if one.bucket in found)
    return next(filter(None, whys), "")


def plan_lookups(
    table: LakeTable,
    splits: Sequence[Split],
    budget: LookupBudget,
    compaction: CompactionOptions = NO_COMPACTIONS,
) -> PlannedLookups:
    """Gives each split that may delete rows the live files of its bucket and a part of the budget.

    The same files may be compacted.

    :raises LakeNotWritable: the lake's metadata cannot be read.
    """
    compacts = compaction.bytes_max > 0
    looking, live = planned_lookups(table, splits, budget, also_compacts=compacts)
    if live is None or not compacts:
        return PlannedLookups(looking, live)
    chosen, choice = with_compactions(looking, live, compaction)
    return PlannedLookups(tuple(chosen), live, choice)
