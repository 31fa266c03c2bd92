"""Runs a round that repairs its table, over the same steps as an ordinary one (docs/repair.md).

It has no limits, and compacts and expires nothing: its user may need what is there. All repairs but
``adopt`` copy no more than the repair needs. Where the table needs no repair any more, the round
copies what is new.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace

from sluice.errors import SluiceError
from sluice.model import Claim, LakeSnapshotInfo, TableBucket, TableInfo
from sluice.rounds.commit.base import Base, agreed, base_of, created
from sluice.rounds.commit.commit import commit_round
from sluice.rounds.commit.copying import Copied, copy_splits
from sluice.rounds.commit.failures import split_failed
from sluice.rounds.commit.files import RoundFiles
from sluice.rounds.commit.options import DEFAULT_OPTIONS, RoundOptions
from sluice.rounds.commit.outcomes import SplitOutcomes, offsets_missing
from sluice.rounds.commit.report import (
    already_landed,
    committed_earlier,
    committed_result,
    ended,
    note_commit,
    nothing_committed,
)
from sluice.rounds.commit.summary import is_of_round
from sluice.rounds.plan.bucket_repairs import BucketRepairs, accepted_in
from sluice.rounds.plan.dropped import again_if_dropped
from sluice.rounds.plan.plan import (
    RoundPlan,
    claimed_table,
    late_starts,
    make_plan,
    with_newest_schema,
)
from sluice.rounds.plan.position_lookups import planned_lookups
from sluice.rounds.records.result import RoundResult
from sluice.rounds.repair.accepted_losses import check_gaps, check_ranges, needs_repair_round
from sluice.rounds.repair.diagnose import offsets_in_lake, read_table_state, retier_plan
from sluice.rounds.repair.diagnosis import TableState
from sluice.rounds.repair.request import RepairRequest
from sluice.rounds.repair.retier import RetierPlan
from sluice.rounds.repair.splits import log_gaps, repaired_splits, retier_splits
from sluice.rounds.values.attempt import Attempt, RoundPorts
from sluice.rounds.values.lake_files import LiveFiles
from sluice.rounds.values.limits import offsets_left
from sluice.rounds.values.ports import LakeTable
from sluice.rounds.values.progress import Progress
from sluice.rounds.values.types import BUCKET_MODES, OffsetRange, RepairMode, Split

_REPAIRED_ONLY = "repaired only what was requested: the next round copies the other rows"


def run_repair(
    claim: Claim,
    ports: RoundPorts,
    attempt: str,
    request: RepairRequest,
    options: RoundOptions = DEFAULT_OPTIONS,
    progress: Progress | None = None,
) -> RoundResult:
    """Runs the round that repairs a table as its user chose.

    A lost claim or a dropped table is an outcome, not an error.

    :param attempt: the name of this attempt; file names are unique even if it runs again.
    :param options: limits, compaction and expiry are ignored: the round copies at least up to the
        registered offsets.
    :raises SplitFailed: buckets could not be copied; its detail ``committed`` is the result of what
        was copied, if it was committed.
    :raises LakeRolledBack: the repair would lose what its user has not accepted.
    :raises SluiceError: why the table could not be repaired; the lake is unchanged, unless it is
        LakeCommitOutcomeUnknown, or the copy after ``adopt`` failed.
    """
    running = _Repair(Attempt.begun(claim, ports, attempt, progress), request, options)
    return ended(running.attempt, running.run)


@dataclass(slots=True)
class _Repair:
    """The steps of one repair, in their order."""

    attempt: Attempt
    _request: RepairRequest
    _options: RoundOptions
    _retier: RetierPlan | None = None
    """From where the table is tiered again; None: not by this repair."""
    _is_lake_behind: bool = False
    """Whether the lake was behind Fluss when the repair began: then all buckets are copied, or
    none."""
    _splits: tuple[Split, ...] = field(default=())
    """All splits that an ordinary round would copy, from which the repair chooses."""

    def run(self) -> RoundResult:
        info = claimed_table(self.attempt)
        base = self._recover(info)
        plan, live = self._plan(info, base)
        write_id = self.attempt.write_id(base.table, base.snapshot)
        copied = copy_splits(
            self.attempt, plan, base.table, write_id, self._options, self._judge(plan), live
        )
        outcomes = copied.outcomes
        if outcomes.results or outcomes.plan.repairs or self._retier is not None:
            result = self._commit(copied, base.table, write_id)
        else:
            result = self._nothing_to_commit(outcomes.plan, base.table, bool(plan.repairs))
        if outcomes.failures:
            raise self._split_failed(plan, outcomes, result)
        return result

    def _recover(self, info: TableInfo) -> Base:
        with self.attempt.phases("recover"):
            base = self._base(info)
            self.attempt.accepted_before = accepted_in(info.table_id, base.snapshot)
            return base

    def _base(self, info: TableInfo) -> Base:
        """The base: as it is, or as the repair makes it where the lake is behind Fluss."""
        mode, accepted = self._request.mode, self._request.accepted
        if mode in BUCKET_MODES:
            return base_of(self.attempt, info)
        cluster = self.attempt.cluster
        state = read_table_state(info.path, cluster, self.attempt.ports.lake)
        seen = replace(state, unreadable=self._request.unreadable)
        if not again_if_dropped(
            info, cluster, lambda: needs_repair_round(mode, seen, cluster, accepted)
        ):
            return base_of(self.attempt, info)
        self._is_lake_behind = True
        # base and offsets were read together: if another commit follows, the fence refuses this one
        table = created(self.attempt, info) if seen.table is None else seen.table
        self.attempt.notes += table.add_missing_columns(info)
        if mode is RepairMode.RETIER:
            return self._tier_again(info, seen, table)
        return self._adopt(info, seen.registered, table)

    def _tier_again(self, info: TableInfo, seen: TableState, table: LakeTable) -> Base:
        assert seen.registered is not None
        start = retier_plan(seen, self.attempt.cluster, offsets_in_lake(seen)[0] or {})
        check_ranges(info.path, start.lost, self._request.accepted)  # the logs were read again
        self._retier = start
        self.attempt.notes += [
            f"{start.repeated_offsets} offsets that the lake lacked were copied again"
        ]
        return Base(table, seen.ours, replace(seen.registered, offsets=start.start_offsets))

    def _adopt(
        self, info: TableInfo, registered: LakeSnapshotInfo | None, table: LakeTable
    ) -> Base:
        """Commits a tiering snapshot with the registered offsets on top of main."""
        plan = RoundPlan(info, None, registered, (), 0)
        write_id = self.attempt.write_id(table, None)
        commit_round(self.attempt, table, plan, RoundFiles([]), write_id)
        self.attempt.notes += ["main was accepted as what Fluss had registered"]
        return agreed(self.attempt, table, self.attempt.cluster.lake_snapshot(info.path))

    def _plan(self, info: TableInfo, base: Base) -> tuple[RoundPlan, LiveFiles | None]:
        """The plan, and the files in which deleted rows are looked up."""
        attempt, keyed = self.attempt, self._options.keyed
        with attempt.phases("plan"):
            plan = make_plan(
                info,
                attempt.cluster,
                base.snapshot,
                base.registered,
                now_ms=attempt.started_ms,
                keyed=keyed,
            )
            self._splits = plan.splits
            plan = with_newest_schema(attempt, self._with_repairs(plan), base.table)
            self._check_dropped(plan)
            splits, live = planned_lookups(base.table, plan.splits, keyed.lookups)
            plan = replace(plan, splits=splits)
        attempt.notes += late_starts(plan)
        return plan, live

    def _with_repairs(self, plan: RoundPlan) -> RoundPlan:
        """The plan with the repair that the user requested."""
        request, keyed = self._request, self._options.keyed
        if self._retier is not None:
            splits, repairs = retier_splits(self._retier, plan.info, plan.splits, keyed)
            plan = replace(plan, created_again=self._retier.new_partitions)
            return self._repairing(plan, splits, repairs)
        if request.mode not in BUCKET_MODES:
            return plan
        cluster = self.attempt.cluster
        gaps = [] if request.unreadable else log_gaps(plan.info, cluster, plan.known)
        if request.mode is RepairMode.ACCEPT_GAP:
            check_gaps(plan.info.path, gaps, request.accepted)
        elif gaps:  # other buckets may have rows of other writers
            named = {one.bucket for one in (request.accepted.ranges if request.accepted else ())}
            gaps = [gap for gap in gaps if gap.bucket in named]
        splits, repairs = repaired_splits(
            request.mode, plan.info, gaps, request.unreadable, plan.splits, keyed
        )
        return self._repairing(plan, splits, repairs) if repairs else plan

    def _repairing(
        self, plan: RoundPlan, splits: tuple[Split, ...], repairs: BucketRepairs
    ) -> RoundPlan:
        """The plan with these splits alone."""
        if self._request.accepted is not None:
            repairs = replace(repairs, seen_main=self._request.accepted.seen_main)
        return replace(plan, splits=splits, repairs=repairs)

    def _judge(self, plan: RoundPlan) -> Callable[[SplitOutcomes], None]:
        def judge(found: SplitOutcomes) -> None:
            self._check_dropped(found.plan, {result.bucket for result in found.results})
            if found.failures and (self._is_lake_behind or not found.results):
                raise self._split_failed(plan, found)

        return judge

    def _commit(self, copied: Copied, table: LakeTable, write_id: str) -> RoundResult:
        attempt, outcomes = self.attempt, copied.outcomes
        files = RoundFiles(outcomes.results, copied.lookups)
        plan = self._without_dropped(outcomes.plan, {result.bucket for result in files.results})
        floor = self._retier.minimum_offsets if self._retier else {}
        committed = commit_round(attempt, table, plan, files, write_id, floor)
        note_commit(attempt, plan, files, committed)
        if committed.by_earlier_attempt:
            return committed_earlier(attempt, committed)
        left_out = self._left_out(plan, committed.offsets)
        is_repair = bool(plan.repairs) or self._retier is not None
        facts = {"forced": _REPAIRED_ONLY if left_out and is_repair else ""}
        left = left_out or offsets_left(plan.splits, files.results) + outcomes.offsets_not_copied
        return committed_result(attempt, plan, table, files, committed, facts, left=left)

    def _nothing_to_commit(self, plan: RoundPlan, table: LakeTable, is_repair: bool) -> RoundResult:
        self.attempt.notes += plan.not_tiered
        mine = is_of_round(self.attempt.claim, plan.base)
        if plan.base is not None and mine and not self._is_lake_behind:
            return already_landed(self.attempt, plan.base, plan.registered)
        left_out = self._left_out(plan, plan.known)
        facts = {"forced": _REPAIRED_ONLY if is_repair and left_out else ""}
        outcome = "committed" if self._is_lake_behind else "nothing_new"
        return nothing_committed(self.attempt, plan, table, outcome, facts, left_out=left_out)

    def _left_out(self, plan: RoundPlan, ends: Mapping[TableBucket, int]) -> int:
        """About the number of offsets that the repair left to the next round.

        Those of buckets that failed are included.
        """
        if self._request.mode not in BUCKET_MODES and self._retier is None:
            return 0
        return offsets_missing(self._splits, ends, plan.partitions)

    def _split_failed(
        self, plan: RoundPlan, outcomes: SplitOutcomes, committed: RoundResult | None = None
    ) -> SluiceError:
        batch = self._request.unreadable
        is_rebuilt = batch is not None and any(
            one.holds(batch.bucket, batch.start) or one == batch for one in plan.repairs.rebuilt
        )
        return split_failed(
            self.attempt.claim,
            self.attempt.cluster,
            plan.splits,
            outcomes.failures,
            committed,
            outcomes.results if committed is not None else (),
            batch if is_rebuilt else None,
            can_skip=self._retier is None,
        )

    def _check_dropped(self, plan: RoundPlan, copied: Set[TableBucket] = frozenset()) -> None:
        """Checks that the lake lacks nothing of partitions that were dropped during the repair.

        :raises LakeRolledBack: it lacks offsets that the user did not accept as missing.
        """
        check_ranges(plan.info.path, self._lost(plan, copied), self._request.accepted)

    def _lost(self, plan: RoundPlan, copied: Set[TableBucket]) -> list[OffsetRange]:
        """The registered offsets of dropped partitions that the repair had yet to copy."""
        gone = [
            OffsetRange(bucket, plan.known.get(bucket, 0), offset)
            for bucket, offset in self._dropped(plan).items()
            if bucket not in copied
        ]
        return [one for one in gone if one.start < one.stop]

    def _dropped(self, plan: RoundPlan) -> dict[TableBucket, int]:
        """The registered offsets of dropped partitions that the repair has to reach."""
        floor = self._retier.minimum_offsets if self._retier else {}
        return {b: end for b, end in floor.items() if b.partition_id not in plan.partitions}

    def _without_dropped(self, plan: RoundPlan, copied: Set[TableBucket]) -> RoundPlan:
        """The plan with the registered offsets of partitions that were dropped.

        A repair starts below them, but those rows no longer exist, and offsets never go back. The
        gaps name all rows that the lake lacks.
        """
        gone = self._dropped(plan)
        if not gone:
            return plan
        assert plan.registered is not None
        known = {b: max(offset, plan.known.get(b, 0)) for b, offset in gone.items()}
        registered = replace(plan.registered, offsets={**plan.known, **known})
        repairs = plan.repairs.with_gaps(self._lost(plan, copied))
        return replace(plan, registered=registered, repairs=repairs)
