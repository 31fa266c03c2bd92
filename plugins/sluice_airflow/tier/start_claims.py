"""Starts the claims of a try of the tier task. Does not import Airflow."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from sluice.errors import ClaimLost
from sluice_airflow.claims.claimed_again import is_started, mark_started, newest_claim
from sluice_airflow.claims.claims import ClaimedTable, heartbeat_all
from sluice_airflow.tier.tried_table import TriedTable

if TYPE_CHECKING:
    from sluice.client import Client

CLAIMED_AGAIN_POLL_S = 1.0
AT_ONCE = 16
"""Files that are read or written at the same time."""
T = TypeVar("T")


def start_claims(
    client: Client,
    tables: Sequence[TriedTable],
    wait_s: float,
    missing_keeper: Callable[[], str],
) -> list[TriedTable]:
    """Finds the newest claim of each table, and marks that this try works on it.

    If a claim was lost, the keeper of the run may claim the table again, at its next heartbeat.
    Without a keeper, the try does not wait.

    :param wait_s: how long to wait for the keeper, in seconds.
    :param missing_keeper: returns why the keeper claims nothing again; empty if it may. It is asked
        once, if a claim is lost.
    :returns: the tables that have a claim. The outcome of the others is that it was lost.
    """
    until = time.monotonic() + wait_s
    waiting = list(tables)
    no_keeper: str | None = None
    while waiting:
        for table, entry in zip(waiting, _at_once(_newest, waiting), strict=True):
            table.entry = entry
        answers = heartbeat_all(client, [table.claim for table in waiting])
        ended = time.monotonic() >= until
        left: list[TriedTable] = []
        begun: list[TriedTable] = []
        for table in waiting:
            error = answers[table.claim]
            gives_up = error is not None and (ended or is_started(table.plan_uri))
            if error is not None and not gives_up and no_keeper is None:
                no_keeper = missing_keeper()
            is_waiting = error is not None and not gives_up and not no_keeper
            (left if is_waiting else begun).append(table)
        for table, newest in zip(begun, _at_once(_mark, begun), strict=True):
            error = answers[table.claim]
            if newest != table.entry:  # the keeper has claimed the table again before the mark
                left.append(table)
            elif error is not None:
                why = f"{error}; not claimed again: {no_keeper}" if no_keeper else error
                table.fail_with(ClaimLost(f"the claim was lost before Spark started: {why}"))
        waiting = left
        if waiting:
            time.sleep(CLAIMED_AGAIN_POLL_S)
    return [table for table in tables if table.outcome is None]


def _newest(table: TriedTable) -> ClaimedTable:
    return newest_claim(table.entry)


def _mark(table: TriedTable) -> ClaimedTable:
    mark_started(table.plan_uri, table.attempt, table.airflow_task)
    return newest_claim(table.entry)


def _at_once(do: Callable[[TriedTable], T], tables: Sequence[TriedTable]) -> list[T]:
    """Calls a function for each table. On S3 a file takes tens of milliseconds: no claim may end
    while the files of hundreds of tables are written."""
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="sluice-start") as pool:
        return list(pool.map(do, tables))
