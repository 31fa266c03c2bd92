"""A group of commands that suggests a command for a misspelt one."""

from __future__ import annotations

import click

from sluice.did_you_mean import did_you_mean


class CommandGroup(click.Group):
    """A group whose error for an unknown command has the form of all other errors."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name.startswith("-") or name in self.commands:
            return super().resolve_command(ctx, args)
        raise click.UsageError(f"no such command {name!r}{did_you_mean(name, self.commands)}", ctx)
