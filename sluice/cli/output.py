"""What commands print: tables for people, JSON for machines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import click


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
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        right = all(isinstance(row[index], int | float) or row[index] == "" for row in content)
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    for row in content:
        table.add_row(*(text(cell) for cell in row))
    console = Console()
    if not console.is_terminal:
        console = Console(width=250)
    console.print(table)


def counted(number: int, one: str) -> str:
    """A number and its noun: ``1 row``, ``2 rows``."""
    return f"{number:,} {one}{'' if number == 1 else 's'}"


def text(cell: object) -> str:
    """Numbers with thousands apart, everything else as it is, never read as markup."""
    from rich.markup import escape

    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    if isinstance(cell, float):
        return f"{cell:,.2f}"
    return escape(str(cell))


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    click.echo(json.dumps(value, indent=2, sort_keys=True))


def when(epoch_ms: int | None) -> str | None:
    """Epoch milliseconds as UTC text with seconds; None stays None."""
    if epoch_ms is None:
        return None
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
