"""`sluice status`: the tiering state of tables, once or refreshed until Ctrl-C."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import click

from sluice.cli.terminal.options import TABLE_PATH, Settings, examples, format_option, with_settings
from sluice.cli.terminal.output import print_json, print_wrapped, say
from sluice.cli.terminal.record_cells import document
from sluice.cli.tiering.shown_status import print_statuses, print_wide
from sluice.clock import Clock, SystemClock
from sluice.errors import NetworkError, RequestTimeOut
from sluice.model import TablePath

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
