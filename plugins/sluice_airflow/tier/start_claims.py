"""Starts the claims of a try of the tier task. Does not import Airflow."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sluice.errors import ClaimLost
from sluice.rounds.records.plan_file import claim_of
from sluice_airflow.claims.claimed_again import is_started, mark_started, newest_claim
from sluice_airflow.claims.claims import ClaimedTable, heartbeat_all

if TYPE_CHECKING:
    from sluice.client import Client

CLAIMED_AGAIN_POLL_S = 1.0
AT_ONCE = 16
"""Files that are read or written at the same time."""


@dataclass(frozen=True, slots=True)
class StartedClaims:
    """The claims of a try, after it marked that it works on them."""

    held: list[ClaimedTable] = field(default_factory=list)
    lost: list[tuple[ClaimedTable, ClaimLost]] = field(default_factory=list)


def start_claims(
    client: Client,
    entries: Sequence[ClaimedTable],
    attempt: str,
    wait_s: float,
    missing_keeper: Callable[[], str],
    task: str | None = None,
) -> StartedClaims:
    """Finds the newest claim of each table, and marks that this try works on it.

    If a claim was lost, the keeper of the run may claim the table again, at its next heartbeat.
    Without a keeper, the try does not wait.

    :param wait_s: how long to wait for the keeper, in seconds.
    :param missing_keeper: returns why the keeper claims nothing again; empty if it may. It is asked
        once, if a claim is lost.
    :param task: the task instance of the try, for the history of the tables.
    """
    until = time.monotonic() + wait_s
    found = StartedClaims()
    waiting = list(entries)
    no_keeper: str | None = None
    while waiting:
        waiting = _at_once(newest_claim, waiting)
        answers = heartbeat_all(client, map(claim_of, waiting))
        ended = time.monotonic() >= until
        left: list[ClaimedTable] = []
        begun: list[ClaimedTable] = []
        for entry in waiting:
            error = answers[claim_of(entry)]
            gives_up = error is not None and (ended or is_started(entry["plan_uri"]))
            if error is not None and not gives_up and no_keeper is None:
                no_keeper = missing_keeper()
            is_waiting = error is not None and not gives_up and not no_keeper
            (left if is_waiting else begun).append(entry)

        def mark(entry: ClaimedTable) -> ClaimedTable:
            mark_started(entry["plan_uri"], attempt, task)
            return newest_claim(entry)

        for entry, newest in zip(begun, _at_once(mark, begun), strict=True):
            error = answers[claim_of(entry)]
            if newest != entry:  # the keeper has claimed the table again just before the mark
                left.append(newest)
            elif error is None:
                found.held.append(entry)
            else:
                why = f"{error}; not claimed again: {no_keeper}" if no_keeper else error
                lost = ClaimLost(f"the claim was lost before Spark started: {why}")
                found.lost.append((entry, lost))
        waiting = left
        if waiting:
            time.sleep(CLAIMED_AGAIN_POLL_S)
    return found


def _at_once(
    do: Callable[[ClaimedTable], ClaimedTable], entries: Sequence[ClaimedTable]
) -> list[ClaimedTable]:
    """Calls a function for each table. On S3 a file takes tens of milliseconds: no claim may end
    while the files of hundreds of tables are written."""
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="sluice-start") as pool:
        return list(pool.map(do, entries))
