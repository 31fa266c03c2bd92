"""The actors of the simulation: drivers of rounds, clean-up, and users who repair.

They run the project's own code: client, rounds, clean-up and repair. Only the code around a round
(in `sluice tier`) is written again here.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import sluice.errors
from sluice.client.tiering.heartbeats import Heartbeats
from sluice.client.tiering.tiering import TieringClient
from sluice.errors import (
    ClaimLost,
    FlussError,
    LakeCommitOutcomeUnknown,
    LakeCommitRefused,
    LakeNotWritable,
    LakeTableMismatch,
    LogBeginsAfterLake,
    SluiceError,
    StorageError,
)
from sluice.model import Claim, TableBucket, TableInfo, TablePath
from sluice.rounds.commit.failures import named_batch
from sluice.rounds.commit.options import RoundOptions
from sluice.rounds.copy.parts import PartRules
from sluice.rounds.copy.split import copy_split
from sluice.rounds.plan.keyed_options import NO_KEYED_OPTIONS, KeyedRoundOptions
from sluice.rounds.plan.position_lookups import OFF
from sluice.rounds.records.result import RoundResult
from sluice.rounds.repair.diagnose import (
    ACCEPT_GAP,
    ADOPT,
    REBUILD,
    RESTORE,
    RETIER,
    TAG,
    apply_action,
    diagnose,
    read_table_state,
)
from sluice.rounds.repair.diagnosis import Diagnosis, RepairAction
from sluice.rounds.repair.request import RepairRequest
from sluice.rounds.upkeep.compaction import NO_COMPACTIONS, CompactionOptions
from sluice.rounds.upkeep.orphans import clean
from sluice.rounds.values.attempt import RoundPorts
from sluice.rounds.values.limits import LookupBudget, RoundLimits
from sluice.rounds.values.ports import BucketRows, SplitRunner, SplitWriterFactory
from sluice.rounds.values.reasons import failure_of
from sluice.rounds.values.types import (
    LogRecords,
    RepairMode,
    Split,
    SplitFailure,
    SplitResult,
)
from tests.simulation.actors import Actor
from tests.simulation.clock import ManualClock
from tests.simulation.fluss.cluster import FlussTable, SimCluster
from tests.simulation.fluss.keyed import KeyedFlussTable
from tests.simulation.fluss.log_damage import LogDamage, named_gaps, unreadable_batch
from tests.simulation.fluss.network import NetworkContext, SimAdmin, SimConnection
from tests.simulation.lake.context import LakeContext
from tests.simulation.lake.expiries import RoundFacts
from tests.simulation.lake.lake import DriverLake
from tests.simulation.round_checker import RoundChecker
from tests.support.models.any_round import any_round

HEARTBEAT_MS = 20_000

_BEGINS_LATE = re.compile(r"LogOffsetOutOfRange: bucket (\S+): (\d+) is before (\d+)")
_NOTED = {
    "committed": "round committed",
    "already_landed": "round already landed",
    "nothing_new": "round had nothing new",
    "claim_lost": "round lost its claim",
}
_WHY_EQUALITY = {
    OFF: "look-ups are off",
    "data files may have the keys": "too many files",
    "the key columns have": "too many bytes",
    "is missing": "a file has expired",
    "the lake refused positions": "rewritten after two tries",
}
"""Words of a result that say why a round used equality deletes, and the name of the event."""
_EXPIRY_BROKE = re.compile(r"were not expired: [A-Z]\w+(:|$)")
"""A note with an error that is none of this project's."""
_NOTED_ERRORS = frozenset(
    {
        "LakeRolledBack",
        "LakeTableMismatch",
        "LakeCommitOutcomeUnknown",
        "LakeCommitRefused",
        "LakeFilesChanged",
        "SplitFailed",
        "LogBeginsAfterLake",
    }
)


@dataclass
class Round:
    """The state of one driver's round."""

    actor: Actor
    claim: Claim
    keeper: Heartbeats
    next_beat_ms: int
    repair: RepairRequest | None
    checker: RoundChecker
    again: frozenset[TableBucket] = frozenset()
    """Buckets of which the round copies offsets that Fluss had registered before: a retier."""
    lost: bool = False
    facts: RoundFacts = field(default_factory=lambda: RoundFacts(0, 0))


@dataclass
class ActorFactory:
    """Makes the functions that actors run."""

    rng: random.Random
    clock: ManualClock
    network: NetworkContext
    lake_context: LakeContext
    note: Callable[[str], None]
    wrong: Callable[[str], None]
    damage: LogDamage
    retier_met: Callable[[TablePath, TableBucket, int], None]
    """Checks the batch that a retier could not read: table, bucket and offset."""
    make_lake: Callable[[LakeContext, Actor], DriverLake] = DriverLake
    make_admin: Callable[[SimConnection, SimCluster], SimAdmin] = SimAdmin
    part_rules: type[PartRules] = PartRules
    lookups: LookupBudget = field(default_factory=LookupBudget)
    """How much a round of a primary-key table may read to find positions."""
    rounds_without: float = 0.0
    """How many rounds may read nothing for that."""
    compaction: CompactionOptions = NO_COMPACTIONS
    """How rounds compact their tables."""
    expires: bool = False
    """Whether old lake snapshots expire after rounds."""
    rounds: dict[Actor, Round] = field(default_factory=dict)
    """The rounds of running drivers."""
    claims: list[Claim] = field(default_factory=list)
    """Recently assigned claims; a retried task uses the claim of its first attempt."""
    errors: list[str] = field(default_factory=list)
    """The errors of the last rounds that failed."""
    lossy: set[TablePath] = field(default_factory=set)
    """Tables for which `sluice repair` has options, but none without loss."""
    named: dict[TablePath, tuple[str, int]] = field(default_factory=dict)
    """The batch that the last error of a table names: bucket and offset."""

    def client(self, actor: Actor | None) -> TieringClient:
        connection = SimConnection(self.network, actor)
        admin = self.make_admin(connection, self.network.cluster)
        return TieringClient(cast(Any, connection), cast(Any, admin))

    # ---- rounds ----

    def driver(
        self,
        path: TablePath | None = None,
        again: Claim | None = None,
        repair: RepairRequest | None = None,
    ) -> Callable[[Actor], None]:
        """A driver that claims a table, or continues a claim, and runs one round."""

        def body(actor: Actor) -> None:
            client = self.client(actor)
            try:
                claim = again or client.claim(None if path is None else [path])
            except FlussError:
                return
            if claim is not None:
                self.claims = [*self.claims[-3:], claim]
                self._tier(actor, client, claim, repair)

        return body

    def _tier(
        self,
        actor: Actor,
        client: TieringClient,
        claim: Claim,
        repair: RepairRequest | None,
    ) -> None:
        def on_lost(_claim: Claim, _error: ClaimLost) -> None:
            self.note("heartbeat found the claim lost")
            running.lost = True

        keeper = Heartbeats(
            self.client(None), on_lost=on_lost, now=self.clock.monotonic_s, random=self.rng.random
        )
        keeper.add(claim)
        lake = self.lake_context.lake
        checker = RoundChecker(self.network.cluster, lake, actor, claim, self.wrong)
        next_beat_ms = self.clock.now_ms() + HEARTBEAT_MS
        running = Round(actor, claim, keeper, next_beat_ms, repair, checker)
        self.rounds[actor] = running
        try:
            self._report(client, running, self._round(running, client))
        except ClaimLost:
            self.note(_NOTED["claim_lost"])
        except SluiceError as error:
            self._failed(client, running, error)
        finally:
            self.rounds.pop(actor, None)

    def _round(self, running: Round, client: TieringClient) -> RoundResult:
        actor, claim = running.actor, running.claim
        limits = RoundLimits(
            self.rng.choice((0, 0, 300, 20_000)), self.rng.choice((0, 0, 0, 40, 120))
        )

        running.facts = RoundFacts(self.clock.now_ms(), limits.max_ms)

        def runner(_info: TableInfo, writers: SplitWriterFactory) -> SplitRunner:
            return self._runner(running, writers)

        return any_round(
            claim,
            RoundPorts(client, self.make_lake(self.lake_context, actor), runner, self.clock),
            actor.name,
            running.repair,
            RoundOptions(
                limits,
                self._leased(claim),
                self.part_rules(parallelism=2, offsets=self.rng.randint(1, 6)),
                self.compaction,
                self.expires,
            ),
        )

    def _leased(self, claim: Claim) -> KeyedRoundOptions:
        """KV snapshots from which the round may start buckets that were never tiered."""
        table = self.network.cluster.tables.get(claim.path)
        if not isinstance(table, KeyedFlussTable) or table.described.table_id != claim.table_id:
            return NO_KEYED_OPTIONS
        lookups = self.lookups
        if self.rounds_without and self.rng.random() < self.rounds_without:
            lookups = LookupBudget(bytes_max=0)
        return KeyedRoundOptions(table.lease(), memory_bytes=1 << 20, lookups=lookups)

    def _report(self, client: TieringClient, running: Round, result: RoundResult) -> None:
        self._note_result(running.claim.path, result)
        if result.outcome == "claim_lost":
            return
        try:
            details = result.details()
            client.finished(running.claim, forced=bool(result.forced), details=details)
        except FlussError:
            return  # lake and Fluss have the snapshot: the round succeeded
        running.checker.succeeded(result)

    def _note_result(self, path: TablePath, result: RoundResult) -> None:
        """Counts what a round did."""
        self.note(_NOTED[result.outcome])
        if any("was dropped during the round" in note for note in result.notes):
            self.note("round left out a dropped partition")
        for note in result.notes:
            if _EXPIRY_BROKE.search(note):
                self.wrong(f"the expiry of {path} broke: {note}")
        if result.recovered_snapshot_id is not None:
            self.note("snapshot of a dead round registered")
        if "(tiering.max_round_bytes)" in result.forced:
            self.note("round cut by bytes")
        elif result.forced:
            self.note("round cut by time")
        if any("the compaction was given up" in note for note in result.notes):
            self.note("compaction given up")
        for words, kind in _WHY_EQUALITY.items():
            if words in result.deletes_as:
                self.note(f"equality deletes: {kind}")
        if result.compaction_request_ms is not None:
            self.note("requested compaction completed")

    def _failed(self, client: TieringClient, running: Round, error: SluiceError) -> None:
        kind = type(error).__name__
        self.errors = [*self.errors[-4:], f"{running.actor.name}: {kind}: {str(error)[:300]}"]
        if kind in _NOTED_ERRORS:
            self.note(kind)
        if error.details.get("committed") is not None:
            self.note("round committed in part")
        running.checker.table_exists(error)
        damaged = self._names_damage(running, error)
        if running.lost:
            return
        try:
            failure = failure_of(error)
            client.failed(running.claim, failure.reason, failure.details())
        except FlussError:
            return  # the coordinator takes the table back by itself
        running.checker.failed(error, has_cause=damaged)

    def _names_damage(self, running: Round, error: SluiceError) -> bool:
        """Whether a round calls a log damaged. Checks that it is; remembers the named batch."""
        batch, unreadable = named_batch(str(error)), self.damage.unreadable
        if batch is not None:
            bucket, offset = TableBucket.named(running.claim.table_id, batch[1]), batch[2]
            known = (bucket, offset) in self.damage.batches
            self.named[batch[0]] = batch[1:]
            if (
                running.repair is not None
                and running.repair.mode is RepairMode.RETIER
                and bucket in running.again
            ):
                self.retier_met(running.claim.path, bucket, offset)
        elif isinstance(error, LogBeginsAfterLake):
            # A new diagnosis compares the logs with offsets that it has read before.
            stale = "bucket" not in error.details and running.checker.registered_since()
            known = stale or self.damage.has_lost(named_gaps(error, running.claim.table_id))
        elif (late := _BEGINS_LATE.search(str(error))) is not None:
            # Its partition was dropped before the round asked where the log begins.
            gap = range(int(late[2]), int(late[3]))
            lost = [b for b in unreadable if str(b) == late[1] and not self._exists(running, b)]
            return any(unreadable[bucket].issuperset(gap) for bucket in lost)
        else:
            return False
        if not known:
            self.wrong(f"a round failed without a cause: {error}")
        return True

    def _exists(self, running: Round, bucket: TableBucket) -> bool:
        table = self.network.cluster.tables.get(running.claim.path)
        return table is not None and bucket in table.buckets()

    def _runner(self, running: Round, writers: SplitWriterFactory) -> SplitRunner:
        source = _Log(self, running)

        def run(splits: Sequence[Split]) -> Iterator[SplitResult | SplitFailure]:
            running.again = self._registered_before(running.claim.path, splits)
            if any(split.file_suffix.startswith("-again") for split in splits):
                self.note("rows looked up again")
            if any(split.part for split in splits):
                self.note("window in parts")
                splits = self.rng.sample(splits, len(splits))  # executors copy them in any order
            for split in splits:
                if self.rng.random() < self.network.faults().executor_lost:
                    self.note("executor lost")
                    copy_split(split, source, writers, clock=self.clock)
                    yield self._copied(copy_split(split, source, writers, task=1, clock=self.clock))
                else:
                    yield self._copied(copy_split(split, source, writers, clock=self.clock))

        return run

    def _registered_before(
        self, path: TablePath, splits: Sequence[Split]
    ) -> frozenset[TableBucket]:
        table = self.network.cluster.tables.get(path)
        registered = None if table is None else table.latest_registered()
        ends = {} if registered is None else registered.offsets
        return frozenset(one.bucket for one in splits if one.first_offset < ends.get(one.bucket, 0))

    def _copied(self, outcome: SplitResult | SplitFailure) -> SplitResult | SplitFailure:
        if isinstance(outcome, SplitFailure) and not hasattr(sluice.errors, outcome.reason.kind):
            self.wrong(f"copy of {outcome.bucket} failed: {outcome.reason}")
        return outcome

    def beat(self) -> None:
        """Sends the heartbeats that are due, for drivers that are not stopped."""
        now_ms = self.clock.now_ms()
        for running in list(self.rounds.values()):
            if running.next_beat_ms <= now_ms and running.actor.wake_ms <= now_ms:
                running.next_beat_ms = now_ms + HEARTBEAT_MS
                running.keeper.beat()

    # ---- others ----

    def cleaner(self, path: TablePath) -> Callable[[Actor], None]:
        """An actor that runs `sluice clean --yes`."""

        def body(actor: Actor) -> None:
            self.note("clean-up")
            try:
                table = self.make_lake(self.lake_context, actor).load(path)
                if table is not None:
                    clean(path, table, apply=True)
            except LakeNotWritable:
                return  # what was removed till then was dead

        return body

    def repairer(self, path: TablePath) -> Callable[[Actor], None]:
        """An actor that runs `sluice repair` with an option that loses no rows of Sluice's."""

        def body(actor: Actor) -> None:
            client = self.client(actor)
            lake = self.make_lake(self.lake_context, actor)
            try:
                seen = read_table_state(path, client, lake)
                found = diagnose(seen, client)
                if found.healthy and path in self.named:
                    self._repair_batch(actor, path)
                    return
                action = self._choose_action(path, found)
                self.lossy.discard(path)
                if action is None:
                    if found.actions:
                        self.lossy.add(path)
                    return
                self.note(f"repair: {action.name}")
                if action.name in (RESTORE, TAG):
                    apply_action(action, seen)
                    return
                self.network.cluster.retry(path)
            except (LakeCommitRefused, LakeCommitOutcomeUnknown, LakeNotWritable):
                return
            except (ClaimLost, FlussError, LakeTableMismatch):
                return
            self.driver(path, repair=RepairRequest(RepairMode(action.name), accepted=action))(actor)

        return body

    def _repair_batch(self, actor: Actor, path: TablePath) -> None:
        """Runs `sluice repair --skip` for the batch that the last error names."""
        fluss = self.network.cluster.table(path)
        batch = unreadable_batch(fluss, *self.named.pop(path))
        if batch is None:
            return
        keyed = fluss.described.has_primary_key  # a skipped change would lose updates
        repair_mode = RepairMode.REBUILD if keyed else RepairMode.SKIP
        self.note(f"repair: {repair_mode.value}")
        self.network.cluster.retry(path)
        self.driver(path, repair=RepairRequest(repair_mode, batch))(actor)

    def _choose_action(self, path: TablePath, diagnosis: Diagnosis) -> RepairAction | None:
        """The repair to use; rounds register by themselves, and rows without a log are kept.

        Some users give those rows up.
        """
        fluss = self.network.cluster.table(path)
        actions = [
            action
            for action in diagnosis.actions
            if action.name in (RESTORE, TAG, ACCEPT_GAP, REBUILD)
            or (action.name == RETIER and self.damage.may_give_up(fluss, action.ranges))
            or (action.name == ADOPT and not action.risks)
        ]
        chosen = self.rng.choice(actions) if actions else None
        if chosen is not None and chosen.name == RETIER:
            self.damage.give_up(chosen.ranges)
        return chosen


class _Log:
    """Implements LogSource and KeyedSource for one round; stops when its claim is lost."""

    def __init__(self, actor_factory: ActorFactory, running: Round) -> None:
        self._actor_factory, self._running = actor_factory, running

    def read(self, split: Split) -> Iterator[LogRecords]:
        actor_factory, running = self._actor_factory, self._running
        table = self._table(split)
        for records in table.read(split):
            if running.lost:
                raise ClaimLost(f"bucket {split.bucket}: the round was given up")
            yield records
            actor_factory.network.step(running.actor, "read on")

    @contextmanager
    def rows(self, split: Split) -> Iterator[BucketRows]:
        table = self._table(split)
        with table.rows(split) as rows:
            self._actor_factory.network.step(self._running.actor, "read on")
            yield rows

    def _table(self, split: Split) -> FlussTable:
        """The table to read from.

        :raises StorageError, PartitionNotExists: a fault of storage, or of a stale tablet server.
        """
        network, actor = self._actor_factory.network, self._running.actor
        network.step(actor, "read")
        SimConnection(network, actor).check_known(split.bucket.partition_id)
        if network.rng.random() < network.faults().read_failed:
            network.note("read failed")
            actor.faults.add("read failed")
            raise StorageError(f"bucket {split.bucket} cannot be read")
        return network.cluster.table(self._running.claim.path)
