"""Runs one round of tiering: recover, plan, copy, commit. The caller reports its result."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace

from sluice.clock import Clock, SystemClock
from sluice.errors import (
    ClaimLost,
    FencedTieringEpoch,
    InvalidCoordinator,
    LakeCommitRefused,
    SplitFailed,
)
from sluice.model import Claim, LakeSnapshotInfo, TableBucket, TableInfo
from sluice.rounds.commit import commit_round, discard, move_tag, round_identity
from sluice.rounds.files import RoundResult
from sluice.rounds.keyed_options import NO_KEYED_OPTIONS, KeyedRoundOptions
from sluice.rounds.limits import RoundLimits, forced_finish_text, offsets_left
from sluice.rounds.offsets import offsets_for_result
from sluice.rounds.phases import Phases
from sluice.rounds.plan import RoundPlan, check_options, make_plan
from sluice.rounds.ports import Cluster, Lake, LakeTable, RunnerFactory
from sluice.rounds.progress import NoProgress, Progress
from sluice.rounds.reasons import reason_of
from sluice.rounds.recover import register_unknown, table_missing
from sluice.rounds.repair import TableState, needs_repair_round, offsets_in_lake, read_table_state
from sluice.rounds.retier import RepairMode, plan_retier
from sluice.rounds.types import LakeSnapshot, SplitFailure, SplitResult
from sluice.rounds.write_ids import new_write_id

_REGISTRATIONS_MAX = 5
"""How many times a round registers the newest tiering snapshot before it fails."""


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
    keyed: KeyedRoundOptions = NO_KEYED_OPTIONS,
) -> RoundResult:
    """Runs one round of a table; a lost claim is an outcome, not an error.

    :param attempt: the name of this attempt; file names are unique even if it runs again.
    :param limits: when one is reached, the round commits what it has, and the result names the
        limit (``forced``); None: no limits.
    :param repair_mode: how to repair a lake that is behind Fluss, if a user asked for it.
    :param keyed: for a table with a primary key: leased KV snapshots, memory and spill folder.
    :raises SluiceError: why the table could not be tiered; the lake is unchanged, unless it is
        LakeCommitOutcomeUnknown.
    """
    progress = progress or NoProgress()
    clock = clock or SystemClock()
    started_ms = clock.now_ms()
    phases = Phases(clock, progress)
    running = _Round(claim, cluster, lake, attempt, phases, limits, started_ms, repair_mode, keyed)
    try:
        return running.run(make_runner, progress)
    except (FencedTieringEpoch, InvalidCoordinator) as fenced:
        return running.result(
            "claim_lost",
            notes=(f"another round of the table was started: {reason_of(fenced).text}",),
        )
    except ClaimLost as lost:
        landed = lost.details.get("snapshot_id")
        return running.result("claim_lost", lake_snapshot_id=landed, notes=(reason_of(lost).text,))
    except Exception as error:
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
    _keyed: KeyedRoundOptions
    _recovered: int | None = None
    _notes: list[str] = field(default_factory=list)
    _repaired_with: RepairMode | None = None
    _floor: Mapping[TableBucket, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self._repair_mode:  # it must copy at least up to the registered offsets
            self._limits = None

    def run(self, make_runner: RunnerFactory, progress: Progress) -> RoundResult:
        info = self._table_info()
        with self._phases("recover"):
            table, base, registered = self._recover(info)
        # Another attempt of this round may have committed. Newer rows are still copied:
        # epochs start again when tiering is disabled and enabled, so an old round may have the
        # same epoch.
        with self._phases("plan"):
            plan = make_plan(
                info,
                self._cluster,
                base,
                registered,
                self._limits,
                self._started_ms,
                self._keyed,
            )
            plan = self._with_newest_schema(plan, table)
        if not plan.splits and self._repaired_with is RepairMode.RETIER:
            return self._commit(plan, table, [], self._write_id(table, base))
        if not plan.splits:
            mine = base is not None and round_identity(self._claim).items() <= base.summary.items()
            if base is not None and mine and self._repaired_with is None:
                return self._already_landed(base, registered)
            return self.result(
                "committed" if self._repaired_with else "nothing_new",
                offsets=offsets_for_result(plan.known),
                lake_snapshot_id=registered.snapshot_id if registered else None,
                lag_rows_before=0,
                lag_rows_after=0,
                notes=(*self._notes, *plan.notes),
            )
        progress.planned(len(plan.splits), plan.offsets)
        write_id = self._write_id(table, base)
        with self._phases("copy"):
            results = self._copy(plan, table, make_runner, write_id)
        return self._commit(plan, table, results, write_id)

    def _write_id(self, table: LakeTable, base: LakeSnapshot | None) -> str:
        return str(new_write_id(self._claim, self._attempt, table.uuid, base))

    def result(self, outcome: str, **facts: object) -> RoundResult:
        recovered, seconds = self._recovered, self._phases.seconds()
        return RoundResult.of(
            self._claim, outcome, recovered_snapshot_id=recovered, seconds=seconds, **facts
        )

    def _table_info(self) -> TableInfo:
        claim = self._claim
        info = self._cluster.table_info(claim.path)
        if info.table_id != claim.table_id:
            raise ClaimLost(
                f"table {claim.path} with id {claim.table_id} was dropped and created again with"
                f" id {info.table_id}"
            )
        check_options(info)
        return info

    def _with_newest_schema(self, plan: RoundPlan, table: LakeTable) -> RoundPlan:
        """Reads the schema again, after all stop offsets are known.

        Rows below the stop offsets cannot have a newer schema than this one, so no column is lost.
        """
        info = self._table_info()
        if info.schema_id == plan.info.schema_id:
            return plan
        table.add_missing_columns(info)
        return replace(plan, info=info)

    def _recover(
        self, info: TableInfo
    ) -> tuple[LakeTable, LakeSnapshot | None, LakeSnapshotInfo | None]:
        """The lake table, its newest tiering snapshot, and what Fluss has registered of it."""
        claim = self._claim
        if self._repair_mode is not None:
            seen = read_table_state(claim.path, self._cluster, self._lake)
            if needs_repair_round(self._repair_mode, seen, self._cluster):
                return self._repair_base(self._repair_mode, info, seen)
        registered = self._cluster.lake_snapshot(claim.path)
        table = self._lake.load(claim.path)
        if table is None:
            if registered is not None:
                raise table_missing(claim.path, registered, self._lake.where)
            table = self._lake.create(info)
        table.add_missing_columns(info)
        return table, *self._agreed(table, registered)

    def _agreed(
        self, table: LakeTable, registered: LakeSnapshotInfo | None
    ) -> tuple[LakeSnapshot | None, LakeSnapshotInfo | None]:
        """The newest tiering snapshot and what Fluss has registered of it; or None twice.

        After a registration, the registered snapshot is read and compared again. Apache Fluss
        accepts the commit of an older round however late it arrives, and the offsets of that round
        would make this one copy rows twice.

        :param registered: was read before the tiering snapshot, so it cannot be newer.
        :raises LakeCommitRefused: Fluss reports another snapshot each time.
        """
        path = self._claim.path
        for _ in range(_REGISTRATIONS_MAX):
            ours = table.newest_tiering_snapshot()
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
        table = self._lake.create(info) if seen.table is None else seen.table
        table.add_missing_columns(info)
        self._repaired_with = repair_mode
        if repair_mode is RepairMode.RETIER:
            held, _ = offsets_in_lake(seen)
            start = plan_retier(info, self._cluster, held or {}, seen.registered)
            self._floor = start.minimum_offsets
            self._notes += [
                f"{start.repeated_offsets} offsets that the lake lacked were copied again"
            ]
            self._notes += [f"lost for good: {text}" for text in start.lost_ranges]
            return table, seen.ours, replace(seen.registered, offsets=start.start_offsets)
        plan = RoundPlan(info, None, seen.registered, (), 0)
        write_id = self._write_id(table, None)
        commit_round(self._claim, self._cluster, table, plan, [], write_id, self._phases)
        self._notes += ["main was accepted as what Fluss had registered"]
        return table, *self._agreed(table, self._cluster.lake_snapshot(info.path))

    def _already_landed(
        self, base: LakeSnapshot, registered: LakeSnapshotInfo | None
    ) -> RoundResult:
        return self.result(
            "already_landed",
            offsets=offsets_for_result(registered.offsets if registered else {}),
            lake_snapshot_id=base.snapshot_id,
            notes=tuple(self._notes),
        )

    def _copy(
        self, plan: RoundPlan, table: LakeTable, make_runner: RunnerFactory, write_id: str
    ) -> list[SplitResult]:
        """Copies all splits and returns their results.

        :raises SplitFailed: for the first split that fails; the files of the others are deleted, as
            after any other error.
        """
        writers = table.writer_factory(write_id, plan.splits)
        runner = make_runner(plan.info, writers)
        results: list[SplitResult] = []
        failures: list[SplitFailure] = []
        outcomes = runner(plan.splits)
        try:
            for outcome in outcomes:  # to the end: after a failure, other splits still return files
                if isinstance(outcome, SplitFailure):
                    failures.append(outcome)
                else:
                    results.append(outcome)
            if failures:
                raise _split_failed(self._claim, failures[0])
            missing = {s.bucket for s in plan.splits} - {r.bucket for r in results}
            if missing or len(results) != len(plan.splits):
                raise SplitFailed(
                    f"table {self._claim.path}: {len(plan.splits)} splits were planned, but"
                    f" {len(results)} returned a result"
                )
        except BaseException:  # also an error of the engine, or Ctrl-C: nothing was committed
            if isinstance(outcomes, Generator):
                outcomes.close()  # running splits end before files of others are deleted
            discard(table, [file for result in results for file in result.files])
            raise
        return results

    def _commit(
        self, plan: RoundPlan, table: LakeTable, results: list[SplitResult], write_id: str
    ) -> RoundResult:
        committed = commit_round(
            self._claim, self._cluster, table, plan, results, write_id, self._phases, self._floor
        )
        offsets = {**plan.known, **{r.bucket: r.next_offset for r in results}}
        self._notes += [*plan.notes, *committed.notes]
        self._notes += [note for result in results for note in result.notes]
        if committed.by_earlier_attempt:
            registered = self._cluster.lake_snapshot(self._claim.path)
            return self._already_landed(committed.snapshot, registered)
        forced = forced_finish_text(plan.splits, results, self._limits or RoundLimits(), plan.info)
        return self.result(
            "committed",
            forced=forced,
            rows=sum(r.rows for r in results),
            deletes=sum(r.deletes for r in results),
            bytes_read=sum(r.bytes_read for r in results),
            bytes_written=sum(f.size_bytes for r in results for f in r.files),
            files=sum(len(r.files) for r in results),
            offsets=offsets_for_result(offsets),
            lake_snapshot_id=committed.snapshot.snapshot_id,
            lag_rows_before=plan.offsets,
            lag_rows_after=offsets_left(plan.splits, results),
            notes=tuple(self._notes),
        )


def _split_failed(claim: Claim, failure: SplitFailure) -> SplitFailed:
    words = f"bucket {failure.bucket} of table {claim.path}"
    reason = failure.reason.caused(SplitFailed.__name__, words)
    return SplitFailed(reason.text, reason=reason)
