"""A group of commands: it suggests one for a misspelt name, and checks the bytes of arguments."""

from __future__ import annotations

import click

from sluice.cli.terminal.not_utf8 import check_utf8
from sluice.did_you_mean import did_you_mean


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
