"""How to resume a run that broke off: the command to copy, and the text above it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TypeVar

import click

from sluice.cli.terminal.output import say, say_command
from sluice.errors import SluiceError
from sluice.masking import mask
from sluice.quantities import counted

E = TypeVar("E", bound=SluiceError | click.ClickException)


@dataclass(frozen=True)
class Advice:
    """A text for the user, and a command to copy if there is one."""

    text: str
    command: str | None = None

    def say(self) -> None:
        """Prints both on standard error."""
        say(self.text, err=True)
        if self.command is not None:
            say_command(self.command)

    def added_to(self, error: E) -> E:
        """The error with this text at its end. The command is a note, printed as it is."""
        details = error.details if isinstance(error, SluiceError) else {}
        longer = type(error)(f"{error.message}. {self.text}", **details)
        if self.command is not None:
            longer.add_note(self.command)
        return longer

    def usage_error(self) -> click.UsageError:
        """An error of this text alone."""
        error = click.UsageError(self.text)
        if self.command is not None:
            error.add_note(self.command)
        return error


class ResumeCommand:
    """A command as the user gave it, which can be repeated from a later row."""

    def __init__(self, context: click.Context) -> None:
        self._name = str(context.command.name)
        self._arguments: list[str] = []
        self._options: list[str] = []
        self._hidden: list[str] = []
        for parameter in context.command.params:
            value = context.params.get(str(parameter.name))
            if value in (None, False) or parameter.name in ("skip_rows", "again"):
                continue
            if not isinstance(parameter, click.Option):
                self._arguments.append(str(value))
                continue
            self._options.append(parameter.opts[0])
            if value is not True:
                self._options.append(self._shown(parameter, str(value)))

    def _shown(self, option: click.Option, value: str) -> str:
        if mask(value) == value:
            return value
        placeholder = option.metavar or "VALUE"
        placeholder = "VALUE" if "[" in placeholder else placeholder
        self._hidden.append(f"Replace {placeholder} with your {option.opts[0]}")
        return placeholder

    def advice(self, text: str, skip_rows: int | None = None, *, again: bool = False) -> Advice:
        """A text, and the command that skips this number of rows."""
        text += "".join(f". {hidden}" for hidden in self._hidden)
        return Advice(f"{text}. Resume with:", self._line(skip_rows, again))

    def _line(self, skip_rows: int | None, again: bool) -> str:
        options = [*self._options, *(["--again"] if again else [])]
        if skip_rows is not None:
            options += ["--skip-rows", str(skip_rows)]
        words = [*self._arguments, *options]
        if any(word.startswith("-") for word in self._arguments):
            words = [*options, "--", *self._arguments]
        return shlex.join(["sluice", self._name, *words])


def stored_text(name: str, stored: int, total: int, done: str = "stored") -> str:
    """A sentence about the rows of a file that are known to be stored."""
    return f"At least the first {stored:,} of {counted(total, 'row')} of {name} are {done}"
