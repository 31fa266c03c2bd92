"""What `sluice status` prints for people: a table, and a line for each error."""

from __future__ import annotations

from collections.abc import Sequence

from sluice.cli.terminal.output import Styled, print_table, print_wrapped, span, when
from sluice.cli.terminal.record_cells import age, cell, headed_fields
from sluice.model import TieringStatus
from sluice.model.record_fields import RecordField
from sluice.quantities import counted

COLUMNS = ("table", "state", "last tiered", "lag", "next attempt")
_STYLES = {"Failed": "red", "Scheduled": "green"}
_ERROR_LINES_MAX = 3
"""An error of one of many tables has this many lines on a terminal."""


def print_statuses(
    statuses: Sequence[TieringStatus], now_ms: int, empty: str, *, complete_errors: bool
) -> None:
    """Prints the columns that fit 80 characters, then the failures and last error of each table.

    :param empty: the line to print if there are no tables.
    :param complete_errors: print errors in full, and who tiers a table; otherwise a terminal gets
        the start of errors.
    """
    print_table(COLUMNS, [_row(entry, now_ms) for entry in statuses], empty=empty, shorten=0)
    for entry in statuses:
        if line := _failure(entry, now_ms):
            print_wrapped(
                line,
                lines_max=None if complete_errors else _ERROR_LINES_MAX,
                more=f"`sluice status {entry.path}` prints the complete error",
            )
        if entry.accepted:
            print_wrapped(
                f"{entry.path}: rows are missing in the lake, as accepted by a user"
                f" ({entry.accepted})"
            )
        if asked := age(entry.compaction_requested_ms, now_ms):
            print_wrapped(f"{entry.path}: a compaction was requested {asked}, for its next round")
        if complete_errors and entry.claimed_by is not None:
            since = age(entry.claimed_ms, now_ms)
            print_wrapped(
                f"{entry.path} is being tiered by {entry.claimed_by}"
                + (f", claimed {since}" if since else "")
            )
    print_notes(statuses)


def print_wide(statuses: Sequence[TieringStatus], empty: str) -> None:
    """Prints all fields that have a heading, with times in UTC and complete errors."""
    shown = headed_fields(TieringStatus)
    rows = [[str(status.path), *(_cell(entry, status) for entry in shown)] for status in statuses]
    print_table(["table", *(entry.heading for entry in shown)], rows, empty, fold=False)
    print_notes(statuses)


def print_notes(statuses: Sequence[TieringStatus]) -> None:
    """Prints who stopped a round, and why a state is Unknown, where the status could be read."""
    for entry in statuses:
        if entry.stopped is not None:
            print_wrapped(f"{entry.path}: last round stopped: {entry.stopped}")
        if entry.note is not None and not entry.is_unread:
            state = "" if entry.has_no_leader else f"{entry.status}: "
            print_wrapped(f"{entry.path}: {state}{entry.note}")


def _row(entry: TieringStatus, now_ms: int) -> list[object]:
    paused = "dim" if entry.paused else ""
    tiered = age(entry.last_tiered_ms, now_ms) or _never(entry)
    return [
        Styled(str(entry.path), paused),
        Styled(entry.status, paused or _STYLES.get(entry.status, "")),
        Styled(tiered, paused),
        Styled(_lag(entry) or "", paused),
        Styled("paused", paused) if entry.paused else _due(entry.next_attempt_ms, now_ms),
    ]


def _cell(entry: RecordField, status: TieringStatus) -> object:
    value = getattr(status, entry.name)
    if entry.name == "status":
        return f"{value}, paused" if status.paused else value
    if entry.name == "last_tiered_ms":
        return when(value) or _never(status)
    return cell(entry, value)


def _failure(entry: TieringStatus, now_ms: int) -> str:
    """How often a table has failed and its last error; empty if it has neither."""
    failures = f"{counted(entry.failures, 'failure')}, " if entry.failures else ""
    if entry.last_error is None:
        return f"{entry.path}: {failures}no reason reported" if failures else ""
    failed = age(entry.last_error_ms, now_ms)
    when_failed = f" {failed}" if failed else ""
    return f"{entry.path}: {failures}last error{when_failed}: {entry.last_error}"


def _due(next_attempt_ms: int | None, now_ms: int) -> str | None:
    if next_attempt_ms is None:
        return None
    left_ms = next_attempt_ms - now_ms
    return f"in {span((left_ms + 999) // 1000, 1)}" if left_ms > 0 else "now"


def _never(entry: TieringStatus) -> str:
    """``unknown`` where a lake snapshot exists that no recorded round can have committed."""
    return "never" if entry.lake_snapshot_id is None or entry.rounds else "unknown"


def _lag(entry: TieringStatus) -> str | None:
    """``1,200 rows, 3 min``; ``none`` if the lake has every row."""
    if entry.lag_rows is None:
        return None
    if not entry.lag_rows:
        return "none"
    rows = counted(entry.lag_rows, "row")
    return rows if entry.lag_ms is None else f"{rows}, {span(entry.lag_ms // 1000, 1)}"
