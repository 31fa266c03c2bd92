"""What commands print: tables for people, JSON for machines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import click

_GAP = 2
"""Between two columns."""
_FOLDED_MIN = 7
"""Least width left to a column that is folded."""


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], empty: str) -> None:
    """A rich table on standard output, or the line ``empty`` if there are no rows.

    Numbers stand right. Where the output is no terminal, nothing is cut off.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    content = [[("" if cell is None else cell) for cell in row] for row in rows]
    if not content:
        click.echo(empty)
        return
    console = Console()
    if not console.is_terminal:
        console = Console(width=250)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    whole = _whole([list(columns), *content], console.width)
    for index, column in enumerate(columns):
        right = all(isinstance(row[index], int | float) or row[index] == "" for row in content)
        justify: Literal["left", "right"] = "right" if right else "left"
        no_wrap = index in whole
        table.add_column(column, justify=justify, overflow="fold", no_wrap=no_wrap)
    for row in content:
        table.add_row(*(text(cell) for cell in row))
    console.print(table)


def _whole(rows: Sequence[Sequence[object]], width: int) -> set[int]:
    """Columns whose cells are not broken: all, or as many short ones as leave the others room."""
    from rich.cells import cell_len

    widths = [
        max(cell_len(line) for row in rows for line in (*plain(row[index]).split("\n"), ""))
        for index in range(len(rows[0]))
    ]
    left = width - _GAP * (len(widths) - 1)
    if sum(widths) <= left:
        return set(range(len(widths)))
    whole: set[int] = set()
    others = len(widths)
    for index in sorted(range(len(widths)), key=widths.__getitem__):
        others -= 1
        if widths[index] > left - others * _FOLDED_MIN:
            break
        whole.add(index)
        left -= widths[index]
    return whole if len(whole) < len(widths) else set()


def counted(number: int, one: str) -> str:
    """A number and its noun: ``1 row``, ``2 rows``."""
    return f"{number:,} {one}{'' if number == 1 else 's'}"


def text(cell: object) -> str:
    """Numbers with thousands apart, everything else as it is, never read as markup."""
    from rich.markup import escape

    return escape(plain(cell))


def plain(cell: object) -> str:
    """As it is read."""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    if isinstance(cell, float):
        return f"{cell:,.2f}"
    return str(cell)


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    click.echo(json.dumps(value, indent=2, sort_keys=True))


def when(epoch_ms: int | None) -> str | None:
    """Epoch milliseconds as UTC text with seconds; None stays None."""
    if epoch_ms is None:
        return None
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
