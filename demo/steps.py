"""What the demo shows while it works: one line per step, with its seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

Say = Callable[[str], None]


class _Now:
    """What a step is doing, with its seconds; drawn anew with each turn of the spinner."""

    def __init__(self, title: str) -> None:
        self._title = title
        self.told = ""
        self.started = time.monotonic()

    def say(self, text: str) -> None:
        self.told = text

    def __rich__(self) -> str:
        spent = time.monotonic() - self.started
        told = f"{escape(self.told)}, " if self.told else ""
        return f"{escape(self._title)} [dim]{told}{spent:.0f} s[/dim]"


class Steps:
    """Prints each step when it ends; in a terminal also what it is doing now."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.seconds: dict[str, float] = {}

    @contextmanager
    def step(self, title: str) -> Iterator[Say]:
        """A step; call what it yields to tell where it stands."""
        now = _Now(title)
        with self._console.status(now):
            try:
                yield now.say
            except BaseException:
                self._line("[red]✗[/red]", title, now.told, now.started)
                raise
        self._line("[green]✓[/green]", title, now.told, now.started)

    def _line(self, sign: str, title: str, told: str, started: float) -> None:
        spent = time.monotonic() - started
        self.seconds[title] = round(spent, 1)
        detail = f"  [dim]{escape(told)}[/dim]" if told else ""
        self._console.print(
            f"{sign} {escape(title):<48}{spent:6.1f} s{detail}", highlight=False, soft_wrap=True
        )
