"""What users ask for the tiering of one table, each answered with what was done.

The command line and the page share these texts, so that both say the same. A text follows
``table DATABASE.TABLE: ``. It depends on the status before the request; without a status (an older
coordinator, or a table of statuses that cannot be read) it says what the request does.

Each request may be repeated. All raise the errors of :meth:`StatusClient.pause`.
"""

from __future__ import annotations

from collections.abc import Callable

from sluice.client.client import Client
from sluice.client.leases.ids import holder_of
from sluice.clock import Clock, SystemClock
from sluice.errors import UnsupportedVersion
from sluice.model import TableInfo, TablePath, TieringStatus
from sluice.rounds.upkeep.requested import request_ms_max

Request = Callable[[Client, TablePath], str]


def pause(client: Client, path: TablePath) -> str:
    """Pauses tiering of a table until it is resumed."""
    before = _status(client, path)
    client.statuses.pause(path)
    until = f"until `sluice resume {path}`"
    if before is None or not before.paused:
        return f"paused {until}{_under_way(before)}"
    return f"paused already {until}, nothing was changed"


def resume(client: Client, path: TablePath) -> str:
    """Resumes tiering of a paused table."""
    before = _status(client, path)
    client.statuses.resume(path)
    if before is not None and before.paused is False:
        return "not paused, nothing was changed"
    return "resumed, the next round starts when the table is due"


def retry(client: Client, path: TablePath) -> str:
    """Clears the failures of a table, so that its next round may start now."""
    before = _status(client, path)
    client.statuses.retry(path)
    if before is not None and before.failures == 0:  # None: it reports no failures
        return "no failures to clear, nothing was changed"
    if before is not None and before.paused:
        return f"failures cleared, the next round starts after `sluice resume {path}`"
    return "failures cleared, the next round may start now"


def retier(client: Client, path: TablePath) -> str:
    """Requests a round of a table, without waiting for its freshness.

    :raises TableNotDue: on Apache Fluss: a round is running, or the table cannot be made due.
    """
    before = _status(client, path)
    client.statuses.request_round(path)
    if before is not None and before.paused:
        return f"a round is requested, and starts after `sluice resume {path}`"
    follows = ", and follows the one under way" if _is_tiering(before) else ""
    return f"a round is requested{follows}; `sluice tier` or a DAG run starts it"


def compact(client: Client, path: TablePath, clock: Clock | None = None) -> str:
    """Requests a compaction from a table's next round, unless one is requested already.

    :raises UnknownServerError: the coordinator is older than this request.
    """
    info = client.admin.table_info(path)
    before = _status(client, path)
    is_open = before is not None and compaction_is_open(
        before, info, (clock or SystemClock()).now_ms()
    )
    if not is_open:
        client.statuses.request_compaction(path)
    already = " already" if is_open else ""
    if before is not None and before.paused:
        return (
            f"a compaction is requested{already}: the first round after `sluice resume {path}`"
            " makes it"
        )
    return f"a compaction is requested{already}: the table's next round makes it"


def compaction_is_open(status: TieringStatus, info: TableInfo, now_ms: int) -> bool:
    """Whether a compaction is requested that the next round does not end as too old.

    :param now_ms: epoch milliseconds.
    """
    requested_ms = status.compaction_requested_ms
    return requested_ms is not None and now_ms - requested_ms <= request_ms_max(info)


def _status(client: Client, path: TablePath) -> TieringStatus | None:
    """The status before a request; None if the table is not tiered, or the status is not known."""
    try:
        found = next(iter(client.statuses.list(path, lags=False)), None)
    except UnsupportedVersion:
        return None
    return None if found is None or found.is_unread else found


def _is_tiering(status: TieringStatus | None) -> bool:
    return status is not None and status.status == "Tiering"


def _under_way(status: TieringStatus | None) -> str:
    """What becomes of the round under way of a table that is paused."""
    if status is None or not _is_tiering(status):
        return ""
    if status.claimed_by and holder_of(status.claimed_by).kind == "run":
        return "; its round under way ends without a failure, as Airflow runs it"
    return "; its round under way continues to its end"
