"""Shows the progress of the demo: one line per step, with its seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

Say = Callable[[str], None]


class _CurrentStep:
    """The current step and its seconds, drawn with each turn of the spinner."""

    def __init__(self, title: str) -> None:
        self._title = title
        self.detail = ""
        self.started = time.monotonic()

    def say(self, text: str) -> None:
        self.detail = text

    def __rich__(self) -> str:
        spent = time.monotonic() - self.started
        detail = f"{escape(self.detail)}, " if self.detail else ""
        return f"{escape(self._title)} [dim]{detail}{spent:.0f} s[/dim]"


class Steps:
    """Prints each step when it ends. A terminal also shows the current step."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.seconds: dict[str, float] = {}

    @contextmanager
    def step(self, title: str) -> Iterator[Say]:
        """Runs a step. Call the yielded function to show its progress."""
        current = _CurrentStep(title)
        with self._console.status(current):
            try:
                yield current.say
            except BaseException:
                self._line("[red]✗[/red]", title, current.detail, current.started)
                raise
        self._line("[green]✓[/green]", title, current.detail, current.started)

    def _line(self, sign: str, title: str, detail: str, started: float) -> None:
        spent = time.monotonic() - started
        self.seconds[title] = round(spent, 1)
        shown = f"  [dim]{escape(detail)}[/dim]" if detail else ""
        self._console.print(
            f"{sign} {escape(title):<48}{spent:6.1f} s{shown}", highlight=False, soft_wrap=True
        )
