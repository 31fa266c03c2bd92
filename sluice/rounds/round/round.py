"""Runs one ordinary round: recover, plan, copy, commit. The caller reports its result."""

from __future__ import annotations

from dataclasses import replace

from sluice.errors import SluiceError
from sluice.model import Claim, TableInfo
from sluice.rounds.commit.base import Base, base_of
from sluice.rounds.commit.commit import check_claim, commit_round
from sluice.rounds.commit.copying import Copied, copy_splits
from sluice.rounds.commit.failures import split_failed
from sluice.rounds.commit.options import DEFAULT_OPTIONS, RoundOptions
from sluice.rounds.commit.outcomes import SplitOutcomes
from sluice.rounds.commit.report import (
    already_landed,
    committed_earlier,
    committed_result,
    ended,
    note_commit,
    nothing_committed,
)
from sluice.rounds.commit.summary import is_of_round
from sluice.rounds.plan.bucket_repairs import accepted_in
from sluice.rounds.plan.plan import (
    RoundPlan,
    claimed_table,
    late_starts,
    make_plan,
    with_newest_schema,
)
from sluice.rounds.records.result import RoundResult
from sluice.rounds.round.compaction import RoundCompaction
from sluice.rounds.upkeep.expire import expire_after
from sluice.rounds.values.attempt import Attempt, RoundPorts
from sluice.rounds.values.expiry import NOTHING_EXPIRED, Expired, is_expired_after_rounds
from sluice.rounds.values.lake_files import LiveFiles
from sluice.rounds.values.limits import RoundLimits, forced_finish_text, offsets_left
from sluice.rounds.values.ports import LakeTable
from sluice.rounds.values.progress import Progress
from sluice.rounds.values.types import LakeSnapshot


def run_round(
    claim: Claim,
    ports: RoundPorts,
    attempt: str,
    options: RoundOptions = DEFAULT_OPTIONS,
    progress: Progress | None = None,
) -> RoundResult:
    """Runs one round of a table; a lost claim or a dropped table is an outcome, not an error.

    :param attempt: the name of this attempt; file names are unique even if it runs again.
    :raises SplitFailed: buckets could not be copied; its detail ``committed`` is the result of what
        was copied, if it was committed.
    :raises SluiceError: why the table could not be tiered; the lake is unchanged, unless it is
        LakeCommitOutcomeUnknown.
    """
    running = _Round(Attempt.begun(claim, ports, attempt, progress), options)
    return ended(running.attempt, running.run)


class _Round:
    """The steps of one round, in their order."""

    def __init__(self, attempt: Attempt, options: RoundOptions) -> None:
        self.attempt, self._options = attempt, options
        self._compaction = RoundCompaction(options.compaction, attempt.started_ms)

    def run(self) -> RoundResult:
        info = claimed_table(self.attempt)
        base = self._recover(info)
        plan, live = self._plan(info, base)
        write_id = self.attempt.write_id(base.table, base.snapshot)
        copied = self._copy(plan, live, base.table, write_id)
        if copied.outcomes.results:
            result = self._commit(copied, base.table, write_id)
        else:
            result = self._nothing_to_commit(copied.outcomes.plan, base.table, write_id)
        if copied.outcomes.failures:  # what was copied of other buckets is committed
            raise self._split_failed(plan, copied.outcomes, result)
        return result

    def _recover(self, info: TableInfo) -> Base:
        with self.attempt.phases("recover"):
            base = base_of(self.attempt, info)
            self.attempt.accepted_before = accepted_in(info.table_id, base.snapshot)
            return base

    def _plan(self, info: TableInfo, base: Base) -> tuple[RoundPlan, LiveFiles | None]:
        """The plan, and the files in which deleted rows are looked up.

        Another attempt of this round may have committed. Newer rows are still copied: epochs start
        again when tiering is disabled and enabled, so an old round may have the same epoch.
        """
        attempt, options = self.attempt, self._options
        with attempt.phases("plan"):
            wanted = self._compaction.read_request(attempt.claim, attempt.cluster, info)
            plan = make_plan(
                info,
                attempt.cluster,
                base.snapshot,
                base.registered,
                options.limits,
                attempt.started_ms,
                options.keyed,
                also_idle=wanted,
            )
            plan = with_newest_schema(attempt, plan, base.table)
            plan, live, notes = self._compaction.plan(plan, base.table, options.keyed.lookups)
        attempt.notes += [*notes, *late_starts(plan)]
        return plan, live

    def _copy(
        self, plan: RoundPlan, live: LiveFiles | None, table: LakeTable, write_id: str
    ) -> Copied:
        def judge(found: SplitOutcomes) -> None:
            if found.failures and not found.results:
                raise self._split_failed(plan, found)

        rewrites = self._compaction.rewrites
        copied = copy_splits(
            self.attempt, plan, table, write_id, self._options, judge, live, rewrites
        )
        return replace(copied, outcomes=self._compaction.without_idle(copied.outcomes))

    def _commit(self, copied: Copied, table: LakeTable, write_id: str) -> RoundResult:
        attempt, plan = self.attempt, copied.outcomes.plan
        files = self._compaction.files(copied.outcomes, copied.lookups)
        rewrite = self._compaction.commit_before(table, plan.base, write_id)
        try:
            committed = commit_round(attempt, table, plan, files, write_id, rewrite=rewrite)
        finally:
            self._compaction.rewrites.discard(table)
        attempt.notes += self._compaction.rewrites.notes
        note_commit(attempt, plan, files, committed)
        if committed.by_earlier_attempt:
            return committed_earlier(attempt, committed)
        expired = self._expire(plan, table, committed.snapshot)
        attempt.notes += expired.notes
        limits = self._options.limits or RoundLimits()
        facts = {
            "forced": forced_finish_text(plan.splits, files.results, limits, plan.info),
            "snapshots_expired": expired.snapshots,
            "files_expired": expired.files,
            **self._compaction.facts(files if plan.info.has_primary_key else None),
        }
        left = offsets_left(plan.splits, files.results) + copied.outcomes.offsets_not_copied
        return committed_result(
            attempt, plan, table, files, committed, facts, left=left, expired_notes=expired.notes
        )

    def _nothing_to_commit(self, plan: RoundPlan, table: LakeTable, write_id: str) -> RoundResult:
        """The result of a round without new offsets. It may have compacted files of a log table."""
        attempt, base = self.attempt, plan.base
        attempt.notes += plan.not_tiered
        mine = is_of_round(attempt.claim, base)
        rewrite = self._compaction.commit_before(table, base, write_id)
        try:
            if rewrite is not None and not mine:
                check_claim(attempt.claim, attempt.cluster)
                with attempt.phases("rewrite"):
                    rewrite()
        finally:
            self._compaction.rewrites.discard(table)
        attempt.notes += self._compaction.rewrites.notes
        if base is not None and mine:
            return already_landed(attempt, base, plan.registered)
        facts = self._compaction.facts()
        return nothing_committed(
            attempt, plan, table, facts=facts, is_rewritten=rewrite is not None
        )

    def _expire(self, plan: RoundPlan, table: LakeTable, committed: LakeSnapshot) -> Expired:
        """Expires old lake snapshots, if the table or the settings say so."""
        attempt, options = self.attempt, self._options
        if not is_expired_after_rounds(plan.info, options.expire_snapshots):
            return NOTHING_EXPIRED
        return expire_after(
            plan.info.path,
            attempt.cluster,
            table,
            attempt.phases,
            started_ms=attempt.started_ms,
            limit_ms=(options.limits or RoundLimits()).round_ms(plan.info),
            base=plan.base.snapshot_id if plan.base else None,
            committed=committed.snapshot_id,
        )

    def _split_failed(
        self, plan: RoundPlan, outcomes: SplitOutcomes, committed: RoundResult | None = None
    ) -> SluiceError:
        results = outcomes.results if committed is not None else ()
        return split_failed(
            self.attempt.claim,
            self.attempt.cluster,
            plan.splits,
            outcomes.failures,
            committed,
            results,
        )
