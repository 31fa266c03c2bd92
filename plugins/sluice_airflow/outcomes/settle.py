"""Reports the outcome of tables to the coordinator. Every function is safe to repeat."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from sluice.errors import (
    FencedTieringEpoch,
    InvalidCoordinator,
    NetworkError,
    RequestTimeOut,
    RoundsNotEnough,
    SluiceError,
    SparkSettingsWrong,
    TableNotExist,
    TablePaused,
)
from sluice.failpoints import failpoint
from sluice.masking import mask
from sluice.model import Claim, Reason
from sluice.rounds.records.json_files import read_json
from sluice.rounds.records.plan_file import PlanFile, claim_of, plan_uris
from sluice.rounds.records.result import RoundFailure, RoundResult
from sluice.rounds.records.run_files import delete_keys, keys_uri
from sluice_airflow.claims import leasing
from sluice_airflow.claims.claimed_again import newest_claim
from sluice_airflow.claims.claims import ClaimedTable, heartbeat_all
from sluice_airflow.claims.run_end import mark_run_ended
from sluice_airflow.claims.task_runs import RanBy, ran_by
from sluice_airflow.claims.unreadable import logged

if TYPE_CHECKING:
    from sluice.client import Client
from sluice_airflow.outcomes.left_files import (
    STOP_KINDS,
    STOPS,
    TASK_LOST,
    TIER_NOT_STARTED,
    Outcome,
    failure_of,
    has_task_begun,
    is_final,
    is_stop,
    is_without_failure,
    mark_reported,
    outcome_in_files,
    read_left,
    result_of,
    stop_of,
    wait_for_stop,
)
from sluice_airflow.outcomes.verdict import (
    Verdict,
    failed_verdict,
    finished_verdict,
    lost_verdict,
    stopped_verdict,
)

log = logging.getLogger(__name__)

NO_REPORT_EXPECTED = (FencedTieringEpoch, InvalidCoordinator, TableNotExist)
"""The coordinator expects no report: it has one, it ended the claim, or the table was dropped."""


RUN_ENDED = "the run ended before the table was tiered"
RELEASED_KINDS = STOP_KINDS | {TIER_NOT_STARTED, SparkSettingsWrong.__name__}
"""What is no failure of the table: its claim is released, and its status tells the reason."""
NOT_STARTED = {
    "failed": "the task tier failed before it began: a user or Airflow's executor ended it",
    "upstream_failed": "the task tier was not run, because a task before it failed",
}
"""By the state of a tier task that has not begun."""
NOT_BEGUN = "the run ended before the tiering of the table began"
NO_TIME = "the run ended, and no time was left to read what became of the table"

STOP_SEEN_S = 15.0
"""How long a task that a user marked may run on: Airflow kills it at its next heartbeat."""

RELEASE_S = 10.0
"""How long the releases of the claims may take whose tables could not be reported in time."""


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
        outcome = result_of(entry["plan_uri"], result)
    else:
        outcome = _outcome_without_result(entry["plan_uri"], failure, state, stop_seen_s)
    delete_keys(keys_uri(entry["plan_uri"]))  # a killed driver could not
    failpoint("airflow.settle.before_report")
    if is_reported and outcome is not None:
        verdict = _verdict_of(entry["table"], outcome)
    else:
        who = partial(ran_by, entry["plan_uri"])
        verdict = report(client, claim_of(entry), outcome, entry.get("lease_id"), who)
    failpoint("airflow.settle.before_release")
    leasing.release_snapshots(client, entry)
    return _unless_short(entry, outcome, verdict)


def _unless_short(entry: ClaimedTable, outcome: Outcome | None, verdict: Verdict) -> Verdict:
    """The verdict on a table that must reach an end, whose task was killed after a forced round."""
    if not entry.get("must_reach_end") or not isinstance(outcome, RoundResult):
        return verdict
    if verdict.reported != "finished" or not outcome.offsets:
        return verdict
    plan = read_left(PlanFile, entry["plan_uri"])
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
    left = outcome_in_files(plan_uri)
    begun = bool(failure) or has_task_begun(plan_uri)
    at_work = not failure and is_without_failure(plan_uri)
    if at_work if state in STOPS else state == "failed" and begun and not failure:
        left = wait_for_stop(plan_uri, left, stop_seen_s)
    if isinstance(left, RoundResult) or is_stop(left):
        return left
    if not begun and (why := NOT_STARTED.get(str(state))):
        return RoundFailure(Reason.from_text(why, kind=TIER_NOT_STARTED))
    if state in STOPS:  # an earlier try's failure does not count for a try that a user stopped
        return stop_of(state) if left is None or at_work else left
    return failure_of(failure, left)


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
    outcome = outcome_in_files(entry["plan_uri"])
    if outcome is None:
        return None
    return _unless_short(entry, outcome, _verdict_of(entry["table"], outcome))


def is_tiered(entry: ClaimedTable) -> bool:
    """Whether the files of a run show that it has tiered a table, up to the end it must reach."""
    entry = _newest(entry)
    outcome = outcome_in_files(entry["plan_uri"])
    if not isinstance(outcome, RoundResult) or outcome.outcome == "claim_lost":
        return False
    plan = read_left(PlanFile, entry["plan_uri"]) if entry.get("must_reach_end") else None
    return plan is None or plan.is_reached(outcome)


def tiered_before(work_uri: str, lease_id: str, tables: Collection[str]) -> list[Verdict]:
    """The verdicts on tables that the run has tiered before a user cleared it, by their files."""
    found: dict[str, Verdict] = {}
    with logged(f"read the earlier results of {lease_id}"):
        for uri in plan_uris(work_uri, lease_id):
            table = str(PlanFile.from_json(read_json(uri) or {}).claim.path)
            outcome = outcome_in_files(uri) if table in tables else None
            if isinstance(outcome, RoundResult) and outcome.outcome != "claim_lost":
                found[table] = finished_verdict(table, outcome)
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
    with logged(f"read the plans of {lease_id} under {work_uri}"):
        for uri in plan_uris(work_uri, lease_id):
            if uri not in plans and time.monotonic() < until:
                plans[uri] = PlanFile.from_json(read_json(uri) or {}).claim
    answers = heartbeat_all(client, plans.values())
    held = [(uri, claim) for uri, claim in plans.items() if answers[claim] is None]
    seen_until = min(until, time.monotonic() + stop_seen_s)
    verdicts: list[Verdict] = []
    for uri, claim in held:
        if time.monotonic() >= until:
            break
        outcome, begun = outcome_in_files(uri), has_task_begun(uri)
        if begun and not is_final(outcome) and is_without_failure(uri):
            outcome = wait_for_stop(uri, outcome, max(0.0, seen_until - time.monotonic()))
        mark_reported(uri)
        delete_keys(keys_uri(uri))
        if outcome is None and not begun:
            verdicts.append(_release(client, claim, NOT_BEGUN))
        else:
            who = partial(ran_by, uri)
            verdicts.append(report(client, claim, outcome, lease_id, who, RUN_ENDED))
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
    with logged(f"read whether {entry['table']} was claimed again"):
        return newest_claim(entry)
    return entry


def _end(entry: ClaimedTable) -> ClaimedTable:
    """Marks that the run reports the claim. Returns the newest claim of the table."""
    while True:
        entry = _newest(entry)
        mark_reported(entry["plan_uri"])
        # The keeper may have claimed the table again just before the mark.
        if _newest(entry) == entry:
            return entry


def _of_claim(
    entry: ClaimedTable, xcom: Mapping[str, Any] | None, key: str
) -> Mapping[str, Any] | None:
    """The XCom, unless it is of an earlier claim: a cleared task keeps its XComs until it starts.

    :param key: where the XCom has the address of its file, which is next to the plan of its claim.
    """
    folder, _, name = str((xcom or {}).get(key) or "").rpartition("/")
    return None if name and folder != entry["plan_uri"].rpartition("/")[0] else xcom


def report(
    client: Client,
    claim: Claim,
    outcome: Outcome | None,
    worker: str | None,
    who: Callable[[], RanBy],
    otherwise: str = TASK_LOST,
    secrets: Sequence[str] = (),
) -> Verdict:
    """Reports the outcome of a table, or releases its claim if that is no failure of the table.

    :param worker: the lease of the run.
    :param who: returns who ran the round.
    :param otherwise: the reason of a failure without an outcome.
    :raises FlussError: the coordinator has not answered.
    """
    table = str(claim.path)
    ended = outcome or RoundFailure(Reason.from_text(otherwise))
    try:
        if isinstance(ended, RoundResult):
            if ended.outcome == "claim_lost":
                log.info("%s: another round has the table; nothing to report", table)
            else:
                # No statistics: Fluss expects totals of the lake table, and a round knows only its
                # own. The coordinator keeps the last reported totals.
                details = ended.details(worker, **who())
                client.tiering.finished(claim, forced=bool(ended.forced), details=details)
        elif ended.reason.kind in RELEASED_KINDS:
            client.tiering.release(claim, ended.reason.checked(secrets), stopped=True)
        else:
            details = ended.details(worker, **who())
            client.tiering.failed(claim, ended.reason.checked(secrets), details)
        return _verdict_of(table, ended)
    except NO_REPORT_EXPECTED as error:
        log.info("%s: the coordinator expects no report of this round: %s", table, error)
        why = f"{type(error).__name__}: {error}"
        if isinstance(outcome, RoundResult):
            return finished_verdict(table, outcome, why)
        if outcome is not None and outcome.reason.kind == TablePaused.__name__:
            return stopped_verdict(table, outcome)  # its tier task has released it
        return Verdict(table, "failed", why) if outcome is None else failed_verdict(table, outcome)


def _verdict_of(table: str, outcome: Outcome) -> Verdict:
    """What is reported of an outcome."""
    if isinstance(outcome, RoundResult):
        is_lost = outcome.outcome == "claim_lost"
        return lost_verdict(table, outcome) if is_lost else finished_verdict(table, outcome)
    is_released = outcome.reason.kind in RELEASED_KINDS
    return stopped_verdict(table, outcome) if is_released else failed_verdict(table, outcome)
