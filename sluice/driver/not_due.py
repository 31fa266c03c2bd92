"""Claims a table, or says why nobody gets it now and which command helps."""

from __future__ import annotations

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
    """The claim of a table, or of whichever waits longest.

    :param now: has the table made due, if it is not.
    :raises TableNotDue: it cannot be claimed; details as of :func:`not_due`.
    """
    claim = client.tiering.claim(None if path is None else [path])
    asked = False
    if claim is None and now and path is not None:
        asked = request_round(client, path)
        claim = client.tiering.claim([path]) if asked else None
    if claim is None:
        raise not_due(client, path, (clock or SystemClock()).now_ms(), asked=asked)
    return claim


def request_round(client: Client, path: TablePath) -> bool:
    """Has a table made due; False if that is not to be: it is not tiered, paused, or being tiered.

    A failing table is tried again as after `sluice retry`.

    :raises TableNotDue: by a real Fluss, as ``Admin.tier_again``.
    """
    for status in client.admin.list_tiering_statuses(path):
        if status.paused or status.status == State.TIERING.value:
            return False
        if status.failures:
            client.admin.retry_tiering(path)
        client.admin.tier_again(path)
        return True
    return False


def not_due(
    client: Client, path: TablePath | None, now_ms: int, *, asked: bool = False
) -> TableNotDue:
    """The error to raise; its detail ``waits`` is true where the table will be handed out some day.

    :param now_ms: this machine's time, epoch milliseconds: the coordinator's may differ a little.
    :param asked: it was made due a moment ago, and somebody else has claimed it since.
    """
    if path is None:
        text = (
            "no table waits to be tiered: `sluice status` says when each is due;"
            " `sluice tier` with --now does not wait"
        )
        return _error(text, True)
    info = client.admin.table_info(path)
    if not info.datalake_enabled:
        return _error(f"table {path} is not tiered: {how_to_enable(path)}", False)
    statuses = client.admin.list_tiering_statuses(path)
    if not statuses:
        return _error(f"the coordinator does not know table {path} as one to be tiered", False)
    freshness = info.descriptor.properties.get(FRESHNESS, _DEFAULT_FRESHNESS)
    return _error(f"table {path} {_in_words(statuses[0], freshness, now_ms, asked)}", True)


def how_to_enable(path: TablePath) -> str:
    """What a user does to have a table tiered."""
    return (
        f"in Flink SQL, ALTER TABLE {path} SET ('table.datalake.enabled' = 'true'); in Python,"
        f" client.admin.set_options(TablePath({path.database!r}, {path.table!r}),"
        " {'table.datalake.enabled': 'true'})"
    )


def _in_words(status: TieringStatus, freshness: str, now_ms: int, asked: bool) -> str:
    """What is said of the table: how it stands, and the command that helps.

    By its name and options only: which other options the reader gives is not known here.
    """
    after_it = "`sluice tier` with --now --wait 5min tiers it once that has ended"
    at_once = "`sluice tier` with --now does not wait"
    if status.status == State.TIERING.value:
        return (
            f"is being tiered (tiering epoch {status.tiering_epoch}): {after_it}. A claim whose"
            " holder is silent is taken back after server.tiering_timeout_ms (2 minutes)"
        )
    if status.paused:
        return "is paused: `sluice resume` has it tiered again"
    if asked:
        return f"was made due, and another round has claimed it first: {after_it}"
    if status.status == UNKNOWN:
        why = f" ({status.note})" if status.note else ""
        return f"is not handed out now: somebody tiers it, or it is not due{why}. {at_once}"
    left_s = ((status.next_attempt_ms or now_ms) - now_ms + 999) // 1000
    soon = f"in {_spoken(left_s)}" if left_s > 0 else "any moment"
    if status.failures:
        often = f"{status.failures} times in a row" if status.failures > 1 else "once"
        return (
            f"has failed {often}: it is tried again {soon}. `sluice tier` with --now, or `sluice"
            f" retry`, does not wait (the last reason: {status.last_error or 'not told'})"
        )
    return (
        f"is {status.status}: it is due {soon} ({FRESHNESS} is {freshness}). {at_once};"
        f" with --wait {_wait(left_s)} it waits"
    )


def _spoken(seconds: int) -> str:
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    parts = [f"{n} {unit}" for n, unit in ((hours, "h"), (minutes, "min"), (rest, "s")) if n]
    return " ".join(parts)


def _wait(seconds: int) -> str:
    """A duration for --wait that is long enough."""
    minutes = max(seconds, 0) // 60 + 1
    return f"{minutes}min" if minutes <= 120 else f"{minutes // 60 + 1}h"


def _error(text: str, waits: bool) -> TableNotDue:
    return TableNotDue(text, waits=waits)
