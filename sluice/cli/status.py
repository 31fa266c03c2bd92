"""`sluice status`: how the tiering of tables stands, once or for as long as somebody looks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from sluice.cli.options import TABLE_PATH, cluster_options, configuration, format_option
from sluice.cli.output import print_json, print_table, when
from sluice.clock import Clock, SystemClock
from sluice.errors import NetworkError, RequestTimeOut
from sluice.masking import mask
from sluice.model import TablePath

if TYPE_CHECKING:
    from sluice.model import TieringStatus

WATCH_S = 2.0
EXIT_FAILING = 1


@click.command(
    short_help="Show how the tiering of tables stands.",
    epilog="""
\b
Examples:
  sluice status
  sluice status shop.orders --format json
  sluice status --watch
  sluice status --watch --format json
""",
)
@click.argument("table", type=TABLE_PATH, required=False)
@click.option(
    "--watch", is_flag=True, help="Look again every two seconds, until Ctrl-C (exit code 0)."
)
@format_option
@cluster_options
@click.pass_context
def status(
    ctx: click.Context,
    table: TablePath | None,
    watch: bool,
    output_format: str,
    bootstrap: str | None,
    config_file: str | None,
) -> None:
    """Show how the tiering of TABLE stands, or of every lake table.

    The state is the coordinator's word (New, Initialized, Scheduled, Pending, Tiering, Tiered,
    Failed), or on a cluster that tells none what the rounds of Sluice have written down (or else
    Unknown); the epoch rises each time that the table becomes due, as after a restart of the
    server; the lag is what the logs hold and the lake does not, and how old that is. Exit code 1: a
    table is failing (its last round has failed), or what was written down cannot be read (stderr
    says why). With --watch and --format json each look is one line.
    """
    config = configuration(config_file, {"client.bootstrap": bootstrap})
    from sluice.client import connect

    with connect(config.client) as client:

        def look() -> bool:
            statuses = client.admin.list_tiering_statuses(table)
            if output_format == "json":
                print_json([_json(entry) for entry in statuses], one_line=watch)
            else:
                _print(statuses, table)
            unread = {mask(entry.note or "") for entry in statuses if entry.is_unread}
            for note in sorted(unread):
                click.echo(note, err=True)
            return bool(unread) or any(entry.is_failing for entry in statuses)

        if watch:
            with suppress(KeyboardInterrupt):
                follow(look, SystemClock(), clear=output_format != "json")
            ctx.exit(0)
        ctx.exit(EXIT_FAILING if look() else 0)


def follow(look: Callable[[], object], clock: Clock, *, clear: bool = True) -> None:
    """Looks for ever; a server that is away meanwhile is one line, and asked again.

    :param clear: the terminal, before each look.
    """
    while True:
        if clear:
            click.clear()
        try:
            look()
        except (NetworkError, RequestTimeOut) as error:
            click.secho(mask(f"{type(error).__name__}: {error}"), fg="red", err=True)
        clock.sleep(WATCH_S)


def _print(statuses: Sequence[TieringStatus], table: TablePath | None) -> None:
    headings = [
        "table", "state", "epoch", "last tiered", "lag", "failures", "next attempt", "last error",
        "at",
    ]  # fmt: skip
    print_table(headings, [_row(entry) for entry in statuses], empty=_not_tiered(table))
    for entry in statuses:
        if entry.note is not None and not entry.is_unread:
            click.echo(f"{entry.path}: {entry.status}: {mask(entry.note)}")


def _row(entry: TieringStatus) -> list[object]:
    return [
        str(entry.path),
        f"{entry.status}, paused" if entry.paused else entry.status,
        entry.tiering_epoch,
        when(entry.last_tiered_ms) or _never(entry),
        _lag(entry),
        entry.failures,
        when(entry.next_attempt_ms),
        None if entry.last_error is None else mask(entry.last_error),
        when(entry.last_error_ms),
    ]


def _never(entry: TieringStatus) -> str:
    """A lake snapshot is there, and no round of Sluice has brought it: another service has."""
    return "never" if entry.lake_snapshot_id is None else "unknown"


def _lag(entry: TieringStatus) -> str | None:
    """``1,200 rows, 3 min``; ``none`` if the lake has everything."""
    if entry.lag_rows is None:
        return None
    if not entry.lag_rows:
        return "none"
    rows = f"{entry.lag_rows:,} row{'' if entry.lag_rows == 1 else 's'}"
    return rows if entry.lag_ms is None else f"{rows}, {_span(entry.lag_ms // 1000)}"


def _span(seconds: int) -> str:
    """The two largest units, such as ``3 min 5 s``."""
    parts: list[str] = []
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        count, seconds = divmod(seconds, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])


def _not_tiered(table: TablePath | None) -> str:
    if table is None:
        return "no table is tiered"
    from sluice.driver.not_due import how_to_enable

    return f"table {table} is not tiered: {how_to_enable(table)}"


def _json(entry: TieringStatus) -> dict[str, Any]:
    error = None if entry.last_error is None else mask(entry.last_error)
    return {**asdict(entry), "path": str(entry.path), "last_error": error}
