"""What became of each table that a run was asked for. Does not import Airflow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import NotRequired, TypedDict

from sluice.model import TieringStatus
from sluice.quantities import counted
from sluice.statuses import UNKNOWN, State
from sluice_airflow.outcomes.verdict import PAUSED as PAUSED
from sluice_airflow.outcomes.verdict import Verdict

TIERED = "tiered"
NOTHING_NEW = "nothing new"
NOT_DUE = "not due"
HELD = "held"
REFUSED = "refused"
FAILED = "failed"
NOT_TIERED = "not tiered"
CLAIM_LOST = "claim lost"
WOULD_TIER = "would tier"

ORDER = (
    FAILED,
    REFUSED,
    NOT_TIERED,
    HELD,
    PAUSED,
    CLAIM_LOST,
    TIERED,
    WOULD_TIER,
    NOTHING_NEW,
    NOT_DUE,
)
"""How a run's account is sorted: what a person has to look at comes first."""
FAILING = frozenset({FAILED, REFUSED, NOT_TIERED})
"""What fails any run."""
NOT_DONE = FAILING | {HELD, PAUSED, NOT_DUE, CLAIM_LOST}
"""What fails a run that was asked for this table by name, or to wait for it."""
UNTOUCHED = frozenset({NOT_DUE, NOTHING_NEW})
"""What an earlier result of the same run replaces."""
SHOWN_MAX = 500
"""Most tables in a log, and in an XCom."""
REASON_MAX = 300
REASONS_IN_ERROR_MAX = 10


class TableAccount(TypedDict):
    """What became of one table."""

    table: str
    became: str
    text: str
    rows: NotRequired[int]
    lake_snapshot_id: NotRequired[str | None]


def tell(table: object, became: str, text: str = "") -> TableAccount:
    """The account of a table without a result."""
    return TableAccount(table=str(table), became=became, text=text[:REASON_MAX])


def of_verdict(verdict: Verdict) -> TableAccount:
    """The account of a table that the run had claimed."""
    if verdict.reported == "finished" and verdict.outcome == "nothing_new" and not verdict.rows:
        return tell(verdict.table, NOTHING_NEW)
    if verdict.reported == "finished":
        found = tell(verdict.table, TIERED, _tiered(verdict))
        found["rows"] = verdict.rows
        found["lake_snapshot_id"] = verdict.lake_snapshot_id
        return found
    if verdict.outcome == PAUSED:
        return tell(verdict.table, PAUSED, _resume(verdict.table))
    became = {"nothing": CLAIM_LOST, "failed": FAILED}.get(verdict.reported, NOT_TIERED)
    return tell(verdict.table, became, verdict.reason)


def of_status(
    status: TieringStatus,
    now_ms: int,
    name_of: Callable[[str], str] = str,
    tables_max: int | None = None,
) -> TableAccount:
    """The account of a table that the run could not claim.

    :param name_of: returns the run or process that has claimed a table, for people.
    :param tables_max: the parameter max_tables, if the run has claimed as many tables.
    """
    path = status.path
    if status.paused:
        return tell(path, PAUSED, _resume(path))
    if status.status == State.TIERING.value:
        by = name_of(status.claimed_by) if status.claimed_by else "another round"
        return tell(path, HELD, f"{by} tiers it (tiering epoch {status.tiering_epoch})")
    now = "the parameter `force` tiers it now"
    if status.status == UNKNOWN:
        why = f" ({status.note})" if status.note else ""
        return tell(path, NOT_DUE, f"it is not due, or an unknown worker tiers it{why}; {now}")
    if status.next_attempt_ms is None or status.next_attempt_ms <= now_ms:
        if tables_max is not None:
            return tell(path, NOT_DUE, f"it is due, but max_tables ({tables_max}) was reached")
        return tell(path, NOT_DUE, f"it has become due since; {now}")
    due = f"due at {time_text(status.next_attempt_ms)}"
    if status.failures:
        due += f", after {status.failures} failures (last error: {status.last_error})"
    return tell(path, NOT_DUE, f"{due}; {now}")


def complete(
    unclaimed: Iterable[TableAccount],
    claimed: Iterable[str],
    settled: Iterable[Verdict],
    dropped: Iterable[Verdict],
) -> list[TableAccount]:
    """The account of a run: one entry for each table, problems first.

    :param unclaimed: the account of the tables that the run did not claim.
    :param claimed: the tables that it claimed.
    :param settled: the verdicts of the settle tasks.
    :param dropped: those of drop_lease, which reports what no other task has reported.
    """
    silent = "no task has reported it; `sluice status` shows its state"
    by_table = {one["table"]: one for one in unclaimed}
    by_table |= {name: tell(name, NOT_TIERED, silent) for name in claimed}
    by_table |= (told := {verdict.table: of_verdict(verdict) for verdict in settled})
    for verdict in dropped:
        # A claim that had ended before says nothing of a table whose task has told of it.
        if verdict.reported != "nothing" or verdict.table not in told:
            by_table[verdict.table] = of_verdict(verdict)
    return sorted(by_table.values(), key=lambda one: (ORDER.index(one["became"]), one["table"]))


def tell_attempts(
    found: Iterable[TableAccount], statuses: Iterable[TieringStatus], now_ms: int
) -> None:
    """Adds to each table that was not tiered when it is due again."""
    by_table = {str(status.path): status for status in statuses}
    for one in found:
        status = by_table.get(one["table"])
        if one["became"] in FAILING and status is not None and (due := _due(status, now_ms)):
            one["text"] = "; ".join(filter(None, [one["text"], due]))


def _due(status: TieringStatus, now_ms: int) -> str:
    """When it is tiered again; empty if that is not known."""
    at_ms = status.next_attempt_ms
    if status.paused or status.status == State.TIERING.value or at_ms is None:
        return ""
    return "due again now" if at_ms <= now_ms else f"due again at {time_text(at_ms)}"


def summary(found: Sequence[TableAccount], more: Mapping[str, int] = MappingProxyType({})) -> str:
    """One line: ``3 tables: 2 tiered (1,200 rows), 1 nothing new``.

    :param more: how many tables without an account became what.
    """
    counts = Counter(one["became"] for one in found) + Counter(more)
    if not counts:
        return "no table was due"
    parts = []
    for became in ORDER:
        if count := counts[became]:
            rows = sum(one.get("rows", 0) for one in found if one["became"] == became)
            shown = f" ({counted(rows, 'row')})" if became == TIERED else ""
            parts.append(f"{count} {became}{shown}")
    return f"{counted(counts.total(), 'table')}: {', '.join(parts)}"


def not_tiered(number: int, total: int) -> str:
    """``2 of 5 tables were not tiered:``."""
    return f"{number:,} of {counted(total, 'table')} {'was' if number == 1 else 'were'} not tiered:"


def lines(found: Sequence[TableAccount]) -> list[str]:
    """The account as a table for a log: table, what became of it, and why."""
    shown = found[:SHOWN_MAX]
    names = max((len(one["table"]) for one in shown), default=0)
    words = max((len(one["became"]) for one in shown), default=0)
    rows = [f"{one['table']:<{names}}  {one['became']:<{words}}  {one['text']}" for one in shown]
    more = len(found) - len(shown)
    return [row.rstrip() for row in rows] + ([f"and {more} more"] if more else [])


def error(found: Sequence[TableAccount], wanted: Iterable[str] = (), more: int = 0) -> str:
    """Why the run fails: the tables that were not tiered, with reasons. Empty: it does not fail.

    :param wanted: the tables that must be tiered for the run to succeed.
    :param more: the number of tables without an account, which need none.
    """
    must = set(wanted)
    known = {one["table"] for one in found}
    unknown = "its state could not be read; `sluice status` shows it"
    found = [*found, *(tell(name, NOT_TIERED, unknown) for name in sorted(must - known))]
    left = [
        one for one in found if one["became"] in (NOT_DONE if one["table"] in must else FAILING)
    ]
    if not left:
        return ""
    shown = [_reason(one) for one in left[:REASONS_IN_ERROR_MAX]]
    if len(left) > len(shown):
        shown.append(f"and {len(left) - len(shown)} more; see the log of this task")
    return "\n".join([not_tiered(len(left), len(found) + more), *shown])


def _reason(one: TableAccount) -> str:
    became = "" if one["became"] == FAILED else f"{one['became']}: "
    return f"{one['table']}: {became}{one['text']}".rstrip(": ")


def _tiered(verdict: Verdict) -> str:
    rows = counted(verdict.rows, "row")
    snapshot = f", lake snapshot {verdict.lake_snapshot_id}" if verdict.lake_snapshot_id else ""
    _, forced, limit = verdict.reason.partition("forced: ")
    return f"{rows}{snapshot}" + (f"; the round ended early: {limit}" if forced else "")


def _resume(table: object) -> str:
    return f"`sluice resume {table}` resumes it"


def time_text(ms: int) -> str:
    """A time, epoch milliseconds, as texts of runs have it."""
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
