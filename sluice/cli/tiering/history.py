"""`sluice history`: what the newest rounds of a table did."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sluice.cli.terminal.options import TABLE_PATH, Settings, examples, format_option, with_settings
from sluice.cli.terminal.output import print_json
from sluice.cli.terminal.record_cells import document
from sluice.cli.tiering.shown_history import print_rounds, print_wide
from sluice.cli.tiering.status import not_tiered
from sluice.clock import SystemClock
from sluice.model import TablePath
from sluice.model.round_record import ROUNDS_KEPT

if TYPE_CHECKING:
    from sluice.client import Client


@click.command(
    short_help="Show the newest rounds of a table.",
    epilog=examples(
        "sluice history shop.orders",
        "sluice history shop.orders --limit 100 --format json",
        "sluice history shop.orders --wide",
    ),
)
@click.argument("table", type=TABLE_PATH)
@click.option(
    "--limit",
    type=click.IntRange(1, ROUNDS_KEPT),
    default=10,
    show_default=True,
    metavar="N",
    help=f"Show at most N rounds. {ROUNDS_KEPT} are kept of each table.",
)
@click.option(
    "--wide",
    is_flag=True,
    help="All columns: also UTC times, the duration of each phase, and the worker.",
)
@format_option
@with_settings
def history(
    table: TablePath,
    limit: int,
    wide: bool,
    output_format: str,
    settings: Settings,
) -> None:
    """Show the newest rounds of TABLE, the newest first.

    A line has the time since the end of a round, its outcome, its duration from claim to report,
    the rows, files and bytes that it wrote, the keys whose earlier rows it deleted, and the lag in
    rows before and after it. Below the table, one line gives each different reason of failed
    rounds, each limit that ended a round early, the untiered rows of partitions that were dropped
    during a round, and the partitions created again, whose old rows a round deleted.

    A file or a pipe gets one line for each round and each reason. Scripts read --format json.

    The outcomes are committed, nothing new (no new rows), already landed (an earlier attempt had
    committed), failed, and finished (a round that reported no details).
    """
    with settings.connect() as client:
        rounds = client.statuses.history(table, limit)
        empty = "" if rounds else _no_rounds(client, table)
    if output_format == "json":
        print_json([document(table, each) for each in rounds])
    elif wide:
        print_wide(rounds, empty)
    else:
        print_rounds(rounds, SystemClock().now_ms(), empty)


def _no_rounds(client: Client, table: TablePath) -> str:
    if not client.statuses.list(table):
        return not_tiered(table)
    return (
        f"no round of table {table} is recorded yet: `sluice tier` and the DAG record one at its"
        " end"
    )
