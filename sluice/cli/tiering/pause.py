"""`sluice pause`, `resume`, `retry`, `retier`, `compact`: what users request for one table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sluice.cli.terminal.options import TABLE_PATH, Settings, examples, with_settings
from sluice.cli.terminal.output import say
from sluice.model import TablePath

if TYPE_CHECKING:
    from sluice.client.user_requests import Request


def _send(table: TablePath, settings: Settings, request: Request) -> None:
    """Sends a request for a table, and prints what was done."""
    with settings.connect() as client:
        done = request(client, table)
    say(f"table {table}: {done}")


@click.command(
    short_help="Pause tiering of a table.",
    epilog=examples("sluice pause shop.orders"),
)
@click.argument("table", type=TABLE_PATH)
@with_settings
def pause(table: TablePath, settings: Settings) -> None:
    """Pause tiering of TABLE until `sluice resume`.

    The pause survives restarts of the server. An Airflow task ends its round of
    the table; a round of `sluice tier` continues. `sluice status` shows
    the table as paused. On an Apache Fluss cluster, which has no pause, only Sluice's rounds honour
    it.
    """
    from sluice.client import user_requests

    _send(table, settings, user_requests.pause)


@click.command(
    short_help="Resume tiering of a paused table.",
    epilog=examples("sluice resume shop.orders"),
)
@click.argument("table", type=TABLE_PATH)
@with_settings
def resume(table: TablePath, settings: Settings) -> None:
    """Resume tiering of TABLE after `sluice pause`."""
    from sluice.client import user_requests

    _send(table, settings, user_requests.resume)


@click.command(
    short_help="Retry a failing table without waiting.",
    epilog=examples("sluice retry shop.orders"),
)
@click.argument("table", type=TABLE_PATH)
@with_settings
def retry(table: TablePath, settings: Settings) -> None:
    """Clear the failures of TABLE, so that its next round may start now.

    After a failure a table waits for 10 seconds, then for twice as long after each further failure.
    Run this command once the cause is repaired. It changes nothing for a table without failures;
    `sluice retier` requests a round of such a table.
    """
    from sluice.client import user_requests

    _send(table, settings, user_requests.retry)


@click.command(
    short_help="Request a round of a table now.",
    epilog=examples("sluice retier shop.orders"),
)
@click.argument("table", type=TABLE_PATH)
@with_settings
def retier(table: TablePath, settings: Settings) -> None:
    """Request a round of TABLE now, without waiting for its freshness.

    `sluice tier` or the next run of the DAG starts the round; `sluice tier --now` requests and runs
    it in one command. If a round is under way, the requested one follows it; an Apache Fluss
    cluster refuses the request then. A paused table stays paused, and the round starts after
    `sluice resume`. Rows that are in the lake are not copied again.
    """
    from sluice.client import user_requests

    _send(table, settings, user_requests.retier)


@click.command(
    short_help="Request a compaction of a table.",
    epilog=examples("sluice compact shop.orders"),
)
@click.argument("table", type=TABLE_PATH)
@with_settings
def compact(table: TablePath, settings: Settings) -> None:
    """Request that the next round of TABLE compacts it.

    The round merges small files, and rewrites files of which many rows are deleted, also in buckets
    without new rows. It does so whatever options the table has. The request stays until a round has
    rewritten all that is worth it, and ends after a day, or twice the table's freshness if that is
    longer. `sluice status` shows it. A paused table is compacted by its first round after
    `sluice resume`. No round compacts a table with partition fields of a user's own: Iceberg's
    rewrite_data_files does, and the round says so.

    The command does not look at the lake, and needs no Java. `sluice maintain --yes` requests a
    compaction only of tables that need it.
    """
    from sluice.client import user_requests

    _send(table, settings, user_requests.compact)
