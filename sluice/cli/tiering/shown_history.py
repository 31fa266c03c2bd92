"""What `sluice history` prints for people: a table, and a line for each reason."""

from __future__ import annotations

from collections.abc import Sequence

from sluice.cli.terminal.output import Styled, print_table, print_wrapped
from sluice.cli.terminal.record_cells import age, cell, duration, headed_fields
from sluice.model import TieringRound
from sluice.quantities import byte_size, counted

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
