"""Tells the coordinator how tables ended. Plain functions, every one safe to repeat."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sluice.errors import (
    FencedTieringEpoch,
    InvalidCoordinator,
    SluiceError,
    TableNotExist,
)
from sluice.failpoints import failpoint
from sluice.masking import mask, reason_text
from sluice.model import Claim
from sluice.rounds.files import (
    PlanFile,
    RoundFailure,
    RoundResult,
    plan_uris,
    read_json,
    round_outcome,
)
from sluice_airflow import leasing
from sluice_airflow.claims import Entry, claim_of

if TYPE_CHECKING:
    from sluice.client import Client

log = logging.getLogger(__name__)

GONE = (FencedTieringEpoch, InvalidCoordinator, TableNotExist)
"""The coordinator no longer counts this round: reported before, taken back, or dropped."""

UNREADABLE = (OSError, SluiceError, ValueError, ImportError)
"""What reading files may raise: storage, another version, no JSON, a file system not installed."""

RUN_ENDED = "the run ended before the table was tiered"
TASK_LOST = "the task that ran the Spark driver was lost"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the coordinator was told of one table: finished, failed or nothing, and why."""

    table: str
    reported: str
    reason: str = ""


def settle(
    client: Client,
    entry: Entry,
    result: Mapping[str, Any] | None,
    failure: Mapping[str, Any] | None,
) -> Verdict:
    """Reports one table as its tier ended, by its result, else by its reason; ends its lease.

    :param result: the tier's result XCom; trusted over the state of the task.
    :param failure: the tier's ``failure`` XCom: kind, reason, failure_uri.
    """
    if result:
        outcome: RoundResult | RoundFailure | None = RoundResult.from_json(dict(result))
    else:
        outcome = _left_behind(entry["plan_uri"])
        if not isinstance(outcome, RoundResult):
            outcome = _failure(failure, outcome)
    failpoint("airflow.settle.before_report")
    verdict = _report(client, claim_of(entry), outcome, TASK_LOST)
    failpoint("airflow.settle.before_release")
    leasing.release(client, entry)
    return verdict


def drop(
    client: Client, work_uri: str, lease_id: str, entries: Iterable[Entry] = ()
) -> list[Verdict]:
    """Reports every claim of a run that is still held, and drops its lease: nothing stays behind.

    It comes after the settles, or in their place: a table that has a result is reported finished.
    """
    try:
        return _report_left(client, work_uri, lease_id, entries)
    finally:
        leasing.drop(client, lease_id)


def _report_left(
    client: Client, work_uri: str, lease_id: str, entries: Iterable[Entry]
) -> list[Verdict]:
    plans = {entry["plan_uri"]: claim_of(entry) for entry in entries}
    try:
        for uri in plan_uris(work_uri, lease_id):
            plans[uri] = PlanFile.from_json(read_json(uri) or {}).claim
    except UNREADABLE as error:
        log.warning("plans of %s under %s: %s", lease_id, work_uri, mask(str(error)))
    held = {uri: claim for uri, claim in plans.items() if _is_held(client, claim)}
    return [_report(client, held[uri], _left_behind(uri), RUN_ENDED) for uri in held]


def _is_held(client: Client, claim: Claim) -> bool:
    """Asks one by one: two epochs of one table may be in one run's folder."""
    return client.tiering.heartbeat([claim])[claim.table_id] is None


def _left_behind(plan_uri: str) -> RoundResult | RoundFailure | None:
    try:
        return round_outcome(plan_uri)
    except UNREADABLE as error:
        log.warning("results beside %s: %s", plan_uri, mask(str(error)))
        return None


def _failure(failure: Mapping[str, Any] | None, left: RoundFailure | None) -> RoundFailure | None:
    """The XCom speaks for the last try; the files hold the whole text, and earlier tries."""
    if failure:
        told = RoundFailure(str(failure.get("kind", "")), str(failure.get("reason", "")), "", False)
        whole = (
            left is not None
            and left.kind == told.kind
            and left.reason.startswith(told.reason.removesuffix("..."))
        )
        return left if whole else told
    if left is not None:
        reason = f"{TASK_LOST}; an earlier try said {left.kind}: {left.reason}"
        return RoundFailure("DriverLost", reason, left.deepest_cause, True)
    return None


def _report(
    client: Client, claim: Claim, outcome: RoundResult | RoundFailure | None, otherwise: str
) -> Verdict:
    table = str(claim.path)
    try:
        if isinstance(outcome, RoundResult):
            if outcome.outcome == "claim_lost":
                log.info("%s: another round was begun; nothing to report", table)
                return Verdict(table, "nothing", "claim lost")
            # Without statistics: Fluss means totals of the lake table, a round knows its own only,
            # and the coordinator keeps what it was told before.
            client.tiering.finished(claim, forced=bool(outcome.forced))
            forced = f", forced: {outcome.forced}" if outcome.forced else ""
            return Verdict(table, "finished", f"{outcome.outcome}{forced}")
        reason = otherwise if outcome is None else reason_of(outcome)
        client.tiering.failed(claim, reason)
        return Verdict(table, "failed", reason)
    except GONE as error:
        log.info("%s: the coordinator no longer counts this round: %s", table, error)
        told = "finished" if isinstance(outcome, RoundResult) else "failed"
        return Verdict(table, told, f"{type(error).__name__}: {error}")


def reason_of(failure: RoundFailure) -> str:
    """One line for the coordinator's status: the kind of error and its reason."""
    return reason_text(f"{failure.kind}: {failure.reason}")
