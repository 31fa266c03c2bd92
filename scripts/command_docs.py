"""Generates docs/commands.md from the help of the commands.

``python -m scripts.command_docs`` writes it, ``--check`` compares and fails if it is out of date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click
from click.testing import CliRunner

from scripts.written_page import write_or_check
from sluice.cli.main import cli

TARGET = Path(__file__).resolve().parent.parent / "docs" / "commands.md"
COLUMNS = 80

INTRODUCTION = """\
# Commands

Written by `scripts/command_docs.py` from the help of the commands: change it there.

"""


def render() -> str:
    """Returns the complete page."""
    words = list(_commands(cli, ("sluice",)))
    parts = [INTRODUCTION, "| command | what it does |\n| --- | --- |\n"]
    for names, command in words[1:]:
        title = " ".join(names)
        short = command.get_short_help_str(limit=1000).replace("|", "\\|")
        parts.append(f"| [`{title}`](#{title.replace(' ', '-')}) | {short} |\n")
    for names, _ in words:
        parts.append(f"\n## {' '.join(names)}\n\n```text\n{help_of(names[1:])}\n```\n")
    return "".join(parts)


def help_of(names: tuple[str, ...]) -> str:
    """Returns the output of ``sluice NAMES --help`` on a terminal of 80 columns."""
    arguments = [*names, "--help"]
    done = CliRunner().invoke(cli, arguments, prog_name="sluice", env={"COLUMNS": str(COLUMNS)})
    if done.exit_code:
        raise RuntimeError(f"{' '.join(arguments)}: exit code {done.exit_code}: {done.output}")
    return "\n".join(line.rstrip() for line in done.output.strip().splitlines())


def _commands(
    command: click.Command, names: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yields the command and its subcommands, each with its names."""
    yield names, command
    if isinstance(command, click.Group):
        for name, inner in sorted(command.commands.items()):
            if not inner.hidden:
                yield from _commands(inner, (*names, name))


if __name__ == "__main__":
    sys.exit(write_or_check(TARGET, render(), "make docs"))
