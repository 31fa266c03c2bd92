"""`python -m tests.conformance` prints the matrix of scenarios and servers."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

import click
import structlog
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sluice.errors import SluiceError
from tests.conformance.matrix import SERVERS, Cell, Server, matrix, record_fields
from tests.conformance.scenarios import SCENARIOS

TITLES = {
    "grpc": "embedded\ngrpc://",
    "native": "embedded\nfluss://",
    "real": "Fluss 0.9.1\nfluss://",
}


def _chosen(text: str | None, known: Sequence[str], what: str) -> list[str]:
    wanted = text.split(",") if text else list(known)
    if unknown := [name for name in wanted if name not in known]:
        raise click.UsageError(f"unknown {what} {unknown[0]!r}; use one of {', '.join(known)}")
    return wanted


@click.command()
@click.option("--servers", metavar="A,B", help=f"Servers: {', '.join(SERVERS)}. Default: all.")
@click.option(
    "--scenarios", metavar="A,B", help=f"Scenarios: {', '.join(SCENARIOS)}. Default: all."
)
@click.option(
    "--record",
    is_flag=True,
    help="Record the fields of Apache Fluss's answers in answer_fields.json first. Runs only the"
    " scenarios that compare fields, and only on Apache Fluss.",
)
def main(servers: str | None, scenarios: str | None, record: bool) -> None:
    """Run scenarios on servers and print the matrix of answers.

    The exit code is 1 if any answer is wrong. Apache Fluss is downloaded once (130 MB).
    """
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    chosen = [SERVERS[name] for name in _chosen(servers, list(SERVERS), "server")]
    names = _chosen(scenarios, list(SCENARIOS), "scenario")
    if record:
        chosen, names = [SERVERS["real"]], [name for name in names if name.startswith("fields_of_")]
    console = Console() if sys.stdout.isatty() else Console(width=100)
    try:
        with console.status("starting") as status:

            def say(text: str) -> None:
                status.update(escape(text))

            if record:
                record_fields(chosen[0], names, say)
            cells = matrix(chosen, names, say)
    except SluiceError as error:
        raise click.ClickException(str(error)) from error
    _print(console, chosen, names, cells)
    sys.exit(any(cell.wrong for cell in cells))


def _print(
    console: Console, servers: Sequence[Server], scenarios: Sequence[str], cells: Sequence[Cell]
) -> None:
    found = {(cell.scenario, cell.server): cell for cell in cells}
    table = Table(title="Scenario x server: answers", box=box.ROUNDED, title_justify="left")
    table.add_column("scenario", no_wrap=True)
    for server in servers:
        table.add_column(TITLES[server.name], justify="right", no_wrap=True)
    for scenario in scenarios:
        row = [found[scenario, server.name] for server in servers]
        marked = [f"[red]{cell}[/red]" if cell.wrong else str(cell) for cell in row]
        table.add_row(scenario, *marked)
    console.print(table)
    wrong = [(cell, line) for cell in cells for line in cell.wrong]
    for cell, line in wrong:
        text = f"WRONG {cell.server}, {cell.scenario}: {line}"
        console.print(text, style="red", markup=False, highlight=False, soft_wrap=True)
    _print_known(console, servers, cells)


def _print_known(console: Console, servers: Sequence[Server], cells: Sequence[Cell]) -> None:
    """Prints every known difference that occurred, with its questions and servers."""
    listed = {key: known for server in servers for key, known in server.differences.items()}
    asked: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        for question in cell.known:
            asked.setdefault((cell.scenario, question), []).append(cell.server)
    seen: dict[tuple[str, str, str, str], list[str]] = {}
    for (scenario, question), where in asked.items():
        known = listed[scenario, question]
        lines = known.answered if isinstance(known.answered, tuple) else [known.answered]
        key = (scenario, ", ".join(where), "\n".join(map(str, lines)), known.reason)
        seen.setdefault(key, []).append(question)
    if not seen:
        return
    table = Table(title="Known differences", box=box.ROUNDED, title_justify="left")
    for heading in ("question", "servers", "answered", "why"):
        table.add_column(heading)
    for (scenario, servers_of_it, answered, reason), questions in seen.items():
        about = f"{scenario}: {'; '.join(questions)}"
        table.add_row(about, servers_of_it, escape(answered), reason)
    console.print(table)


if __name__ == "__main__":
    main()
