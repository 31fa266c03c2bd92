"""`sluice history`: what the newest rounds of a table did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from sluice.cli.terminal.options import (
    TABLE_PATH,
    Settings,
    WholeNumber,
    examples,
    format_option,
    with_settings,
)
from sluice.cli.terminal.output import Styled, print_json, print_table, print_wrapped
from sluice.cli.terminal.record_cells import age, cell, document, duration, headed_fields
from sluice.cli.tiering.status import not_tiered
from sluice.clock import SystemClock
from sluice.model import TablePath, TieringRound
from sluice.model.round_record import ROUNDS_KEPT
from sluice.quantities import byte_size, counted

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
    type=WholeNumber(1, ROUNDS_KEPT),
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


_DELETES = "deletes"
COLUMNS = ("ended", "outcome", "duration", "rows", _DELETES, "files", "bytes", "lag")
_STYLES = {"failed": "red", "committed": "green"}
_EARLY = "ended early "
"""The note of a round that reached a limit begins with it."""


def print_rounds(rounds: Sequence[TieringRound], now_ms: int, empty: str) -> None:
    """Prints the columns that fit 80 characters, then why rounds failed and their notes.

    :param empty: the line to print if there are no rounds.
    """
    has_deletes = any(each.keys_deleted for each in rounds)
    shown = [at for at, name in enumerate(COLUMNS) if has_deletes or name != _DELETES]
    rows = [_row(each, now_ms) for each in rounds]
    print_table([COLUMNS[at] for at in shown], [[row[at] for at in shown] for row in rows], empty)
    failed = [(each, each.reason or "no reason reported") for each in rounds if not each.succeeded]
    notes = [(each, each.note) for each in rounds if each.note]
    early = [(each, note.removeprefix(_EARLY)) for each, note in notes if note.startswith(_EARLY)]
    others = [(each, note) for each, note in notes if not note.startswith(_EARLY)]
    others += [(each, each.compacted) for each in rounds if each.compacted and _is_told(each)]
    for what, found in (("failed", failed), ("ended early", early), ("noted", others)):
        for line in _grouped(what, found, now_ms):
            print_wrapped(line)


def print_wide(rounds: Sequence[TieringRound], empty: str) -> None:
    """Prints all fields that have a heading, with times in UTC and complete reasons."""
    shown = headed_fields(TieringRound)
    rows = [[cell(entry, getattr(each, entry.name)) for entry in shown] for each in rounds]
    print_table([entry.heading for entry in shown], rows, empty, fold=False)


def _is_told(each: TieringRound) -> bool:
    """Whether people want to read what this round has compacted, or why it has not.

    The files of a usual compaction are among those of its round.
    """
    is_requested = each.compaction_request_ms is not None
    return is_requested or each.outcome == "nothing_new" or not each.files_compacted


def _row(each: TieringRound, now_ms: int) -> list[object]:
    outcome = (each.outcome or "").replace("_", " ")
    return [
        age(each.ended_ms, now_ms),
        Styled(outcome, _STYLES.get(outcome, "")),
        None if each.duration_ms is None else duration(each.duration_ms),
        each.rows_written,
        each.keys_deleted,
        each.files_written,
        None if each.bytes_written is None else byte_size(each.bytes_written),
        _lag(each),
    ]


def _lag(each: TieringRound) -> str | None:
    """``1,200 → 0``; ``none`` if the lake had every row."""
    before, after = each.lag_rows_before, each.lag_rows_after
    if before is None or after is None:
        return None if before is None else f"{before:,}"
    return f"{before:,} → {after:,}" if before or after else "none"


def _grouped(what: str, found: Sequence[tuple[TieringRound, str]], now_ms: int) -> list[str]:
    """A line for each different text, with the number of its rounds and the age of the newest."""
    by_text: dict[str, list[TieringRound]] = {}
    for each, said in found:
        by_text.setdefault(said, []).append(each)
    lines = []
    for said, rounds in by_text.items():
        newest = age(rounds[0].ended_ms, now_ms) or "at an unknown time"
        last = f", the last {newest}" if len(rounds) > 1 else f" {newest}"
        lines.append(f"{counted(len(rounds), 'round')} {what}{last}: {said}")
    return lines
