"""`sluice status`: the tiering state of tables, once or refreshed until Ctrl-C."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import click

from sluice.cli.terminal.options import TABLE_PATH, Settings, examples, format_option, with_settings
from sluice.cli.terminal.output import (
    Styled,
    print_json,
    print_table,
    print_wrapped,
    say,
    span,
    when,
)
from sluice.cli.terminal.record_cells import age, cell, document, headed_fields
from sluice.clock import Clock, SystemClock
from sluice.errors import NetworkError, RequestTimeOut
from sluice.model import TablePath, TieringStatus
from sluice.model.record_fields import RecordField
from sluice.quantities import counted

WATCH_S = 2.0
EXIT_FAILING = 1


@click.command(
    short_help="Show the state, lag and failures of tables.",
    epilog=examples(
        "sluice status",
        "sluice status shop.orders --format json",
        "sluice status --wide",
        "sluice status --watch",
    ),
)
@click.argument("table", type=TABLE_PATH, required=False)
@click.option(
    "--wide",
    is_flag=True,
    help="All columns: also the tiering epoch, UTC times, failures and errors.",
)
@click.option("--watch", is_flag=True, help="Refresh every two seconds until Ctrl-C (exit code 0).")
@format_option
@with_settings
@click.pass_context
def status(
    ctx: click.Context,
    table: TablePath | None,
    wide: bool,
    watch: bool,
    output_format: str,
    settings: Settings,
) -> None:
    """Show the tiering state of TABLE, or of every lake table.

    A line has the coordinator's state of a table, the time since its last successful round, its
    lag (the rows that the lake lacks, and the age of the oldest), and when the next round may
    start. Last tiered is `never` until a round succeeds. It is `unknown` if the lake has rows of a
    round that was not recorded.

    Below the table, each failing table has a line with its failures and its last error. Another
    line says that rows are missing in the lake, because a user accepted that in `sluice repair`.
    The line `last round stopped` says who stopped a round, which is no failure.

    A line for a bucket says that it refuses reads and writes, because the embedded server's disk
    is damaged, and what to do.

    A terminal shortens long names and errors; `sluice status TABLE` prints the complete error. A
    file or a pipe gets one complete line for each table and each error. Scripts read --format json;
    with --watch it prints one line for each refresh.

    The states are New, Initialized, Scheduled, Pending, Tiering, Tiered and Failed. An Apache Fluss
    cluster reports none: there Sluice's rounds store the state, and a table without a stored round
    is Unknown.

    A line `no leader` says that a bucket can neither be written nor read, for instance because the
    coordinator of Apache Fluss 0.9.1 has missed a new table, and what to do.

    Exit code 1: a table is failing or has no leader, a bucket refuses calls, or the stored states
    cannot be read.
    """
    clock = SystemClock()
    with settings.connect() as client:

        def show() -> bool:
            statuses = client.statuses.list(table)
            if output_format == "json":
                print_json([document(entry.path, entry) for entry in statuses], one_line=watch)
            elif wide:
                print_wide(statuses, not_tiered(table))
            else:
                print_statuses(
                    statuses, clock.now_ms(), not_tiered(table), complete_errors=table is not None
                )
            refused = client.damage.list(table)
            if output_format != "json":
                for one in refused:
                    print_wrapped(f"{one.path} bucket {one.bucket.name}: {one.refused}")
            unread = {str(entry.note) for entry in statuses if entry.is_unread}
            for note in sorted(unread):
                say(note, err=True)
            return bool(unread or refused) or any(
                entry.is_failing or entry.has_no_leader for entry in statuses
            )

        if watch:
            with suppress(KeyboardInterrupt):
                refresh(show, clock, clear=output_format != "json")
            ctx.exit(0)
        ctx.exit(EXIT_FAILING if show() else 0)


def refresh(show: Callable[[], object], clock: Clock, *, clear: bool = True) -> None:
    """Shows the statuses every two seconds; a server that is away costs one line each time.

    :param clear: clear the terminal before each refresh.
    """
    while True:
        if clear:
            click.clear()
        try:
            show()
        except (NetworkError, RequestTimeOut) as error:
            say(f"{type(error).__name__}: {error}", fg="red", err=True)
        clock.sleep(WATCH_S)


def not_tiered(table: TablePath | None) -> str:
    if table is None:
        return "no table is tiered"
    from sluice.client.admin.enabling import how_to_enable

    return f"table {table} is not tiered: {how_to_enable(table)}"


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
