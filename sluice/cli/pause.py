"""`sluice pause`, `resume`, `retry` and `retier`: a user's requests for the tiering of a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from sluice.cli.options import TABLE_PATH, Settings, examples, with_settings
from sluice.errors import UnsupportedVersion
from sluice.model import TablePath

if TYPE_CHECKING:
    from sluice.client.statuses import StatusClient
    from sluice.model import TieringStatus

    Request = Callable[[StatusClient], object]
    Message = Callable[[TieringStatus], str | None]


def _send(
    table: TablePath,
    settings: Settings,
    request: Request,
    done: str,
    instead: Message | None = None,
) -> None:
    """Sends a request for a table, and prints what was done.

    :param instead: the message to print in place of ``done``, by the status before the request;
        None for ``done``.
    """
    with settings.connect() as client:
        before = None if instead is None else _status(client.statuses, table)
        request(client.statuses)
    message = None if instead is None or before is None else instead(before)
    click.echo(f"table {table}: {message or done}")


def _status(statuses: StatusClient, table: TablePath) -> TieringStatus | None:
    """The tiering status of a table; None if it is not tiered or the server reports no status."""
    try:
        return next(iter(statuses.list(table)), None)
    except UnsupportedVersion:
        return None


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
    done = f"paused until `sluice resume {table}`"
    _send(table, settings, lambda statuses: statuses.pause(table), done)


@click.command(
    short_help="Resume tiering of a paused table.",
    epilog=examples("sluice resume shop.orders"),
)
@click.argument("table", type=TABLE_PATH)
@with_settings
def resume(table: TablePath, settings: Settings) -> None:
    """Resume tiering of TABLE after `sluice pause`."""
    done = "resumed, the next round starts when the table is due"
    _send(table, settings, lambda statuses: statuses.resume(table), done)


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
    done = "failures cleared, the next round may start now"
    healthy = "no failures to clear, nothing was changed"

    def message(before: TieringStatus) -> str | None:
        return healthy if before.failures == 0 else None  # None: it reports no failures

    _send(table, settings, lambda statuses: statuses.retry(table), done, message)


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
    done = "a round is requested; `sluice tier` or a DAG run starts it"
    paused = f"a round is requested, and starts after `sluice resume {table}`"

    def message(before: TieringStatus) -> str | None:
        return paused if before.paused else None

    _send(table, settings, lambda statuses: statuses.request_round(table), done, message)
