"""How to go on after a run that broke off: the command to copy, and what is told beside it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TypeVar

import click

from sluice.cli.output import counted
from sluice.errors import SluiceError
from sluice.masking import mask

E = TypeVar("E", bound=SluiceError)


@dataclass(frozen=True)
class Told:
    """A text for people, and under it a command to copy, if there is one."""

    text: str
    command: str | None = None

    @property
    def lines(self) -> str:
        return self.text if self.command is None else f"{self.text}\n{self.command}"

    def told_by(self, error: E) -> E:
        """The error with this at its end; who prints it leaves the command as it is."""
        told = type(error)(f"{error}. {self.text}", **error.details)
        if self.command is not None:
            told.add_note(self.command)
        return told


class Command:
    """A command as it was given, which can be told once more with other first rows."""

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
        self._hidden.append(f"your {option.opts[0]} in place of {placeholder}")
        return placeholder

    def told(self, text: str, skip_rows: int | None = None, *, again: bool = False) -> Told:
        """A text, and the command that starts after so many rows."""
        text += "".join(f". Put {hidden}" for hidden in self._hidden)
        return Told(f"{text}. Go on with:", self._line(skip_rows, again))

    def _line(self, skip_rows: int | None, again: bool) -> str:
        options = [*self._options, *(["--again"] if again else [])]
        if skip_rows is not None:
            options += ["--skip-rows", str(skip_rows)]
        words = [*self._arguments, *options]
        if any(word.startswith("-") for word in self._arguments):
            words = [*options, "--", *self._arguments]
        return shlex.join(["sluice", self._name, *words])


def stored_text(name: str, stored: int, total: int, done: str = "stored") -> str:
    """What is known of a file's rows; more of them may be there."""
    return f"The first {stored:,} of {counted(total, 'row')} of {name} are {done}, maybe more"
