"""Runs one round of tiering: recover, plan, copy, commit. The caller reports its result."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from sluice.clock import Clock, SystemClock
from sluice.errors import (
    ClaimLost,
    FencedTieringEpoch,
    InvalidCoordinator,
    LakeCommitRefused,
    SluiceError,
)
from sluice.iceberg_rules.layout import new_layout
from sluice.iceberg_rules.names_and_types import cautions
from sluice.model import Claim, LakeSnapshotInfo, TableBucket, TableInfo
from sluice.rounds.commit.commit import check_claim, commit_round, move_tag, round_identity
from sluice.rounds.commit.failures import split_failed
from sluice.rounds.commit.files import Lookups, RoundFiles
from sluice.rounds.commit.outcomes import SplitOutcomes, offsets_missing, sort_outcomes
from sluice.rounds.commit.recover import register_unknown, table_missing
from sluice.rounds.copy.parts import NO_PARTS, PartRules
from sluice.rounds.plan.bucket_counts import check_partitions
from sluice.rounds.plan.bucket_repairs import BucketRepairs, accepted_in
from sluice.rounds.plan.dropped import again_if_dropped, existing_table, table_dropped
from sluice.rounds.plan.keyed_options import NO_KEYED_OPTIONS, KeyedRoundOptions
from sluice.rounds.plan.named_lake import lake_place, other_lake_note
from sluice.rounds.plan.plan import RoundPlan, check_options, late_starts, make_plan
from sluice.rounds.records.files import RoundResult
from sluice.rounds.repair.accepted_losses import check_gaps, check_ranges, needs_repair_round
from sluice.rounds.repair.diagnose import offsets_in_lake, read_table_state, retier_plan
from sluice.rounds.repair.diagnosis import RepairAction, TableState
from sluice.rounds.repair.retier import RetierPlan
from sluice.rounds.repair.splits import log_gaps, repaired_splits, retier_splits
from sluice.rounds.round.compaction import RoundCompaction
from sluice.rounds.upkeep.compaction import DEFAULT_COMPACTIONS, NO_COMPACTIONS, CompactionOptions
from sluice.rounds.upkeep.expire import expire_after
from sluice.rounds.values.discard import discard
from sluice.rounds.values.expiry import NOTHING_EXPIRED, Expired, is_expired_after_rounds
from sluice.rounds.values.lake_files import LiveFiles
from sluice.rounds.values.lake_size import lake_size, size_of_main
from sluice.rounds.values.limits import RoundLimits, forced_finish_text, offsets_left
from sluice.rounds.values.note_lists import capped
from sluice.rounds.values.offsets import offsets_for_result
from sluice.rounds.values.phases import Phases
from sluice.rounds.values.ports import Cluster, Lake, LakeTable, RunnerFactory
from sluice.rounds.values.progress import NoProgress, Progress
from sluice.rounds.values.reasons import reason_of
from sluice.rounds.values.types import (
    BUCKET_MODES,
    LakeSnapshot,
    OffsetRange,
    RepairMode,
    Split,
    SplitFailure,
    SplitResult,
)
from sluice.rounds.values.write_ids import new_write_id

_REGISTRATIONS_MAX = 5
"""How many times a round registers the newest tiering snapshot before it fails."""
_REPAIRED_ONLY = "repaired only what was requested: the next round copies the other rows"


def run_round(
    claim: Claim,
    cluster: Cluster,
    lake: Lake,
    make_runner: RunnerFactory,
    *,
    attempt: str,
    clock: Clock | None = None,
    progress: Progress | None = None,
    limits: RoundLimits | None = None,
    repair_mode: RepairMode | None = None,
    unreadable: OffsetRange | None = None,
    accepted: RepairAction | None = None,
    keyed: KeyedRoundOptions = NO_KEYED_OPTIONS,
    parts: PartRules = NO_PARTS,
    compaction: CompactionOptions = DEFAULT_COMPACTIONS,
    expire_snapshots: bool = False,
) -> RoundResult:
    """Runs one round of a table; a lost claim or a dropped table is an outcome, not an error.

    :param attempt: the name of this attempt; file names are unique even if it runs again.
    :param limits: when one is reached, the round commits what it has, and the result names the
        limit (``forced``); None: no limits.
    :param repair_mode: how to repair the lake, if a user requested it.
    :param unreadable: the batch to leave out, or whose bucket to rebuild, if a user named one.
    :param accepted: the repair with the losses and risks that the user saw; None: there were none.
        The round commits nothing if there are others.
    :param keyed: for a table with a primary key: leased KV snapshots, memory and spill folder.
    :param parts: how the windows of log tables are divided into parts.
    :param compaction: which tables are compacted, and how much of them.
    :param expire_snapshots: old lake snapshots expire, whatever options the table has.
    :raises SplitFailed: buckets could not be copied; its detail ``committed`` is the result of what
        was copied, if it was committed.
    :raises SluiceError: why the table could not be tiered; the lake is unchanged, unless it is
        LakeCommitOutcomeUnknown.
    """
    progress = progress or NoProgress()
    clock = clock or SystemClock()
    started_ms = clock.now_ms()
    phases = Phases(clock, progress)
    running = _Round(
        claim,
        cluster,
        lake,
        attempt,
        phases,
        limits,
        started_ms,
        repair_mode,
        unreadable,
        accepted,
        keyed,
        parts,
        RoundCompaction(NO_COMPACTIONS if repair_mode else compaction, started_ms),
        expire_snapshots,
    )
    try:
        return running.run(make_runner, progress)
    except (FencedTieringEpoch, InvalidCoordinator) as fenced:
        return running.result(
            "claim_lost",
            notes=(f"another round of the table was started: {reason_of(fenced).text}",),
        )
    except ClaimLost as lost:
        return running.lost(lost)
    except Exception as error:
        if why := table_dropped(error, cluster, claim):
            return running.result("claim_lost", notes=(why,))
        phases.attach_to(error)
        raise


@dataclass
class _Round:
    """The state of one ``run_round`` call."""

    _claim: Claim
    _cluster: Cluster
    _lake: Lake
    _attempt: str
    _phases: Phases
    _limits: RoundLimits | None
    _started_ms: int
    _repair_mode: RepairMode | None
    _unreadable: OffsetRange | None
    _accepted: RepairAction | None
    _keyed: KeyedRoundOptions
    _parts: PartRules
    _compaction: RoundCompaction
    _expire_snapshots: bool
    _recovered: int | None = None
    _notes: list[str] = field(default_factory=list)
    _repaired_with: RepairMode | None = None
    _planned: tuple[Split, ...] = ()
    """All splits that an ordinary round would copy, from which a repair chooses."""
    _retier: RetierPlan | None = None
    _accepted_before: str = ""
    """What the base records as missing: the round that committed it may not have reported it."""
    _floor: Mapping[TableBucket, int] = field(default_factory=dict)
    _lookups: Lookups | None = None

    def __post_init__(self) -> None:
        if self._repair_mode:  # it must copy at least up to the registered offsets
            self._limits = None

    def run(self, make_runner: RunnerFactory, progress: Progress) -> RoundResult:
        info = self._table_info()
        with self._phases("recover"):
            table, base, registered = self._recover(info)
            self._accepted_before = accepted_in(info.table_id, base)
        # Another attempt of this round may have committed. Newer rows are still copied:
        # epochs start again when tiering is disabled and enabled, so an old round may have the
        # same epoch.
        with self._phases("plan"):
            wanted = self._repair_mode is None
            wanted = wanted and self._compaction.read_request(self._claim, self._cluster, info)
            plan = make_plan(
                info,
                self._cluster,
                base,
                registered,
                self._limits,
                self._started_ms,
                self._keyed,
                also_idle=wanted,
            )
            self._planned = plan.splits
            plan = self._with_newest_schema(self._with_repairs(plan), table)
            self._check_dropped(plan)
            plan, live, notes = self._compaction.plan(plan, table, self._keyed.lookups)
            self._notes += notes
        write_id = self._write_id(table, base)
        self._notes += late_starts(plan)
        outcomes = SplitOutcomes(plan, (), ())
        if splits := self._compaction.splits(plan):
            progress.planned(len(splits), plan.offsets)
            outcomes = self._copy(plan, live, table, make_runner, write_id)
            outcomes = self._compaction.without_idle(outcomes)
        repaired = outcomes.plan.repairs or self._repaired_with is RepairMode.RETIER
        if outcomes.results or repaired:
            result = self._commit(outcomes, table, write_id)
        else:
            result = self._nothing_to_commit(
                outcomes.plan, table, write_id, is_repair=bool(plan.repairs)
            )
        if outcomes.failures:
            raise self._split_failed(plan, outcomes.failures, result, outcomes.results)
        return result

    def _nothing_to_commit(
        self, plan: RoundPlan, table: LakeTable, write_id: str, *, is_repair: bool
    ) -> RoundResult:
        self._notes += plan.not_tiered
        base, registered = plan.base, plan.registered
        mine = base is not None and round_identity(self._claim).items() <= base.summary.items()
        rewrite = self._compaction.commit_before(table, base, write_id)
        try:
            if rewrite is not None and not mine:
                check_claim(self._claim, self._cluster)
                with self._phases("rewrite"):
                    rewrite()
        finally:
            self._compaction.rewrites.discard(table)
        self._notes += self._compaction.rewrites.notes
        if base is not None and mine and self._repaired_with is None:
            return self._already_landed(base, registered)
        left_out = self._left_out(plan, plan.known)
        return self.result(
            "committed" if self._repaired_with else "nothing_new",
            forced=_REPAIRED_ONLY if is_repair and left_out else "",
            offsets=offsets_for_result(plan.known),
            lake_snapshot_id=registered.snapshot_id if registered else None,
            lag_rows_before=plan.offsets,
            lag_rows_after=left_out,
            notes=tuple(self._notes),
            history_notes=plan.not_tiered,
            **size_of_main(table, base, is_changed=rewrite is not None),
            **self._compaction.facts(),
        )

    def _write_id(self, table: LakeTable, base: LakeSnapshot | None) -> str:
        return str(new_write_id(self._claim, self._attempt, table.uuid, base))

    def result(self, outcome: str, **facts: object) -> RoundResult:
        texts = (str(facts.pop("accepted", "")), self._accepted_before)
        return RoundResult.of(
            self._claim,
            outcome,
            recovered_snapshot_id=self._recovered,
            seconds=self._phases.seconds(),
            accepted="; ".join(text for text in texts if text),
            **facts,
        )

    def lost(self, error: ClaimLost) -> RoundResult:
        """The result of a lost claim, with the lake commit before it, if there was one."""
        return self.result(
            "claim_lost",
            lake_snapshot_id=error.details.get("snapshot_id"),
            notes=(reason_of(error).text,),
            repaired_buckets=error.details.get("repaired_buckets", 0),
        )

    def _table_info(self) -> TableInfo:
        claim = self._claim
        info = existing_table(self._cluster, claim.path, claim.table_id)
        check_options(info)
        return info

    def _with_repairs(self, plan: RoundPlan) -> RoundPlan:
        """The plan with the repairs that a user requested."""
        mode = self._repair_mode
        if self._retier is not None:
            splits, repairs = retier_splits(self._retier, plan.info, plan.splits, self._keyed)
            plan = replace(plan, created_again=self._retier.new_partitions)
            return self._repairing(plan, splits, repairs)
        if mode is None or mode not in BUCKET_MODES:
            return plan
        gaps = [] if self._unreadable else log_gaps(plan.info, self._cluster, plan.known)
        if mode is RepairMode.ACCEPT_GAP:
            check_gaps(plan.info.path, gaps, self._accepted)
        elif gaps:  # other buckets may have rows of other writers
            named = {one.bucket for one in (self._accepted.ranges if self._accepted else ())}
            gaps = [gap for gap in gaps if gap.bucket in named]
        splits, repairs = repaired_splits(
            mode, plan.info, gaps, self._unreadable, plan.splits, self._keyed
        )
        return self._repairing(plan, splits, repairs) if repairs else plan

    def _repairing(
        self, plan: RoundPlan, splits: tuple[Split, ...], repairs: BucketRepairs
    ) -> RoundPlan:
        """The plan with these splits alone."""
        if self._accepted is not None:
            repairs = replace(repairs, seen_main=self._accepted.seen_main)
        return replace(plan, splits=splits, repairs=repairs)

    def _with_newest_schema(self, plan: RoundPlan, table: LakeTable) -> RoundPlan:
        """Reads the schema again, after all stop offsets are known.

        Rows below the stop offsets cannot have a newer schema than this one, so no column is lost.
        """
        info = self._table_info()
        if info.schema_id == plan.info.schema_id:
            return plan
        self._notes += table.add_missing_columns(info)
        return replace(plan, info=info)

    def _recover(
        self, info: TableInfo
    ) -> tuple[LakeTable, LakeSnapshot | None, LakeSnapshotInfo | None]:
        """The lake table, its newest tiering snapshot, and what Fluss has registered of it."""
        claim, cluster, repair_mode = self._claim, self._cluster, self._repair_mode
        if repair_mode is not None and repair_mode not in BUCKET_MODES:
            seen = read_table_state(claim.path, cluster, self._lake)
            seen = replace(seen, unreadable=self._unreadable)
            if again_if_dropped(
                info,
                cluster,
                lambda: needs_repair_round(repair_mode, seen, cluster, self._accepted),
            ):
                return self._repair_base(repair_mode, info, seen)
        registered = cluster.lake_snapshot(claim.path)
        if registered is None and (note := other_lake_note(info, self._lake)):
            self._notes.append(note)
        table = self._lake.load(claim.path)
        if table is None:
            if registered is not None:
                raise table_missing(claim.path, registered, lake_place(info, self._lake))
            table = self._create(info)
        self._notes += table.add_missing_columns(info, as_read=True)
        return table, *self._agreed(table, registered, as_read=True)

    def _create(self, info: TableInfo) -> LakeTable:
        """Creates the lake table, with the layout that lake, server or version say."""
        check_partitions(info, self._cluster)
        layout = new_layout(info, self._lake.options, self._cluster.lake_layout)
        self._notes += cautions(info, layout)
        return self._lake.create(info, layout)

    def _agreed(
        self, table: LakeTable, registered: LakeSnapshotInfo | None, *, as_read: bool = False
    ) -> tuple[LakeSnapshot | None, LakeSnapshotInfo | None]:
        """The newest tiering snapshot and what Fluss has registered of it; or None twice.

        After a registration, the registered snapshot is read and compared again. Apache Fluss
        accepts the commit of an older round however late it arrives, and the offsets of that round
        would make this one copy rows twice.

        :param registered: was read before the tiering snapshot, so it cannot be newer.
        :param as_read: the table was loaded after that.
        :raises LakeCommitRefused: Fluss reports another snapshot each time.
        """
        path = self._claim.path
        for number in range(_REGISTRATIONS_MAX):
            ours = table.newest_tiering_snapshot(as_read=as_read and number == 0)
            recovered = register_unknown(self._claim, self._cluster, table, ours, registered)
            if ours is None or recovered is None:
                return ours, registered
            self._recovered = recovered
            self._notes += move_tag(table, ours)
            registered = self._cluster.lake_snapshot(path)
        raise LakeCommitRefused(
            f"table {path}: lake snapshot {self._recovered} was registered with Fluss"
            f" {_REGISTRATIONS_MAX} times, and each time an older round registered another one."
            " Nothing was committed. End the drivers of older rounds"
        )

    def _repair_base(
        self, repair_mode: RepairMode, info: TableInfo, seen: TableState
    ) -> tuple[LakeTable, LakeSnapshot | None, LakeSnapshotInfo | None]:
        """The base and offsets of a repair round, for a lake that is behind Fluss.

        Base and offsets were read together. If another commit follows, the fence refuses this
        round.
        """
        assert seen.registered is not None
        table = self._create(info) if seen.table is None else seen.table
        self._notes += table.add_missing_columns(info)
        self._repaired_with = repair_mode
        if repair_mode is RepairMode.RETIER:
            start = retier_plan(seen, self._cluster, offsets_in_lake(seen)[0] or {})
            check_ranges(info.path, start.lost, self._accepted)  # the logs were read again
            self._retier, self._floor = start, start.minimum_offsets
            self._notes += [
                f"{start.repeated_offsets} offsets that the lake lacked were copied again"
            ]
            return table, seen.ours, replace(seen.registered, offsets=start.start_offsets)
        plan = RoundPlan(info, None, seen.registered, (), 0)
        write_id = self._write_id(table, None)
        commit_round(
            self._claim, self._cluster, table, plan, RoundFiles([]), write_id, self._phases
        )
        self._notes += ["main was accepted as what Fluss had registered"]
        return table, *self._agreed(table, self._cluster.lake_snapshot(info.path))

    def _already_landed(
        self, landed: LakeSnapshot, registered: LakeSnapshotInfo | None
    ) -> RoundResult:
        """:param landed: the snapshot that another attempt of this round committed."""
        return self.result(
            "already_landed",
            offsets=offsets_for_result(registered.offsets if registered else {}),
            lake_snapshot_id=landed.snapshot_id,
            notes=tuple(self._notes),
            accepted=accepted_in(self._claim.table_id, landed),
            **lake_size(landed.summary),
        )

    def _copy(
        self,
        plan: RoundPlan,
        live: LiveFiles | None,
        table: LakeTable,
        make_runner: RunnerFactory,
        write_id: str,
    ) -> SplitOutcomes:
        """Copies all splits. After an error, the files of finished splits are deleted.

        :raises SplitFailed: a split failed, and the others are not to be committed: none of them
            succeeded, or a repair must reach the registered offsets of all buckets.
        """
        arrived: list[SplitResult | SplitFailure] = []
        outcomes: Iterator[SplitResult | SplitFailure] = iter(())
        try:
            with self._phases("copy"):
                rewrites = self._compaction.rewrites
                writers = table.writer_factory(write_id, self._compaction.splits(plan))
                parts = self._parts.divide(plan.splits)
                runner = make_runner(plan.info, writers)
                if live is not None:
                    self._lookups = Lookups(plan.splits, live, self._keyed.lookups, runner)
                outcomes = runner([*parts, *rewrites.splits])
                arrived.extend(outcomes)  # to the end: a failed split does not end the others
                joined = self._parts.join(parts, rewrites.take(arrived))
                found = sort_outcomes(plan, self._cluster, joined.results, joined.failures)
                self._check_dropped(found.plan, {result.bucket for result in found.results})
                if found.failures and (self._repaired_with or not found.results):
                    raise self._split_failed(plan, found.failures)
        except BaseException:  # also an error of the engine, or Ctrl-C: nothing was committed
            if isinstance(outcomes, Generator):
                outcomes.close()  # running splits end before files of others are deleted
            done = [outcome for outcome in arrived if isinstance(outcome, SplitResult)]
            discard(table, [file for result in done for file in result.all_files])
            raise
        if joined.unused:
            self._notes += discard(table, joined.unused)
        return found

    def _left_out(self, plan: RoundPlan, ends: Mapping[TableBucket, int]) -> int:
        """About the number of offsets that a repair left to the next round.

        Those of buckets that failed are included.
        """
        if self._repair_mode not in BUCKET_MODES and self._retier is None:
            return 0
        return offsets_missing(self._planned, ends, plan.partitions)

    def _split_failed(
        self,
        plan: RoundPlan,
        failures: Sequence[SplitFailure],
        committed: RoundResult | None = None,
        results: Sequence[SplitResult] = (),
    ) -> SluiceError:
        batch = self._unreadable
        is_rebuilt = batch is not None and any(
            one.holds(batch.bucket, batch.start) or one == batch for one in plan.repairs.rebuilt
        )
        return split_failed(
            self._claim,
            self._cluster,
            plan.splits,
            failures,
            committed,
            results,
            batch if is_rebuilt else None,
            can_skip=self._retier is None,
        )

    def _check_dropped(self, plan: RoundPlan, copied: Set[TableBucket] = frozenset()) -> None:
        """Checks that the lake lacks nothing of partitions that were dropped during a repair.

        :raises LakeRolledBack: it lacks offsets that the user did not accept as missing.
        """
        check_ranges(plan.info.path, self._lost(plan, copied), self._accepted)

    def _lost(self, plan: RoundPlan, copied: Set[TableBucket]) -> list[OffsetRange]:
        """The registered offsets of dropped partitions that a repair had yet to copy."""
        gone = [
            OffsetRange(bucket, plan.known.get(bucket, 0), offset)
            for bucket, offset in self._dropped(plan).items()
            if bucket not in copied
        ]
        return [one for one in gone if one.start < one.stop]

    def _dropped(self, plan: RoundPlan) -> dict[TableBucket, int]:
        """The registered offsets of dropped partitions that a repair has to reach."""
        return {b: end for b, end in self._floor.items() if b.partition_id not in plan.partitions}

    def _without_dropped(self, plan: RoundPlan, copied: Set[TableBucket]) -> RoundPlan:
        """The plan of a repair, with the registered offsets of partitions that were dropped.

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

    def _commit(self, outcomes: SplitOutcomes, table: LakeTable, write_id: str) -> RoundResult:
        files = self._compaction.files(outcomes, self._lookups)
        plan = self._without_dropped(outcomes.plan, {result.bucket for result in files.results})
        rewrites = self._compaction.rewrites
        try:
            committed = commit_round(
                self._claim,
                self._cluster,
                table,
                plan,
                files,
                write_id,
                self._phases,
                self._floor,
                self._compaction.commit_before(table, plan.base, write_id),
            )
        finally:
            rewrites.discard(table)
        results, deletes = files.results, files.report()
        self._notes += rewrites.notes
        self._notes += [*plan.notes, *plan.not_tiered, *committed.created_again]
        self._notes += committed.notes
        self._notes += capped([note for result in results for note in result.notes])
        if committed.by_earlier_attempt:
            registered = self._cluster.lake_snapshot(self._claim.path)
            return self._already_landed(committed.snapshot, registered)
        expired = self._expired(plan, table, committed.snapshot)
        self._notes += expired.notes
        forced = forced_finish_text(plan.splits, results, self._limits or RoundLimits(), plan.info)
        left_out = self._left_out(plan, committed.offsets)
        if left_out and (plan.repairs or self._retier is not None):
            forced = _REPAIRED_ONLY
        return self.result(
            "committed",
            forced=forced,
            rows=sum(r.rows for r in results),
            deletes=sum(r.deleted.keys for r in results),
            deletes_as=str(deletes),
            lookup_files=deletes.files_read,
            lookup_bytes=deletes.bytes_read,
            lookup_ms=round(deletes.seconds * 1000),
            **self._compaction.facts(files if plan.info.has_primary_key else None),
            bytes_read=sum(r.bytes_read for r in results),
            bytes_written=sum(f.size_bytes for r in results for f in r.files),
            files=sum(len(r.files) for r in results),
            offsets=offsets_for_result(committed.offsets),
            lake_snapshot_id=committed.snapshot.snapshot_id,
            lag_rows_before=plan.offsets,
            lag_rows_after=left_out
            or offsets_left(plan.splits, results) + outcomes.offsets_not_copied,
            notes=tuple(self._notes),
            history_notes=(*plan.not_tiered, *committed.created_again, *expired.notes),
            accepted=committed.accepted,
            repaired_buckets=committed.repaired_buckets,
            snapshots_expired=expired.snapshots,
            files_expired=expired.files,
            **lake_size(committed.snapshot.summary),
            lake_layout=table.layout.value,
        )

    def _expired(self, plan: RoundPlan, table: LakeTable, committed: LakeSnapshot) -> Expired:
        """What expires after this commit; nothing after a repair, whose user may need it."""
        is_wanted = is_expired_after_rounds(plan.info, self._expire_snapshots)
        if self._repair_mode is not None or not is_wanted:
            return NOTHING_EXPIRED
        return expire_after(
            plan.info.path,
            self._cluster,
            table,
            self._phases,
            started_ms=self._started_ms,
            limit_ms=(self._limits or RoundLimits()).round_ms(plan.info),
            base=plan.base.snapshot_id if plan.base else None,
            committed=committed.snapshot_id,
        )
