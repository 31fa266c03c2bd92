"""Runs one round in this process (`sluice tier`): threads copy, a JVM started on demand commits."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from sluice.client import connect
from sluice.client.client import Client
from sluice.client.leases.snapshot_lease import SnapshotLease, never_tiered_buckets
from sluice.client.leases.tier_lease import TIER_LEASE_MS, random_lease_id, tier_lease_id
from sluice.client.tiering.heartbeats import Heartbeats
from sluice.client.tiering.log_source import ClientLogSource
from sluice.config import Config
from sluice.driver.lakes.jvm import Jvm
from sluice.driver.lakes.open_lake import checked_jvm, usable_lake
from sluice.driver.not_due import claim_table
from sluice.driver.round_options import round_options
from sluice.driver.threads import ThreadRunner
from sluice.errors import (
    AuthorizationError,
    ClaimLost,
    FlussError,
    LeaseLost,
    SluiceError,
    SplitFailed,
    StoppedByUser,
)
from sluice.failpoints import failpoint
from sluice.lake.iceberg.lake import IcebergLake
from sluice.model import BucketSnapshot, Claim, Reason, TableInfo, TablePath
from sluice.rounds.plan.dropped import how_dropped, table_dropped
from sluice.rounds.records.result import RoundResult
from sluice.rounds.repair.request import RepairRequest
from sluice.rounds.repair.round import run_repair
from sluice.rounds.round.round import run_round
from sluice.rounds.values.attempt import RoundPorts
from sluice.rounds.values.phases import seconds_of
from sluice.rounds.values.ports import SplitRunner, SplitWriterFactory
from sluice.rounds.values.progress import NoProgress, Progress
from sluice.rounds.values.reasons import failure_of, reason_of
from sluice.stop_signals import explain_stop, signal_name, signals_deferred

_LOG = logging.getLogger(__name__)


def tier_once(
    config: Config,
    path: TablePath | None,
    *,
    now: bool = False,
    progress: Progress | None = None,
    jvm: Jvm | None = None,
    repair: RepairRequest | None = None,
    command: str = "sluice tier",
    on_result: Callable[[RoundResult], object] | None = None,
) -> RoundResult:
    """Claims a table, runs one round in this process, and reports the result to the coordinator.

    :param path: only this table; None: the table that has been due the longest.
    :param now: make the table due first, unless it is paused or being tiered.
    :param jvm: a running JVM, for several rounds; None: this function starts one and ends it.
    :param repair: how to repair the table; None: raise an error if it needs a repair.
    :param command: what the user has called, for the coordinator.
    :param on_result: called with the result, also if a signal then prevents the return.
    :raises ConfigurationError: this machine lacks something; nothing was claimed.
    :raises TableNotDue: no table can be claimed now; says why, and whether waiting helps.
    :raises SluiceError: why the round failed, as reported to the coordinator.
    :raises KeyboardInterrupt: Ctrl-C or SIGTERM (``sigterm_raises``) ended the round, and its claim
        was released. If the signal arrived during the commit, the round was first completed. A
        note says which.
    """
    jvm_context = checked_jvm(config, jvm)
    stopped = threading.Event()
    with _explained_stop() as ends, connect(config.client) as client, ExitStack() as deferred:
        # If the claim were interrupted, it would expire, as a failure of the table.
        deferred.enter_context(signals_deferred(also_second=True))
        failpoint("round.claim.before")
        claim = claim_table(client, path, now=now)
        failpoint("round.claim.after")
        with Heartbeats(client.tiering, on_lost=lambda *_: stopped.set()) as heartbeats:
            heartbeats.add(claim)
            observer = CommitObserver(progress or NoProgress(), deferred)
            try:
                deferred.close()
                with jvm_context as java, usable_lake(config, java.gateway) as lake:
                    result = _run(
                        config, client, lake, claim, heartbeats, stopped, observer, repair
                    )
                deferred.enter_context(signals_deferred(also_second=True))
            except BaseException as error:
                with signals_deferred(also_second=True):
                    released = _report_failure(client, claim, error, config.secrets(), command)
                    ends.append(_end_of(error, config.secrets(), observer.effect(claim, released)))
                raise
            finally:
                heartbeats.remove(claim)
        result = _report(client, claim, result.checked(config.secrets()))
        landed = result.outcome in ("committed", "already_landed")
        ends.append(" after the commit" if landed else " after the round")
        if on_result is not None:
            on_result(result)
        return result


def _end_of(error: BaseException, secrets: Sequence[str], effect: str) -> str:
    """How a round ended, for a signal that arrived meanwhile."""
    if isinstance(error, Exception):
        return f": the round failed: {reason_of(error, secrets)}"
    return effect


@contextmanager
def _explained_stop() -> Iterator[list[str]]:
    """Explains a signal that was deferred until the round had ended, by how the round ended."""
    ends: list[str] = []
    try:
        yield ends
    except KeyboardInterrupt as stop:
        if ends:
            explain_stop(stop, ends[-1])
        raise


class CommitObserver:
    """Passes progress on. When the commit begins, it defers signals until the round is reported.

    The commit of ``adopt`` comes before the plan. The copying after it can be interrupted.
    """

    def __init__(self, progress: Progress, deferred: ExitStack) -> None:
        self._progress, self._deferred = progress, deferred
        self._in_commit = self._has_repaired = False
        self.planned, self.copied = progress.planned, progress.copied

    def phase(self, name: str) -> None:
        if name == "plan":
            self._has_repaired, self._in_commit = self._in_commit, False
            self._deferred.close()
        elif name == "prepare":
            self._in_commit = True
            self._deferred.enter_context(signals_deferred())
        self._progress.phase(name)

    def effect(self, claim: Claim, released: bool) -> str:
        """What an interrupted round did, for :func:`explain_stop`."""
        done = ": nothing was committed"
        if self._has_repaired:
            done = ": the repair was committed, new rows were not"
        if self._in_commit:  # by a second Ctrl-C
            done = " during the commit: the next round finds out whether the lake has the rows"
        return f"{done}, {claim.path} is released and due at once" if released else done


def _run(
    config: Config,
    client: Client,
    lake: IcebergLake,
    claim: Claim,
    heartbeats: Heartbeats,
    stopped: threading.Event,
    progress: Progress,
    repair: RepairRequest | None,
) -> RoundResult:
    def runner(info: TableInfo, writers: SplitWriterFactory) -> SplitRunner:
        source = ClientLogSource(config.client, claim.path, info)
        return ThreadRunner(
            source,
            writers,
            config.tiering.parallelism,
            cancelled=stopped,
            on_rows=progress.copied,
            secrets=config.secrets(),
        )

    try:
        with _leased_snapshots(client, claim, stopped, is_repair=repair is not None) as snapshots:
            ports, attempt = RoundPorts(client.tiering, lake, runner), uuid.uuid4().hex
            options = round_options(config, snapshots, config.tiering.parallelism)
            if repair is not None:
                return run_repair(claim, ports, attempt, repair, options, progress)
            return run_round(claim, ports, attempt, options, progress)
    except SluiceError as error:
        note = table_dropped(error, client.tiering, claim)
        if error.details.get("committed") or not (note or heartbeats.wait_lost(claim, 0)):
            raise
        reason = reason_of(error, config.secrets())
        note = note or f"the round lost its claim and ended with {reason}"
        return RoundResult.of(claim, "claim_lost", notes=(note,), seconds=seconds_of(error))


@contextmanager
def _leased_snapshots(
    client: Client, claim: Claim, stopped: threading.Event, *, is_repair: bool
) -> Iterator[Sequence[BucketSnapshot]]:
    """Leases the KV snapshots that the round can start buckets with, until the block ends.

    They are those of buckets that were never tiered. For a repair they are those of all buckets,
    because it is not known yet what the lake lacks. If another user has a lease of the round's id,
    which can be guessed, the lease gets a random id.

    :param stopped: set if the lease is lost, because nothing more can be copied then.
    :raises LeaseNotObtained: not all snapshots could be leased. :raises TableNotExist: the table
        was dropped. :raises LeaseLost: the round failed because the lease was lost.
    """
    info = client.admin.table_info(claim.path)
    if info.table_id != claim.table_id or not info.has_primary_key:
        yield ()  # if the table was created again, the round reports that
        return
    with tier_lease_id(info.table_id) as lease_id:
        _drop_left_over(client, lease_id)
        parts = never_tiered_buckets(client.admin, info)
        buckets = {part.bucket(number) for part in parts for number in part.buckets}
        if not is_repair and not buckets:
            yield ()
            return
        lost: list[LeaseLost] = []

        def on_lost(error: LeaseLost) -> None:
            lost.append(error)
            stopped.set()

        def lease_with(lease_id: str) -> SnapshotLease:
            return client.snapshot_lease(
                lease_id,
                claim.path,
                buckets=None if is_repair else buckets,
                duration_ms=TIER_LEASE_MS,
                on_lost=on_lost,
            )

        with ExitStack() as held:
            try:
                lease = held.enter_context(lease_with(lease_id))
            except AuthorizationError as error:
                _LOG.warning("the round takes a lease with a random id: %s", error)
                lease = held.enter_context(lease_with(random_lease_id()))
            failpoint("round.lease.after")
            try:
                yield tuple(lease.snapshots.values())
            except SplitFailed as error:
                if lost and not error.details.get("committed"):
                    raise lost[0] from None
                raise


def _drop_left_over(client: Client, lease_id: str) -> None:
    """Drops the lease of a killed round, if there is one: no living process has this id."""
    try:
        client.leases.drop(lease_id)
    except FlussError as error:  # the cluster has no leases, or the lease stays until it expires
        _LOG.debug("lease %s was not dropped: %s", lease_id, error)


def _report(client: Client, claim: Claim, result: RoundResult) -> RoundResult:
    """Reports a finished round to the coordinator, unless the claim was lost."""
    failpoint("round.report.before")
    if result.outcome == "claim_lost":
        note = how_dropped(client.tiering, claim)
        return replace(result, notes=(note,), table_dropped=True) if note else result
    try:
        # No statistics: Fluss expects totals of the lake table, which a round does not know.
        client.tiering.finished(claim, forced=bool(result.forced), details=result.details())
    except SluiceError as error:  # lake and Fluss have the snapshot: the round succeeded
        _LOG.warning(
            "table %s: the round succeeded, but the coordinator did not accept its report: %s",
            claim.path,
            error,
        )
    failpoint("round.report.after")
    return result


def _report_failure(
    client: Client, claim: Claim, error: BaseException, secrets: Sequence[str], command: str
) -> bool:
    """Reports the failure of a round; an interrupted round releases its claim instead.

    :param command: the command that ran the round.
    :return: whether the coordinator released the claim.
    """
    if isinstance(error, ClaimLost):
        return False
    try:
        if isinstance(error, KeyboardInterrupt):  # Ctrl-C or SIGTERM
            text = f"{signal_name(error)} ended `{command}`"
            reason = Reason.from_text(text, kind=StoppedByUser.__name__)
            client.tiering.release(claim, reason, stopped=True)
            return True
        # Without its kind: users of `sluice tier` know what failed, and read the text.
        failure = failure_of(error, secrets)
        client.tiering.failed(claim, replace(failure.reason, kind=""), failure.details())
    except SluiceError as unheard:
        _LOG.warning(
            "table %s: the coordinator did not accept the report of the failure: %s",
            claim.path,
            unheard,
        )
    return False
