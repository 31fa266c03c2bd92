"""Reports the outcome of tables to the coordinator. Every function is safe to repeat."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from sluice.errors import (
    DriverLost,
    FencedTieringEpoch,
    InvalidCoordinator,
    NetworkError,
    RequestTimeOut,
    RoundsNotEnough,
    SluiceError,
    SparkSettingsWrong,
    StoppedByUser,
    TableNotExist,
    TablePaused,
)
from sluice.failpoints import failpoint
from sluice.masking import mask
from sluice.model import Claim, Reason
from sluice.rounds.records.json_files import read_json
from sluice.rounds.records.plan_file import PlanFile, claim_of, plan_uris
from sluice.rounds.records.result import RoundFailure, RoundResult, round_failures, round_outcome
from sluice.rounds.records.run_files import delete_keys, keys_uri
from sluice_airflow.claims import leasing
from sluice_airflow.claims.claimed_again import has_begun, mark_ended, newest_claim, started_attempt
from sluice_airflow.claims.claims import ClaimedTable, heartbeat_all
from sluice_airflow.claims.run_end import mark_run_ended
from sluice_airflow.claims.snapshot_ids import id_of, id_text
from sluice_airflow.claims.task_runs import ran_by

if TYPE_CHECKING:
    from sluice.client import Client

log = logging.getLogger(__name__)

NO_REPORT_EXPECTED = (FencedTieringEpoch, InvalidCoordinator, TableNotExist)
"""The coordinator expects no report: it has one, it ended the claim, or the table was dropped."""

UNREADABLE = (OSError, SluiceError, ValueError, TypeError, KeyError, ImportError)
"""Errors of reading a file: storage, version, JSON, or a file system that is not installed."""

RUN_ENDED = "the run ended before the table was tiered"
STOPS = {
    "success": "a user marked the task tier as success before it had a result",
    "skipped": "a user ended the run before the task tier was run",
}
"""States that a tier task without a result has only after a user's act."""
TIER_NOT_STARTED = "TierNotStarted"
STOP_KINDS = frozenset({StoppedByUser.__name__, TablePaused.__name__})
"""Ends of a round that a user caused: no failures."""
RELEASED_KINDS = STOP_KINDS | {TIER_NOT_STARTED, SparkSettingsWrong.__name__}
"""What is no failure of the table: its claim is released, and its status tells the reason."""
PAUSED = "paused"
NOT_STARTED = {
    "failed": "the task tier failed before it began: a user or Airflow's executor ended it",
    "upstream_failed": "the task tier was not run, because a task before it failed",
}
"""By the state of a tier task that has not begun."""
NOT_BEGUN = "the run ended before the tiering of the table began"
NO_TIME = "the run ended, and no time was left to read what became of the table"
TASK_LOST = "the task that ran the Spark driver was lost"

STOP_SEEN_S = 15.0
"""How long a task that a user marked may run on: Airflow kills it at its next heartbeat."""

RELEASE_S = 10.0
"""How long the releases of the claims may take whose tables could not be reported in time."""

Outcome = RoundResult | RoundFailure
T = TypeVar("T", RoundResult, RoundFailure, PlanFile)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The report of one table to the coordinator, and the reason.

    ``reported``: finished, failed, released (the round counts as none), or nothing.
    """

    table: str
    reported: str
    reason: str = ""
    outcome: str = ""
    """That of the result: committed, already_landed, nothing_new or claim_lost. Without a result:
    paused if a user paused the table, else empty."""
    rows: int = 0
    lake_snapshot_id: int | None = None
    """Of a failed round: the snapshot with the buckets that did not fail, if there is one."""
    offsets_sum: int | None = None
    """The sum of the end offsets of the table's buckets in that snapshot."""
    tiering_epoch: int | None = None

    def to_xcom(self) -> dict[str, Any]:
        """The verdict for drop_lease, as JSON."""
        return {**asdict(self), "lake_snapshot_id": id_text(self.lake_snapshot_id)}

    @classmethod
    def from_xcom(cls, content: Mapping[str, Any]) -> Verdict:
        """Reads what :meth:`to_xcom` has made."""
        return cls(**{**content, "lake_snapshot_id": id_of(content.get("lake_snapshot_id"))})


def settle(
    client: Client,
    entry: ClaimedTable,
    result: Mapping[str, Any] | None,
    failure: Mapping[str, Any] | None,
    state: str | None = None,
    stop_seen_s: float = STOP_SEEN_S,
) -> Verdict:
    """Reports the outcome of one table, unless its tier task did, and releases its snapshots.

    The files decide. The XComs name them, and are used in their place only if they cannot be read.

    :param result: the result XCom of the tier task. It overrides the state of the task.
    :param failure: the XCom ``failure`` of the tier task.
    :param state: the state of the tier task. Only used without a result and a failure.
    :param stop_seen_s: how long to wait for the file of a task that a user may have marked failed.
    """
    newest = _newest(entry)
    result = _of_claim(newest, result, "result_uri")
    failure = _of_claim(newest, failure, "failure_uri")
    is_reported = bool((result or failure or {}).get("reported"))
    entry = newest if is_reported else _end(entry)
    outcome: Outcome | None
    if result:
        outcome = _result(entry["plan_uri"], result)
    else:
        outcome = _outcome_without_result(entry["plan_uri"], failure, state, stop_seen_s)
    delete_keys(keys_uri(entry["plan_uri"]))  # a killed driver could not
    failpoint("airflow.settle.before_report")
    if is_reported and isinstance(outcome, RoundResult):
        verdict = _finished(entry["table"], outcome)
    elif is_reported and isinstance(outcome, RoundFailure) and not _is_stop(outcome):
        verdict = _failed(entry["table"], outcome)
    else:
        verdict = _report(
            client, entry["plan_uri"], claim_of(entry), outcome, TASK_LOST, entry.get("lease_id")
        )
    failpoint("airflow.settle.before_release")
    leasing.release_snapshots(client, entry)
    return _unless_short(entry, outcome, verdict)


def _unless_short(entry: ClaimedTable, outcome: Outcome | None, verdict: Verdict) -> Verdict:
    """The verdict on a table that must reach an end, whose task was killed after a forced round."""
    if not entry.get("must_reach_end") or not isinstance(outcome, RoundResult):
        return verdict
    if verdict.reported != "finished" or not outcome.offsets:
        return verdict
    plan = _read(PlanFile, entry["plan_uri"])
    if plan is None or plan.is_reached(outcome):
        return verdict
    why = (
        f"{RoundsNotEnough.__name__}: its task ended before the end of the log at the time of the"
        f" trigger was reached ({outcome.forced})"
    )
    return replace(verdict, reported="failed", reason=why)


def settle_pack(
    client: Client,
    entries: Sequence[ClaimedTable],
    results: Mapping[str, Any],
    failures: Mapping[str, Any],
    state: str | None = None,
    stop_seen_s: float = STOP_SEEN_S,
) -> tuple[list[Verdict], list[Exception]]:
    """Reports the outcomes of a pack's tables: see :func:`settle`.

    An error with one table does not keep the others from being reported, unless the coordinator
    does not answer. drop_lease reports the rest.

    :param results: the XCom ``results`` of the tier task, by table.
    :param failures: its XCom ``failures``, by table.
    :returns: the verdicts, and the errors of the tables that could not be reported.
    """
    verdicts: list[Verdict] = []
    errors: list[Exception] = []
    until = time.monotonic() + stop_seen_s
    for entry in entries:
        if errors and isinstance(errors[-1], NetworkError | RequestTimeOut):
            break  # the coordinator is away: not one time limit for each table
        name = entry["table"]
        wait_s = max(0.0, until - time.monotonic())
        result, failure = results.get(name), failures.get(name)
        try:
            verdict = settle(client, entry, result, failure, state, wait_s)
            verdicts.append(_of_run(verdict, result, failure))
        except Exception as error:  # drop_lease reports this table
            log.exception("%s: cannot be reported", name)
            errors.append(error)
    return verdicts, errors


def _of_run(
    verdict: Verdict, result: Mapping[str, Any] | None, failure: Mapping[str, Any] | None
) -> Verdict:
    """The verdict on all rounds of a table in the run, of which the last one was reported."""
    if failure and failure.get("kind") == RoundsNotEnough.__name__:  # its rounds were committed
        why = f"{failure['kind']}: {failure.get('reason')}"
        return replace(verdict, reported="failed", reason=why)
    return replace(verdict, rows=verdict.rows + int((result or {}).get("rows_before", 0)))


def _outcome_without_result(
    plan_uri: str, failure: Mapping[str, Any] | None, state: str | None, stop_seen_s: float
) -> Outcome | None:
    """The outcome of a tier task that left no result XCom. None: its worker was lost."""
    left = _outcome_in_files(plan_uri)
    begun = bool(failure) or _has_begun(plan_uri)
    at_work = not failure and _is_without_failure(plan_uri)
    if at_work if state in STOPS else state == "failed" and begun and not failure:
        left = _wait_for_stop(plan_uri, left, stop_seen_s)
    if isinstance(left, RoundResult) or _is_stop(left):
        return left
    if not begun and (why := NOT_STARTED.get(str(state))):
        return RoundFailure(Reason.from_text(why, kind=TIER_NOT_STARTED))
    if state in STOPS:  # an earlier try's failure does not count for a try that a user stopped
        return _stop(state) if left is None or at_work else left
    return _failure(failure, left)


def drop(
    client: Client,
    work_uri: str,
    lease_id: str,
    entries: Iterable[ClaimedTable] = (),
    *,
    acquired: bool = True,
    stop_seen_s: float = 0.0,
    limit_s: float = math.inf,
) -> list[Verdict]:
    """Reports every claim that a run still holds, and drops its lease.

    Runs after the settle tasks, or in place of them. A table that has a result is reported as
    finished. A claim whose tiering never began is released, which is no failure.

    :param entries: what acquire_lease returned: their plans are known if no folder can be listed.
    :param acquired: whether acquire_lease has succeeded. If not, it may work on, and is told.
    :param stop_seen_s: how long to wait for the files of tier tasks that are being killed.
    :param limit_s: seconds after which the other claims are released, whatever became of them.
    :raises NetworkError, RequestTimeOut: the coordinator is away. The claims end by themselves, and
        the lease expires.
    """
    until = time.monotonic() + limit_s
    if not acquired:
        mark_run_ended(work_uri, lease_id)
    plans = {entry["plan_uri"]: claim_of(entry) for entry in entries}
    try:
        verdicts = _report_held(client, work_uri, lease_id, plans, stop_seen_s, until)
        why = NOT_BEGUN if time.monotonic() < until else NO_TIME
        verdicts += release_unplanned(client, lease_id, [], why=why, until=until + RELEASE_S)
    except (NetworkError, RequestTimeOut):
        raise  # the coordinator is away: not one time limit for each call
    except BaseException:
        leasing.drop_lease(client, lease_id)
        raise
    leasing.drop_lease(client, lease_id)
    return verdicts


def unsettled(entry: ClaimedTable) -> Verdict | None:
    """The verdict on a table that no task has told of, by its files; None: they do not tell.

    A settle task without an answer of the coordinator has reported nothing.
    """
    entry = _newest(entry)
    table = entry["table"]
    outcome = _outcome_in_files(entry["plan_uri"])
    if isinstance(outcome, RoundResult):
        if outcome.outcome == "claim_lost":
            return _claim_lost(table, outcome)
        return _unless_short(entry, outcome, _finished(table, outcome))
    if isinstance(outcome, RoundFailure):
        return _stopped(table, outcome) if _is_stop(outcome) else _failed(table, outcome)
    return None


def is_tiered(entry: ClaimedTable) -> bool:
    """Whether the files of a run show that it has tiered a table, up to the end it must reach."""
    entry = _newest(entry)
    outcome = _outcome_in_files(entry["plan_uri"])
    if not isinstance(outcome, RoundResult) or outcome.outcome == "claim_lost":
        return False
    plan = _read(PlanFile, entry["plan_uri"]) if entry.get("must_reach_end") else None
    return plan is None or plan.is_reached(outcome)


def tiered_before(work_uri: str, lease_id: str, tables: Collection[str]) -> list[Verdict]:
    """The verdicts on tables that the run has tiered before a user cleared it, by their files."""
    found: dict[str, Verdict] = {}
    try:
        for uri in plan_uris(work_uri, lease_id):
            table = str(PlanFile.from_json(read_json(uri) or {}).claim.path)
            outcome = _outcome_in_files(uri) if table in tables else None
            if isinstance(outcome, RoundResult) and outcome.outcome != "claim_lost":
                found[table] = _finished(table, outcome)
    except UNREADABLE as error:
        log.warning("cannot read the earlier results of %s: %s", lease_id, mask(str(error)))
    return [*found.values()]


def release_unplanned(
    client: Client,
    lease_id: str,
    planned: Collection[Claim],
    is_others: Callable[[Claim], bool] = lambda _claim: False,
    why: str = NOT_BEGUN,
    until: float = math.inf,
) -> list[Verdict]:
    """Releases the claims of a run that have no plan: a killed acquire_lease had them last.

    :param planned: the run's claims that have a plan.
    :param is_others: whether another task of the run has a claim, which is then left alone.
    :param until: when (of ``time.monotonic``) to stop: the claims that are left end by themselves.
    :raises NetworkError, RequestTimeOut: the coordinator is away.
    """
    try:
        held = client.tiering.claims_of(lease_id)
    except (NetworkError, RequestTimeOut):
        raise
    except SluiceError as error:
        log.warning("the claims of %s cannot be listed: %s", lease_id, mask(str(error)))
        return []
    left = [claim for claim in held if claim not in planned and not is_others(claim)]
    verdicts: list[Verdict] = []
    for claim in left:
        if time.monotonic() >= until:
            log.warning("%d claims of %s end by themselves", len(left) - len(verdicts), lease_id)
            break
        verdicts.append(_release(client, claim, why))
    return verdicts


def _report_held(
    client: Client,
    work_uri: str,
    lease_id: str,
    plans: dict[str, Claim],
    stop_seen_s: float,
    until: float,
) -> list[Verdict]:
    """Reports the claims of these plans, and of those in the run's folder, that are held."""
    try:
        for uri in plan_uris(work_uri, lease_id):
            if uri not in plans and time.monotonic() < until:
                plans[uri] = PlanFile.from_json(read_json(uri) or {}).claim
    except UNREADABLE as error:
        log.warning(
            "cannot read the plans of %s under %s: %s", lease_id, work_uri, mask(str(error))
        )
    answers = heartbeat_all(client, plans.values())
    held = [(uri, claim) for uri, claim in plans.items() if answers[claim] is None]
    seen_until = min(until, time.monotonic() + stop_seen_s)
    verdicts: list[Verdict] = []
    for uri, claim in held:
        if time.monotonic() >= until:
            break
        outcome, begun = _outcome_in_files(uri), _has_begun(uri)
        if begun and not _is_final(outcome) and _is_without_failure(uri):
            outcome = _wait_for_stop(uri, outcome, max(0.0, seen_until - time.monotonic()))
        mark_reported(uri)
        delete_keys(keys_uri(uri))
        if outcome is None and not begun:
            verdicts.append(_release(client, claim, NOT_BEGUN))
        else:
            verdicts.append(_report(client, uri, claim, outcome, RUN_ENDED, lease_id))
    return verdicts


def _release(client: Client, claim: Claim, why: str) -> Verdict:
    """Releases a claim, after which the table is due at once."""
    table = str(claim.path)
    try:
        client.tiering.release(claim, Reason.from_text(why))
    except NO_REPORT_EXPECTED as error:
        log.info("%s: the claim ended before it was released: %s", table, error)
        return Verdict(table, "nothing", f"{type(error).__name__}: {error}")
    return Verdict(table, "released", why)


def _newest(entry: ClaimedTable) -> ClaimedTable:
    """The claim that the run's keeper took in place of a lost one, or this one."""
    try:
        return newest_claim(entry)
    except UNREADABLE as error:
        log.warning("cannot read whether %s was claimed again: %s", entry["table"], error)
        return entry


def _end(entry: ClaimedTable) -> ClaimedTable:
    """Marks that the run reports the claim. Returns the newest claim of the table."""
    while True:
        entry = _newest(entry)
        mark_reported(entry["plan_uri"])
        # The keeper may have claimed the table again just before the mark.
        if _newest(entry) == entry:
            return entry


def _has_begun(plan_uri: str) -> bool:
    """Whether a tier task has begun to work on the claim; True if that cannot be read."""
    try:
        return has_begun(plan_uri)
    except UNREADABLE as error:
        log.warning("cannot read whether a task works on %s: %s", plan_uri, mask(str(error)))
        return True


def mark_reported(plan_uri: str) -> None:
    """Keeps the run's keeper from claiming the table again; call it before a report."""
    try:
        mark_ended(plan_uri)
    except UNREADABLE as error:
        log.warning("cannot mark that %s is reported: %s", plan_uri, mask(str(error)))


def _outcome_in_files(plan_uri: str) -> Outcome | None:
    """The outcome of the round. A stop counts only for the last try that began."""
    try:
        outcome = round_outcome(plan_uri)
        if not _is_stop(outcome):
            return outcome
        last, failures = started_attempt(plan_uri), round_failures(plan_uri)
        counted = [f for a, f in failures.items() if last in (None, a) or not _is_stop(f)]
        return counted[-1] if counted else None
    except UNREADABLE as error:
        log.warning("cannot read the outcome next to %s: %s", plan_uri, mask(str(error)))
        return None


def _is_without_failure(plan_uri: str) -> bool:
    """Whether the last try that began left no failure file."""
    try:
        last = started_attempt(plan_uri)
        return last is not None and last not in round_failures(plan_uri)
    except UNREADABLE as error:
        log.warning("cannot read the failures next to %s: %s", plan_uri, mask(str(error)))
        return False


def _of_claim(
    entry: ClaimedTable, xcom: Mapping[str, Any] | None, key: str
) -> Mapping[str, Any] | None:
    """The XCom, unless it is of an earlier claim: a cleared task keeps its XComs until it starts.

    :param key: where the XCom has the address of its file, which is next to the plan of its claim.
    """
    folder, _, name = str((xcom or {}).get(key) or "").rpartition("/")
    return None if name and folder != entry["plan_uri"].rpartition("/")[0] else xcom


def _result(plan_uri: str, xcom: Mapping[str, Any]) -> RoundResult:
    """The result that the XCom names, or any other of the round; else the XCom itself."""
    named = _read(RoundResult, xcom.get("result_uri"))
    if named is not None and named.outcome != "claim_lost":
        return named
    found = _outcome_in_files(plan_uri)  # another try may have committed
    if isinstance(found, RoundResult):
        return found
    log.warning("%s: no result file can be read; its summary in XCom is used", xcom.get("table"))
    return RoundResult.from_json({**xcom, "lake_snapshot_id": id_of(xcom.get("lake_snapshot_id"))})


def _failure(xcom: Mapping[str, Any] | None, left: RoundFailure | None) -> RoundFailure | None:
    """The failure of the last try, which the XCom names. A try that was killed has no XCom.

    :param left: the last failure in the files.
    """
    if xcom:
        if named := _read(RoundFailure, xcom.get("failure_uri")):
            return named
        table = xcom.get("table")
        log.warning("%s: no failure file can be read; its summary in XCom is used", table)
        return RoundFailure(Reason(str(xcom.get("kind", "")), str(xcom.get("reason", ""))))
    if left is not None:
        words = f"{TASK_LOST}; an earlier try failed"
        return RoundFailure(left.reason.caused(DriverLost.__name__, words))
    return None


def _is_stop(outcome: Outcome | None) -> bool:
    return isinstance(outcome, RoundFailure) and outcome.reason.kind in STOP_KINDS


def _is_final(outcome: Outcome | None) -> bool:
    return isinstance(outcome, RoundResult) or _is_stop(outcome)


def _stop(state: str | None) -> RoundFailure:
    """The end of a tier task without an outcome, in a state that only a user's act explains."""
    return RoundFailure(Reason.from_text(STOPS[str(state)], kind=StoppedByUser.__name__))


def _wait_for_stop(plan_uri: str, left: Outcome | None, seconds: float) -> Outcome | None:
    """Waits for the file of a task that is being killed: its mark was seen before its end.

    A lost worker leaves no file. Its heartbeats stopped minutes before Airflow reported it.
    """
    until = time.monotonic() + seconds
    while not _is_final(left) and time.monotonic() < until:
        time.sleep(min(1.0, seconds))
        left = _outcome_in_files(plan_uri)
    return left


def _read(kind: type[T], uri: str | None) -> T | None:
    """The outcome in a file; None if there is none that can be read."""
    try:
        content = read_json(uri) if uri else None
        return None if content is None else kind.from_json(content)
    except UNREADABLE as error:
        log.warning("cannot read %s: %s", uri, mask(str(error)))
        return None


def _report(
    client: Client,
    plan_uri: str,
    claim: Claim,
    outcome: Outcome | None,
    otherwise: str,
    worker: str | None,
) -> Verdict:
    table = str(claim.path)
    try:
        if isinstance(outcome, RoundResult):
            if outcome.outcome == "claim_lost":
                log.info("%s: another round has the table; nothing to report", table)
                return _claim_lost(table, outcome)
            # No statistics: Fluss expects totals of the lake table, and a round knows only its
            # own. The coordinator keeps the last reported totals.
            details = outcome.details(worker, **ran_by(plan_uri))
            client.tiering.finished(claim, forced=bool(outcome.forced), details=details)
            return _finished(table, outcome)
        failure = outcome or RoundFailure(Reason.from_text(otherwise))
        reason = failure.reason.checked()
        if reason.kind in RELEASED_KINDS:
            client.tiering.release(claim, reason, stopped=True)
            return _stopped(table, failure)
        client.tiering.failed(claim, reason, failure.details(worker, **ran_by(plan_uri)))
        return _failed(table, failure)
    except NO_REPORT_EXPECTED as error:
        log.info("%s: the coordinator expects no report of this round: %s", table, error)
        why = f"{type(error).__name__}: {error}"
        if isinstance(outcome, RoundResult):
            return _finished(table, outcome, why)
        if outcome is not None and outcome.reason.kind == TablePaused.__name__:
            return _stopped(table, outcome)  # its tier task has released it
        return Verdict(table, "failed", why) if outcome is None else _failed(table, outcome)


def _finished(table: str, result: RoundResult, reason: str = "") -> Verdict:
    forced = f", forced: {result.forced}" if result.forced else ""
    text = reason or f"{result.outcome}{forced}"
    return Verdict(table, "finished", text, result.outcome, **_landed(result))


def _claim_lost(table: str, result: RoundResult) -> Verdict:
    return Verdict(table, "nothing", "; ".join(result.notes) or "claim lost", result.outcome)


def _stopped(table: str, failure: RoundFailure) -> Verdict:
    reason = failure.reason.checked()
    found = PAUSED if reason.kind == TablePaused.__name__ else ""
    return Verdict(table, "released", str(reason), found)


def _failed(table: str, failure: RoundFailure) -> Verdict:
    return Verdict(table, "failed", str(failure.reason.checked()), **_landed(failure.committed))


def _landed(result: RoundResult | None) -> dict[str, Any]:
    """What a verdict says of the rows that a round has committed."""
    if result is None:
        return {}
    return {
        "rows": result.rows,
        "lake_snapshot_id": result.lake_snapshot_id,
        "offsets_sum": sum(result.offsets.values()) if result.offsets else None,
        "tiering_epoch": result.tiering_epoch,
    }
