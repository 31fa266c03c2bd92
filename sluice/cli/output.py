"""What commands print: tables for people, JSON for machines."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import click

_GAP = 2
"""Between two columns."""
_PADDED = 250
"""Columns are made as wide as their longest cell, but no wider than this, in a file or a pipe."""


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], empty: str, *, exact: bool = False
) -> None:
    """A rich table on standard output, or the line ``empty`` if there are no rows.

    Numbers stand right. Where the output is no terminal, each row has one line, however long.

    :param exact: numbers as they are, for values of users; else for reading: with thousands apart,
        and two digits behind the point.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    content = [[("" if cell is None else cell) for cell in row] for row in rows]
    if not content:
        click.echo(empty)
        return
    numbers = [
        all(_is_number(cell) or cell == "" for cell in of) for of in zip(*content, strict=True)
    ]
    if exact:
        content = [[str(c) if _is_number(c) else c for c in row] for row in content]
    console = Console()
    if not console.is_terminal:
        _print_lines([list(columns), *content], numbers)
        return
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    widths = _widths([list(columns), *content], console.width)
    for index, column in enumerate(columns):
        justify: Literal["left", "right"] = "right" if numbers[index] else "left"
        table.add_column(column, justify=justify, overflow="fold", width=widths[index])
    for row in content:
        table.add_row(*(text(cell) for cell in row))
    console.print(table)


def _print_lines(rows: Sequence[Sequence[object]], numbers: Sequence[bool]) -> None:
    """Each row on one line, below a line of headings and a rule; columns stand below each other."""
    from rich.cells import cell_len

    widths = [min(width, _PADDED) for width in _full_widths(rows)]
    rule = "─" * (sum(widths) + _GAP * (len(widths) - 1))
    for number, row in enumerate(rows):
        line = ""
        for cell, width, is_number in zip(row, widths, numbers, strict=True):
            shown = " ".join(plain(cell).splitlines())
            room = " " * (width - cell_len(shown))
            line += f"{room}{shown}" if is_number else f"{shown}{room}"
            line += " " * _GAP
        click.echo(line.rstrip())
        if number == 0:
            click.echo(rule)


def _is_number(cell: object) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def _full_widths(rows: Sequence[Sequence[object]]) -> list[int]:
    """Of each column: room for its longest line."""
    from rich.cells import cell_len

    columns = zip(*rows, strict=True)
    return [
        max(cell_len(line) for cell in column for line in plain(cell).split("\n"))
        for column in columns
    ]


def _widths(rows: Sequence[Sequence[object]], width: int) -> list[int]:
    """Of each column: room for its longest word first, then for whole lines, the short ones first.

    Only where not even the words fit, the longest are folded.
    """
    from rich.cells import cell_len

    columns = [[plain(cell) for cell in column] for column in zip(*rows, strict=True)]
    full = _full_widths(rows)
    least = [max(cell_len(w) for c in column for w in c.split() or [""]) for column in columns]
    room = width - _GAP * (len(columns) - 1)
    while sum(least) > room and max(least) > 1:
        least[least.index(max(least))] -= 1
    left = room - sum(least)
    wanting = sorted(range(len(columns)), key=lambda index: full[index] - least[index])
    for done, index in enumerate(wanting):
        more = max(min(full[index] - least[index], left // (len(columns) - done)), 0)
        least[index] += more
        left -= more
    return least


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


def as_json(value: Any) -> Any:
    """As it is printed: bytes in hexadecimal digits, what JSON does not know as text."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # nan, inf, -inf: no numbers in JSON
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        return {str(name): as_json(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(part) for part in value]
    return str(value)


def print_json(value: Any, *, one_line: bool = False) -> None:
    """One JSON document on standard output.

    :param one_line: for one of many (JSON lines).
    """
    click.echo(json.dumps(value, indent=None if one_line else 2, sort_keys=True))


def when(epoch_ms: int | None) -> str | None:
    """Epoch milliseconds as UTC text with seconds; None stays None."""
    if epoch_ms is None:
        return None
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
