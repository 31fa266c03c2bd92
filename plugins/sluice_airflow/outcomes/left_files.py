"""What a driver and its tier task have left of a round: files first, XComs in their place."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, TypeVar

from sluice.errors import DriverLost, StoppedByUser, TablePaused
from sluice.model import Reason
from sluice.rounds.records.json_files import read_json
from sluice.rounds.records.plan_file import PlanFile
from sluice.rounds.records.result import RoundFailure, RoundResult, round_failures, round_outcome
from sluice_airflow.claims.claimed_again import has_begun, mark_ended, started_try
from sluice_airflow.claims.unreadable import logged

log = logging.getLogger(__name__)
Outcome = RoundResult | RoundFailure
STOPS = {
    "success": "a user marked the task tier as success before it had a result",
    "skipped": "a user ended the run before the task tier was run",
}
"""States that a tier task without a result has only after a user's act."""
TIER_NOT_STARTED = "TierNotStarted"
STOP_KINDS = frozenset({StoppedByUser.__name__, TablePaused.__name__})
"""Ends of a round that a user caused: no failures."""
TASK_LOST = "the task that ran the Spark driver was lost"
T = TypeVar("T", RoundResult, RoundFailure, PlanFile)


def has_task_begun(plan_uri: str) -> bool:
    """Whether a tier task has begun to work on the claim; True if that cannot be read."""
    with logged(f"read whether a task works on {plan_uri}"):
        return has_begun(plan_uri)
    return True


def mark_reported(plan_uri: str) -> None:
    """Keeps the run's keeper from claiming the table again; call it before a report."""
    with logged(f"mark that {plan_uri} is reported"):
        mark_ended(plan_uri)


def outcome_in_files(plan_uri: str) -> Outcome | None:
    """The outcome of the round. A stop counts only for the last try that began."""
    with logged(f"read the outcome next to {plan_uri}"):
        outcome = round_outcome(plan_uri)
        if not is_stop(outcome):
            return outcome
        last, failures = started_try(plan_uri)[0], round_failures(plan_uri)
        counted = [f for a, f in failures.items() if last in (None, a) or not is_stop(f)]
        return counted[-1] if counted else None
    return None


def is_without_failure(plan_uri: str) -> bool:
    """Whether the last try that began left no failure file."""
    with logged(f"read the failures next to {plan_uri}"):
        last, _ = started_try(plan_uri)
        return last is not None and last not in round_failures(plan_uri)
    return False


def result_of(plan_uri: str, xcom: Mapping[str, Any]) -> RoundResult:
    """The result that the XCom names, or any other of the round; else the XCom itself."""
    named = read_left(RoundResult, xcom.get("result_uri"))
    if named is not None and named.outcome != "claim_lost":
        return named
    found = outcome_in_files(plan_uri)  # another try may have committed
    if isinstance(found, RoundResult):
        return found
    log.warning("%s: no result file can be read; its summary in XCom is used", xcom.get("table"))
    snapshot_id = xcom.get("lake_snapshot_id")
    known = {"lake_snapshot_id": None if snapshot_id is None else int(snapshot_id)}
    return RoundResult.from_json({**xcom, **known})


def failure_of(xcom: Mapping[str, Any] | None, left: RoundFailure | None) -> RoundFailure | None:
    """The failure of the last try, which the XCom names. A try that was killed has no XCom.

    :param left: the last failure in the files.
    """
    if xcom:
        if named := read_left(RoundFailure, xcom.get("failure_uri")):
            return named
        table = xcom.get("table")
        log.warning("%s: no failure file can be read; its summary in XCom is used", table)
        return RoundFailure(Reason(str(xcom.get("kind", "")), str(xcom.get("reason", ""))))
    if left is not None:
        words = f"{TASK_LOST}; an earlier try failed"
        return RoundFailure(left.reason.caused(DriverLost.__name__, words))
    return None


def is_stop(outcome: Outcome | None) -> bool:
    return isinstance(outcome, RoundFailure) and outcome.reason.kind in STOP_KINDS


def is_final(outcome: Outcome | None) -> bool:
    return isinstance(outcome, RoundResult) or is_stop(outcome)


def stop_of(state: str | None) -> RoundFailure:
    """The end of a tier task without an outcome, in a state that only a user's act explains."""
    return RoundFailure(Reason.from_text(STOPS[str(state)], kind=StoppedByUser.__name__))


def wait_for_stop(plan_uri: str, left: Outcome | None, seconds: float) -> Outcome | None:
    """Waits for the file of a task that is being killed: its mark was seen before its end.

    A lost worker leaves no file. Its heartbeats stopped minutes before Airflow reported it.
    """
    until = time.monotonic() + seconds
    while not is_final(left) and time.monotonic() < until:
        time.sleep(min(1.0, seconds))
        left = outcome_in_files(plan_uri)
    return left


def read_left(kind: type[T], uri: str | None) -> T | None:
    """The outcome in a file; None if there is none that can be read."""
    with logged(f"read {uri}"):
        content = read_json(uri) if uri else None
        return None if content is None else kind.from_json(content)
    return None
