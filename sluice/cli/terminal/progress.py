"""Progress bars on standard error, if that is a terminal: of rows, and of a round of tiering."""

from __future__ import annotations

from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from sluice.masking import line

_WORDS = {
    "wait": "waiting until it is due",
    "recover": "checking for an unfinished round",
    "plan": "planning",
    "copy": "copying rows",
    "prepare": "storing offsets",
    "lake_commit": "committing to the lake",
    "fluss_commit": "registering with Fluss",
    "expire": "expiring old snapshots",
}


class RowBar:
    """Counts rows until the block ends; any thread may report them."""

    def __init__(self, description: str, total: int | None = None) -> None:
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task(line(description), total=total)

    def copied(self, rows: int) -> None:
        self._bar.advance(self._task, rows)

    def __enter__(self) -> Self:
        if not self._bar.disable:
            self._bar.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if not self._bar.disable:  # older versions of rich print a line even so
            self._bar.stop()


class RoundBar(RowBar):
    """Also shows the phase of a round."""

    def __init__(self, table: str) -> None:
        super().__init__(f"{table}: claiming")
        self._table = line(table)

    def phase(self, name: str) -> None:
        words = _WORDS.get(name, name)
        self._bar.update(self._task, description=f"{self._table}: {words}")

    def planned(self, splits: int, offsets: int) -> None:
        del splits
        self._bar.update(self._task, total=offsets, completed=0)
