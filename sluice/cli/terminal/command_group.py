"""A group of commands: it suggests one for a misspelt name, and refuses bytes that are not UTF-8.

Python passes such bytes on as lone surrogates, which neither a message of Fluss nor Java can hold.
Local files and folders may have any name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import click

from sluice.did_you_mean import did_you_mean

_AROUND = 40
"""Bytes of a long argument that are shown on either side of the wrong one."""
_LOCAL = ("DIR", "FILE")
"""Metavars of options that are local paths, beside those of type ``click.Path``."""


def check_utf8(context: click.Context, command: click.Command, arguments: Sequence[str]) -> None:
    """Checks the arguments of a command.

    :param context: that of the group which the command belongs to.
    :raises click.BadParameter: names the option or argument, with its bytes.
    """
    if all(map(_is_utf8, arguments)):
        return
    own = click.Context(command, parent=context, info_name=command.name)
    try:
        values, _, order = command.make_parser(own).parse_args(list(arguments))
    except click.UsageError:
        return  # the command itself raises it again
    for parameter in order:
        wrong = [text for text in _texts(values.get(parameter.name or "")) if not _is_utf8(text)]
        if wrong and not _is_local(parameter):
            message = f"{_shown(os.fsencode(wrong[0]))} is not UTF-8; write it in UTF-8"
            raise click.BadParameter(message, own, parameter)


def _is_utf8(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _is_local(parameter: click.Parameter) -> bool:
    return isinstance(parameter.type, click.Path) or parameter.metavar in _LOCAL


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part)


def _shown(text: bytes) -> str:
    """The bytes around the first that is not UTF-8, as Python writes bytes."""
    try:
        text.decode()
    except UnicodeDecodeError as error:
        start, end = max(0, error.start - _AROUND), error.start + 1 + _AROUND
        before, after = "..." if start else "", "..." if end < len(text) else ""
        return f"{before}{text[start:end]!r}{after}"
    return repr(text)


class CommandGroup(click.Group):
    """A group whose error for an unknown command has the form of all other errors."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name.startswith("-") or name in self.commands:
            found = super().resolve_command(ctx, args)
            if found[1] is not None:
                check_utf8(ctx, found[1], found[2])
            return found
        raise click.UsageError(f"no such command {name!r}{did_you_mean(name, self.commands)}", ctx)
