"""Claims a table, or explains why it cannot be claimed now and which command helps."""

from __future__ import annotations

import math

from sluice.client.admin.enabling import how_to_enable
from sluice.client.client import Client
from sluice.clock import Clock, SystemClock
from sluice.errors import TableNotDue
from sluice.model import Claim, TablePath, TieringStatus
from sluice.statuses import UNKNOWN, State
from sluice.statuses.freshness import FRESHNESS

_DEFAULT_FRESHNESS = "3 min"


def claim_table(
    client: Client, path: TablePath | None, *, now: bool = False, clock: Clock | None = None
) -> Claim:
    """Claims a table.

    :param path: the table; None: the one that has been due the longest.
    :param now: make the table due first, if it is not.
    :raises TableNotDue: it cannot be claimed; details as of :func:`not_due`.
    """
    claim = client.tiering.claim(None if path is None else [path])
    requested = False
    if claim is None and now and path is not None:
        requested = request_round(client, path)
        claim = client.tiering.claim([path]) if requested else None
    if claim is None:
        raise not_due(client, path, (clock or SystemClock()).now_ms(), requested=requested)
    return claim


def request_round(client: Client, path: TablePath) -> bool:
    """Makes a table due; returns False if it is not tiered, paused, or being tiered.

    For a failing table, this also does what `sluice retry` does.

    :raises TableNotDue: Apache Fluss only, as ``StatusClient.request_round``.
    """
    for status in client.statuses.list(path):
        if status.paused or status.has_no_leader or status.status == State.TIERING.value:
            return False
        if status.failures:
            client.statuses.retry(path)
        client.statuses.request_round(path)
        return True
    return False


def not_due(
    client: Client, path: TablePath | None, now_ms: int, *, requested: bool = False
) -> TableNotDue:
    """The error to raise; its detail ``waits`` is true if waiting helps.

    :param now_ms: this machine's time in epoch milliseconds; the coordinator's may differ a little.
    :param requested: the table was just made due, and another worker has claimed it since.
    """
    if path is None:
        text = (
            "no table is due: `sluice status` shows when each table is; `sluice tier DB.TABLE"
            " --now` tiers one now"
        )
        return TableNotDue(text, waits=True)
    info = client.admin.table_info(path)
    if not info.datalake_enabled:
        return TableNotDue(f"table {path} is not tiered: {how_to_enable(path)}", waits=False)
    statuses = client.statuses.list(path)
    if not statuses:
        return TableNotDue(
            f"the coordinator does not list table {path} as tiered, although it is enabled",
            waits=False,
        )
    if statuses[0].has_no_leader:
        return TableNotDue(
            f"table {path} cannot be tiered: {statuses[0].note}", waits=True, has_no_leader=True
        )
    freshness = info.descriptor.properties.get(FRESHNESS, _DEFAULT_FRESHNESS)
    timeout_s = client.tiering.claim_timeout_s
    words = _in_words(statuses[0], freshness, now_ms, requested, timeout_s)
    return TableNotDue(f"table {path} {words}", waits=True)


def _in_words(
    status: TieringStatus,
    freshness: str,
    now_ms: int,
    requested: bool,
    claim_timeout_s: float | None,
) -> str:
    """The table's status, and the command that helps.

    The command is without connection options, because this function does not know them. Nor does
    it know which options were given: of a table that is due, the text names none. During a round it
    says "with" rather than "add", because --now or --wait may have been given.

    :param claim_timeout_s: as the coordinator says. None: it has not said it yet.
    """
    after_it = "with --now --wait 5min, the command tiers it again after that round"
    at_once = "Add --now to tier it now"
    if status.status == State.TIERING.value:
        by = f" by {status.claimed_by}" if status.claimed_by else ""
        after = f" after {_spoken(math.ceil(claim_timeout_s))}" if claim_timeout_s else ""
        return (
            f"is being tiered{by} (tiering epoch {status.tiering_epoch}): {after_it}. A claim"
            f" without heartbeats expires{after or ' by itself'}"
        )
    if status.paused:
        return "is paused: `sluice resume` resumes its tiering"
    if requested:
        return f"was made due, but another round claimed it first: {after_it}"
    if status.status == UNKNOWN:
        why = f" ({status.note})" if status.note else ""
        return f"cannot be claimed now: it is being tiered, or it is not due{why}. {at_once}"
    left_s = ((status.next_attempt_ms or now_ms) - now_ms + 999) // 1000
    not_yet = "but the coordinator does not assign it yet: run the command again"
    if status.failures:
        often = f"{status.failures} times in a row" if status.failures > 1 else "once"
        error = f"(last error: {status.last_error or 'not reported'})"
        if left_s <= 0:
            return f"has failed {often}: the next attempt is due now, {not_yet} {error}"
        return (
            f"has failed {often}: the next attempt is due in {_spoken(left_s)}. {at_once}, or run"
            f" `sluice retry` to make it due {error}"
        )
    own = f"({FRESHNESS} is {freshness})"
    if left_s <= 0:
        return f"is {status.status}: it is due now {own}, {not_yet}"
    return (
        f"is {status.status}: it is due in {_spoken(left_s)} {own}. {at_once}, or --wait"
        f" {_wait(left_s)} to wait"
    )


def _spoken(seconds: int) -> str:
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    parts = [f"{n} {unit}" for n, unit in ((hours, "h"), (minutes, "min"), (rest, "s")) if n]
    return " ".join(parts)


def _wait(seconds: int) -> str:
    """A duration for --wait that leaves half a minute for typing it and for clocks that differ."""
    minutes = max(1, math.ceil((seconds + 30) / 60))
    return f"{minutes}min" if minutes <= 120 else f"{minutes // 60 + 1}h"
