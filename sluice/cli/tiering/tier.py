"""`sluice tier`: runs one round of one table in this process."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from sluice.cli.terminal.options import (
    DURATION,
    TABLE_PATH,
    Settings,
    WholeNumber,
    examples,
    format_option,
    warehouse_option,
    with_settings,
)
from sluice.cli.terminal.output import say
from sluice.model import TablePath
from sluice.stop_signals import explain_stop, sigterm_raises

if TYPE_CHECKING:
    from sluice.config import Config
    from sluice.rounds.records.result import RoundResult

EXIT_GIVEN_UP = 3
POLL_S = 0.5
"""With --wait: the first interval between two requests to the coordinator."""
POLL_S_MAX = 10.0
"""The longest interval. An Apache Fluss coordinator assigns another table that is due at each
request, and Sluice releases that table."""
_NOT_CLAIMED = ": nothing was committed, because the table was not claimed yet"


@click.command(
    short_help="Tier a table into the lake once.",
    epilog=examples(
        "sluice tier shop.orders --warehouse ./lake",
        "sluice tier shop.orders --warehouse ./lake --now",
        "sluice tier shop.orders --warehouse ./lake --wait 5min",
        "sluice tier shop.orders --config sluice.toml --format json",
    ),
)
@click.argument("table", type=TABLE_PATH)
@warehouse_option
@click.option(
    "--parallelism",
    type=WholeNumber(min=1),
    metavar="N",
    help="Copy N buckets or parts at once.",
)
@click.option(
    "--now", is_flag=True, help="Tier the table even if it is not due or has just failed."
)
@click.option(
    "--wait",
    "wait_ms",
    type=DURATION,
    default=0,
    metavar="DURATION",
    help="Wait at most this long until the table is due, as in 30s, 5min.",
)
@format_option
@with_settings
@click.pass_context
def tier(
    ctx: click.Context,
    table: TablePath,
    parallelism: int | None,
    now: bool,
    wait_ms: int,
    output_format: str,
    settings: Settings,
) -> None:
    """Tier TABLE into the lake once, in this process, without Airflow.

    The command claims the table from the coordinator, copies the new rows with threads, and commits
    to Iceberg and then to Fluss. Spark runs the same round for the DAG. It prints one line;
    --format json also has the seconds of each phase and the end offset of each bucket.

    A table becomes due one freshness after its last round; --now does not wait for it. --wait
    also waits for the end of a round under way, and for leaders of the table's buckets. A paused
    table is refused, with --now too.

    A round has a time limit, which is the table's freshness (at least a minute) or
    tiering.max_round_ms, and a size limit, tiering.max_round_bytes. At a limit it commits the
    copied rows, and the rest is due at once.

    Ctrl-C and SIGTERM end the command and release the table, which is no failure of it. If the
    commit has begun, the command completes it and prints its result line before it ends.

    Needs Java 17 or newer and pip install 'fluss-sluice[spark]'.

    Exit code 0: the lake has the rows, or there were no new rows. 1: the round failed (buckets that
    did not fail may be committed), or the table could not be claimed. 2: wrong arguments or
    settings. 3: the round lost its claim before the commit, because the coordinator assigned the
    table to another round or was restarted. Nothing was committed then, and the next round copies
    the rows. 3 is also the code of a table that was dropped during the round; the line says so, and
    no round copies its rows. 130: Ctrl-C ended the command. 143: SIGTERM ended it.
    """
    config = settings.lake_config(must_exist=False, parallelism=parallelism)
    from sluice.cli.terminal.cluster import require_cluster, suggested_names

    require_cluster(config.client)
    rounds: list[tuple[RoundResult, float]] = []
    try:
        with suggested_names(config.client), sigterm_raises():
            _tier(config, table, wait_ms, now, rounds)
    finally:  # if a signal arrived during the commit, the round has a result
        for result, spent_s in rounds:
            _print(result, spent_s, output_format)
    ctx.exit(EXIT_GIVEN_UP if result.is_given_up else 0)


def _tier(
    config: Config,
    table: TablePath,
    wait_ms: int,
    now: bool,
    rounds: list[tuple[RoundResult, float]],
) -> None:
    """Runs a round as soon as the table is due.

    :param rounds: receives the round's result and its length in seconds, also if a signal that
        arrived during the commit is raised after it.
    :raises TableNotDue: the table did not become due in that time, or cannot.
    """
    from sluice.cli.terminal.progress import RoundBar
    from sluice.driver.local import tier_once
    from sluice.errors import TableNotDue

    asked = started = time.monotonic()
    unled: float | None = None  # since when the table has had no leader

    def on_result(result: RoundResult) -> None:
        rounds.append((result, time.monotonic() - started))

    with RoundBar(str(table)) as bar:
        while True:
            started = time.monotonic()
            try:
                tier_once(config, table, now=now, progress=bar, on_result=on_result)
                return
            except KeyboardInterrupt as stop:
                explain_stop(stop, _NOT_CLAIMED)
                raise
            except TableNotDue as error:
                waited_s = time.monotonic() - asked
                left_s = wait_ms / 1000 - waited_s
                unled = (unled or started) if error.details.get("has_no_leader") else None
                if left_s <= 0 or not error.details.get("waits"):
                    if unled is not None and wait_ms:
                        unled_s = round(time.monotonic() - unled)
                        error.message += f". It has had no leader for the last {unled_s} s"
                    raise
                bar.phase("wait")
                _wait(min(left_s, poll_interval_s(waited_s)))


def _wait(seconds: float) -> None:
    try:
        time.sleep(seconds)
    except KeyboardInterrupt as stop:
        explain_stop(stop, _NOT_CLAIMED)
        raise


def poll_interval_s(waited_s: float) -> float:
    """A tenth of the time waited so far: short waits end soon, long waits cost few requests."""
    return min(max(POLL_S, waited_s / 10), POLL_S_MAX)


def ended(result: RoundResult) -> str:
    """The outcome of a round in words."""
    if result.table_dropped:
        if result.is_given_up:
            return "nothing was committed: the table was dropped during the round"
        return "committed to the lake; the table was dropped before the registration with Fluss"
    if result.is_given_up:
        return "nothing was committed: the claim was lost; the next round copies the rows"
    words = {
        "committed": "committed to the lake",
        "nothing_new": "no new rows",
        "already_landed": "an earlier attempt of this round had committed",
        "claim_lost": "committed to the lake; the claim was lost before the registration with"
        " Fluss, which the next round repeats",
    }
    return words.get(result.outcome, result.outcome)


def summary(result: RoundResult, spent_s: float) -> str:
    """The round in one line: outcome, rows, files, bytes, lake snapshot and seconds."""
    from sluice.quantities import byte_size, counted
    from sluice.rounds.records.log_line import deleted_keys

    parts: list[str] = []
    if result.rows or result.files:
        parts.append(counted(result.rows, "row"))
        if result.deletes:
            parts.append(deleted_keys(result))
    if result.compacted:
        parts.append(result.compacted)
    if result.rows or result.files:
        parts += [counted(result.files, "file"), byte_size(result.bytes_written)]
    head = f"{result.table}: {ended(result)}{': ' if parts else ', '}"
    is_older = result.outcome == "nothing_new" and result.files_compacted  # than the compaction's
    if result.lake_snapshot_id is not None and not is_older:
        parts.append(f"lake snapshot id {result.lake_snapshot_id}")
    return f"{head}{', '.join([*parts, f'{spent_s:.1f} s'])}"


def _print(result: RoundResult, spent_s: float, output_format: str) -> None:
    if output_format == "json":
        from sluice.cli.terminal.output import print_json

        print_json(result.to_json())
        return
    say(summary(result, spent_s))
    if result.forced:
        say(f"note: {result.forced}")
    if result.recovered_snapshot_id is not None:
        found = result.recovered_snapshot_id
        say(f"note: registered lake snapshot id {found} of an earlier round with Fluss")
    for note in result.notes:
        say(f"note: {note}")
