"""`sluice pause`, `resume`, `retry` and `retier`: what a user wants of one table's tiering."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from sluice.cli.options import TABLE_PATH, cluster_options, configuration
from sluice.errors import UnsupportedVersion
from sluice.model import TablePath

if TYPE_CHECKING:
    from sluice.client.admin import Admin
    from sluice.model import TieringStatus

    Control = Callable[[Admin, TablePath], None]
    Words = Callable[[TieringStatus], str | None]


def _control(
    table: TablePath,
    bootstrap: str | None,
    config_file: str | None,
    control: Control,
    done: str,
    unless: Words | None = None,
) -> None:
    """Does it, and says so.

    :param unless: what to say in place of ``done``, by how the table stood before; None: ``done``.
    """
    config = configuration(config_file, {"client.bootstrap": bootstrap})
    from sluice.client import connect

    with connect(config.client) as client:
        before = None if unless is None else _status(client.admin, table)
        control(client.admin, table)
    told = None if unless is None or before is None else unless(before)
    click.echo(f"table {table} {told or done}")


def _status(admin: Admin, table: TablePath) -> TieringStatus | None:
    """How its tiering stands; None where the table is not tiered, or the server does not tell."""
    try:
        return next(iter(admin.list_tiering_statuses(table)), None)
    except UnsupportedVersion:
        return None


@click.command(
    short_help="Have a table not tiered for a while.",
    epilog="""
\b
Examples:
  sluice pause shop.orders
""",
)
@click.argument("table", type=TABLE_PATH)
@cluster_options
def pause(table: TablePath, bootstrap: str | None, config_file: str | None) -> None:
    """Hand TABLE out to nobody until `sluice resume`, restarts of the server included.

    A round that is under way goes on. `sluice status` shows the table as paused. An Apache Fluss
    knows no pause: there the rounds of Sluice keep to it, and nobody else does.
    """
    done = f"is paused; `sluice resume {table}` ends that"
    _control(table, bootstrap, config_file, lambda admin, path: admin.pause_tiering(path), done)


@click.command(
    short_help="Have a paused table tiered again.",
    epilog="""
\b
Examples:
  sluice resume shop.orders
""",
)
@click.argument("table", type=TABLE_PATH)
@cluster_options
def resume(table: TablePath, bootstrap: str | None, config_file: str | None) -> None:
    """Have TABLE tiered again after `sluice pause`."""
    done = "is no longer paused: it is tiered again when it is due"
    _control(table, bootstrap, config_file, lambda admin, path: admin.resume_tiering(path), done)


@click.command(
    short_help="Try a failing table again now.",
    epilog="""
\b
Examples:
  sluice retry shop.orders
""",
)
@click.argument("table", type=TABLE_PATH)
@cluster_options
def retry(table: TablePath, bootstrap: str | None, config_file: str | None) -> None:
    """Forget the failures of TABLE: it is due now, and its next wait is the shortest again.

    A table that fails is tried again after 10 seconds, then after twice as long each time. Use this
    once you have removed the cause. A table that is not failing is left alone; `sluice retier`
    wants a round of it.
    """
    done = "is not failing any more; if it was waiting, it is due now"
    healthy = "had no failures; nothing was changed"

    def retried(admin: Admin, path: TablePath) -> None:
        admin.retry_tiering(path)

    # 0, and not None, which is a cluster that does not tell
    _control(
        table, bootstrap, config_file, retried, done, lambda s: healthy if s.failures == 0 else None
    )


@click.command(
    short_help="Tier a table as soon as can be.",
    epilog="""
\b
Examples:
  sluice retier shop.orders
""",
)
@click.argument("table", type=TABLE_PATH)
@cluster_options
def retier(table: TablePath, bootstrap: str | None, config_file: str | None) -> None:
    """Want one more round of TABLE now, without waiting for its freshness.

    Whoever claims next gets the table: `sluice tier`, or the next run of the DAG. `sluice tier
    --now` also runs that round. If a round is under way, another one follows it at once; an Apache
    Fluss cannot do that, and refuses. A paused table stays paused: the round comes after `sluice
    resume`. Rows that are in the lake are not copied again.
    """
    done = "is wanted: it is handed out to whoever claims next"
    paused = f"is wanted, but it is paused: nobody gets it until `sluice resume {table}`"

    def wanted(admin: Admin, path: TablePath) -> None:
        admin.tier_again(path)

    _control(table, bootstrap, config_file, wanted, done, lambda s: paused if s.paused else None)
