"""Why the coordinator hands a table out to nobody now, and whether waiting helps."""

from __future__ import annotations

from sluice.client.client import Client
from sluice.errors import TableNotDue
from sluice.model import TableInfo, TablePath, TieringStatus
from sluice.statuses import UNKNOWN
from sluice.statuses.freshness import FRESHNESS, freshness_ms

_DEFAULT_FRESHNESS = "3 min"


def not_due(client: Client, path: TablePath | None, now_ms: int) -> TableNotDue:
    """The error to raise; its detail ``waits`` is true where the table will be handed out some day.

    :param now_ms: this machine's time, epoch milliseconds: the coordinator's may differ a little.
    """
    if path is None:
        return _error("no table waits to be tiered; `sluice status` says when each is due", True)
    info = client.admin.table_info(path)
    if not info.datalake_enabled:
        return _error(f"table {path} is not tiered: {how_to_enable(path)}", False)
    statuses = client.admin.list_tiering_statuses(path)
    if not statuses:
        return _error(f"the coordinator does not know table {path} as one to be tiered", False)
    return _error(_in_words(path, info, statuses[0], now_ms), True)


def how_to_enable(path: TablePath) -> str:
    """What a user does to have a table tiered."""
    return (
        f"in Flink SQL, ALTER TABLE {path} SET ('table.datalake.enabled' = 'true'); in Python,"
        f" client.admin.set_options(TablePath({path.database!r}, {path.table!r}),"
        " {'table.datalake.enabled': 'true'})"
    )


def _in_words(path: TablePath, info: TableInfo, status: TieringStatus, now_ms: int) -> str:
    if status.status == "Tiering":
        return (
            f"table {path} is being tiered (tiering epoch {status.tiering_epoch}); a claim"
            " whose holder is silent is taken back after server.tiering_timeout_ms (2 minutes)"
        )
    if status.paused:
        return f"table {path} is paused: `sluice resume {path}` has it tiered again"
    if status.status == UNKNOWN:
        why = f" ({status.note})" if status.note else ""
        return f"table {path} is not handed out now: it is being tiered, or not due yet{why}"
    if status.failures and status.next_attempt_ms is not None:
        left_s = (status.next_attempt_ms - now_ms + 999) // 1000
        soon = f"in {_spoken(left_s)}" if left_s > 0 else "any moment"
        often = f"{status.failures} times in a row" if status.failures > 1 else "once"
        return (
            f"table {path} has failed {often}: it is tried again {soon},"
            f" and at once by `sluice retry {path}`"
            f" (the last reason: {status.last_error or 'not told'})"
        )
    properties = info.descriptor.properties
    since_ms, since = status.last_tiered_ms, "its last round"
    if since_ms is None:
        since_ms, since = info.created_ms, "it was created"
    left_s = (since_ms + freshness_ms(properties) - now_ms + 999) // 1000
    soon = f"in {_spoken(left_s)}" if left_s > 0 else "any moment"
    when = f"it is due {soon}, {properties.get(FRESHNESS, _DEFAULT_FRESHNESS)} after {since}"
    return f"table {path} is {status.status}: {when} ({FRESHNESS})"


def _spoken(seconds: int) -> str:
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    parts = [f"{n} {unit}" for n, unit in ((hours, "h"), (minutes, "min"), (rest, "s")) if n]
    return " ".join(parts)


def _error(text: str, waits: bool) -> TableNotDue:
    return TableNotDue(text, waits=waits)
