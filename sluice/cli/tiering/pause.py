"""`sluice pause`, `resume`, `retry`, `retier`, `compact`: what users request for one table."""

from __future__ import annotations

import click

from sluice.cli.terminal.options import TABLE_PATH, Settings, examples, with_settings
from sluice.cli.terminal.output import say
from sluice.model import TablePath


def _command(name: str, short_help: str, text: str) -> click.Command:
    """A command that sends the request of its name for a table, and prints what was done."""

    @click.command(
        name, help=text, short_help=short_help, epilog=examples(f"sluice {name} shop.orders")
    )
    @click.argument("table", type=TABLE_PATH)
    @with_settings
    def command(table: TablePath, settings: Settings) -> None:
        from sluice.client import user_requests

        request: user_requests.Request = getattr(user_requests, name)
        with settings.connect() as client:
            done = request(client, table)
        say(f"table {table}: {done}")

    return command


pause = _command(
    "pause",
    "Pause tiering of a table.",
    """Pause tiering of TABLE until `sluice resume`.

    The pause survives restarts of the server. An Airflow task ends its round of
    the table; a round of `sluice tier` continues. `sluice status` shows
    the table as paused. On an Apache Fluss cluster, which has no pause, only Sluice's rounds honour
    it.
    """,
)
resume = _command(
    "resume",
    "Resume tiering of a paused table.",
    "Resume tiering of TABLE after `sluice pause`.",
)
retry = _command(
    "retry",
    "Retry a failing table without waiting.",
    """Clear the failures of TABLE, so that its next round may start now.

    After a failure a table waits for 10 seconds, then for twice as long after each further failure.
    Run this command once the cause is repaired. It changes nothing for a table without failures;
    `sluice retier` requests a round of such a table.
    """,
)
retier = _command(
    "retier",
    "Request a round of a table now.",
    """Request a round of TABLE now, without waiting for its freshness.

    `sluice tier` or the next run of the DAG starts the round; `sluice tier --now` requests and runs
    it in one command. If a round is under way, the requested one follows it; an Apache Fluss
    cluster refuses the request then. A paused table stays paused, and the round starts after
    `sluice resume`. Rows that are in the lake are not copied again.
    """,
)
compact = _command(
    "compact",
    "Request a compaction of a table.",
    """Request that the next round of TABLE compacts it.

    The round merges small files, and rewrites files of which many rows are deleted, also in buckets
    without new rows. It does so whatever options the table has. The request stays until a round has
    rewritten all that is worth it, and ends after a day, or twice the table's freshness if that is
    longer. `sluice status` shows it. A paused table is compacted by its first round after
    `sluice resume`. No round compacts a table with partition fields of a user's own: Iceberg's
    rewrite_data_files does, and the round says so.

    The command does not look at the lake, and needs no Java. `sluice maintain --yes` requests a
    compaction only of tables that need it.
    """,
)
