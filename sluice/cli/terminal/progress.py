"""A progress bar for a round of tiering, on standard error."""

from __future__ import annotations

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


class RoundBar:
    """Shows the phase and the copied rows until the block ends; any thread may report them."""

    def __init__(self, table: str) -> None:
        self._table = line(table)
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
        self._task = self._bar.add_task(f"{self._table}: claiming", total=None)

    def phase(self, name: str) -> None:
        words = _WORDS.get(name, name)
        self._bar.update(self._task, description=f"{self._table}: {words}")

    def planned(self, splits: int, offsets: int) -> None:
        del splits
        self._bar.update(self._task, total=offsets, completed=0)

    def copied(self, rows: int) -> None:
        self._bar.advance(self._task, rows)

    def __enter__(self) -> RoundBar:
        if not self._bar.disable:
            self._bar.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if not self._bar.disable:  # older versions of rich print a line even so
            self._bar.stop()
