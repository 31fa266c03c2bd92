"""What commands print: lines and tables for people, JSON for machines.

All that a command prints passes here, and so :mod:`sluice.masking`: ``tests/unit/test_writers.py``
finds what goes round it. Styles are added afterwards, so no text from outside has a colour.
"""

from __future__ import annotations

import functools
import math
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import click

from sluice.json_text import json_shown
from sluice.masking import line as safe_line
from sluice.masking import masked_values, one_line, visible

if TYPE_CHECKING:
    from rich.text import Text

_GAP = 2
"""Between two columns."""
_PADDED = 250
"""Columns are made as wide as their longest cell, but no wider than this, in a file or a pipe."""
_SHORTENED_MIN = 12
"""A shortened cell keeps at least this many characters."""
_CELLS_KEPT = 4_096
"""Texts of a table's cells, which often come again."""
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


@dataclass(frozen=True, slots=True)
class Styled:
    """A cell with a style of rich's, which only terminals with colours show."""

    text: str
    style: str

    def __str__(self) -> str:
        return self.text


def say(text: str = "", *, err: bool = False, fg: str | None = None) -> None:
    """Prints one line, without secrets, on standard output.

    :param err: on standard error. :param fg: the colour of the line on a terminal.
    """
    click.secho(safe_line(text), fg=fg, err=err)


def say_command(command: str, *, err: bool = True) -> None:
    """Prints a command to copy: nothing is masked in it, but control characters are shown."""
    shown = one_line(command)
    click.echo(shown, err=err)
    if shown != command:
        say("A name in this command has control characters: write that name yourself", err=err)


def say_link(words: str, link: str) -> None:
    """Prints a link of ours that lets its reader in, whole: it is no secret of a setting."""
    click.echo(f"{visible(words)} {link}")


def print_file(content: str) -> None:
    """Prints a file of this package as it is."""
    click.echo(content, nl=False)


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    empty: str,
    *,
    exact: bool = False,
    shorten: int | None = None,
    fold: bool = True,
    is_data: bool = False,
) -> None:
    """Prints a table on standard output, or the line ``empty`` if there are no rows.

    Numbers are aligned right. A terminal gets a table of its width; cells that do not fit are
    folded. A file or a pipe gets one line for each row, as long as the row is.

    :param exact: print numbers as they are, for values of users; else with thousands marks, and
        with two digits after the point.
    :param shorten: index of the column whose texts lose their middle on a narrow terminal.
    :param fold: fold cells that do not fit; else a narrow terminal gets one line for each row too.
    :param is_data: rows of users, who want to see their values: nothing is masked in them.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    safe = visible if is_data else lru_cache(_CELLS_KEPT)(safe_line)
    content = [[_safe(cell, safe) for cell in row] for row in rows]
    columns = [safe(column) for column in columns]
    if not content:
        say(empty)
        return
    numbers = [
        all(_is_number(cell) or cell == "" for cell in of) for of in zip(*content, strict=True)
    ]
    if exact:
        content = [[str(c) if _is_number(c) else c for c in row] for row in content]
    console = Console()
    lines: list[list[object]] = [list(columns), *content]
    if not console.is_terminal or (not fold and _line_width(_full_widths(lines)) > console.width):
        _print_lines(lines, numbers, console.width)
        return
    if shorten is not None:
        _shorten_column(lines, shorten, console.width)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    widths = _widths(lines, console.width)
    for index, column in enumerate(columns):
        justify: Literal["left", "right"] = "right" if numbers[index] else "left"
        table.add_column(column, justify=justify, overflow="fold", width=widths[index])
    for row in content:
        table.add_row(*(text(cell) for cell in row))
    console.print(table)


def _safe(cell: object, safe: Callable[[str], str]) -> object:
    """A cell that can be printed; numbers stay numbers."""
    if isinstance(cell, Styled):
        return Styled(safe(cell.text), cell.style)
    if cell is None or isinstance(cell, bool | int | float):
        return "" if cell is None else cell
    return safe(str(cell))


def print_wrapped(line: str, *, lines_max: int | None = None, more: str = "") -> None:
    """Prints a line, wrapped at the terminal's width; unchanged where there is no terminal.

    :param lines_max: a longer text is cut after this many lines.
    :param more: the line below a text that was cut.
    """
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        say(line)
        return
    wrap = functools.partial(
        textwrap.wrap, width=console.width, subsequent_indent="  ", break_on_hyphens=False
    )
    lines = wrap(safe_line(line))
    if lines_max is not None and len(lines) > lines_max:
        last = lines[lines_max - 1][: console.width - 1]
        lines = [*lines[: lines_max - 1], f"{last}…", *wrap(f"  {more}")]
    click.echo("\n".join(lines))


def _shorten_column(rows: list[list[object]], index: int, width: int) -> None:
    """Shortens the texts of one column below its heading, so that each row fits the width."""
    full = _full_widths(rows)
    room = width - _GAP * (len(full) - 1) - sum(full) + full[index]
    room = max(room, _SHORTENED_MIN, len(plain(rows[0][index])))
    for row in rows[1:]:
        row[index] = shortened(plain(row[index]), room)


def shortened(line: str, width: int) -> str:
    """A text with an ellipsis in its middle if it is longer than ``width`` characters."""
    if len(line) <= width:
        return line
    tail = (width - 1) // 2
    return f"{line[: width - 1 - tail]}…{line[len(line) - tail :]}"


def _print_lines(
    rows: Sequence[Sequence[object]], numbers: Sequence[bool], rule_width: int
) -> None:
    """Prints each row on one line, below a line of headings and a rule, with aligned columns.

    :param rule_width: the rule is no wider: mails and logs would fold it.
    """
    from rich.cells import cell_len

    widths = [min(width, _PADDED) for width in _full_widths(rows)]
    rule = "─" * min(_line_width(widths), rule_width)
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


def _line_width(widths: Sequence[int]) -> int:
    """The width of a line of columns with these widths."""
    return sum(widths) + _GAP * (len(widths) - 1)


def _full_widths(rows: Sequence[Sequence[object]]) -> list[int]:
    """The width of each column's longest line."""
    from rich.cells import cell_len

    columns = zip(*rows, strict=True)
    return [
        max(cell_len(line) for cell in column for line in plain(cell).split("\n"))
        for column in columns
    ]


def _widths(rows: Sequence[Sequence[object]], width: int) -> list[int]:
    """The width of each column: its longest word first, then complete lines, short columns first.

    The longest words are folded only where the words themselves do not fit.
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


def span(seconds: int, units: int = 2) -> str:
    """A time span in its largest units, such as ``3 min 5 s``."""
    first = next((at for at, (size, _) in enumerate(_UNITS) if seconds >= size), len(_UNITS) - 1)
    parts: list[str] = []
    for size, unit in _UNITS[first : first + units]:
        count, seconds = divmod(seconds, size)
        if count or not parts:
            parts.append(f"{count} {unit}")
    return " ".join(parts)


def text(cell: object) -> Text:
    """A cell of a rich table: numbers with thousands marks, texts unchanged (no markup)."""
    from rich.text import Text

    return Text(plain(cell), style=cell.style if isinstance(cell, Styled) else "")


def plain(cell: object) -> str:
    """The text of a cell."""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    if isinstance(cell, float):
        return f"{cell:,.2f}"
    return str(cell)


def as_json(value: Any) -> Any:
    """A value of JSON: bytes as hexadecimal digits, types that JSON lacks as text."""
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


def print_json(value: Any, *, one_line: bool = False, is_data: bool = False) -> None:
    """One JSON document on standard output. All of its characters are ASCII.

    :param one_line: for one of many (JSON lines).
    :param is_data: rows of users: nothing is masked in them.
    """
    shown = value if is_data else masked_values(value)
    click.echo(json_shown(shown, indent=None if one_line else 2, sort_keys=True))


def when(epoch_ms: int | None) -> str | None:
    """Epoch milliseconds as UTC text with seconds; None stays None."""
    if epoch_ms is None:
        return None
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
