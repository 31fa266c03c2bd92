"""`sluice repair`: what is wrong between a table and its lake, shown or put right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from sluice.cli.options import (
    DURATION,
    TABLE_PATH,
    cluster_options,
    configuration,
    format_option,
    lake_overrides,
    warehouse_option,
)
from sluice.cli.tier import EXIT_GIVEN_UP
from sluice.model import TablePath

if TYPE_CHECKING:
    from sluice.driver.repairing import Repaired
    from sluice.rounds.repair import Diagnosis


@click.command(
    short_help="Show what keeps a table from being tiered, or put it right.",
    epilog="""
\b
Examples:
  sluice repair shop.orders --warehouse ./lake
  sluice repair shop.orders --warehouse ./lake --yes
  sluice repair shop.orders --config sluice.toml --by retier --yes
""",
)
@click.argument("table", type=TABLE_PATH)
@click.option("--yes", is_flag=True, help="Do it; without it nothing is changed.")
@click.option(
    "--by",
    type=click.Choice(["register", "restore", "adopt", "retier", "tag"]),
    help="The way to take, of those shown; needed where none is without loss.",
)
@click.option(
    "--wait",
    "wait_ms",
    type=DURATION,
    default="2 min",
    show_default=True,
    metavar="DURATION",
    help="How long to wait for a round under way, where the way is a round.",
)
@warehouse_option
@format_option
@cluster_options
@click.pass_context
def repair(
    ctx: click.Context,
    table: TablePath,
    yes: bool,
    by: str | None,
    wait_ms: int,
    warehouse: str | None,
    output_format: str,
    bootstrap: str | None,
    config_file: str | None,
) -> None:
    """Show what keeps TABLE from being tiered, and the ways out; --yes takes one.

    For a lake that was rolled back, whose snapshot has expired, or whose table is gone. --yes takes
    the first way if it loses nothing; one with a risk has to be named with --by. Safe while rounds
    run, unless a risk says otherwise: main is only moved if it is where it was seen, and every
    other way is itself a round. Needs Java 17. Exit code 1: nothing could be done. 3: that round
    lost its claim before its commit; look again.
    """
    overrides = {"client.bootstrap": bootstrap, **lake_overrides(warehouse)}
    config = configuration(config_file, overrides)
    if not config.datalake.iceberg:
        raise click.UsageError("give --warehouse PATH, or the lake's catalog in --config FILE")
    from sluice.cli.progress import RoundBar
    from sluice.driver import repairing

    if not yes:
        found = repairing.examine(config, table)
        if output_format == "json":
            _print_json(found, None)
        else:
            _print_found(found, by)
        return
    with RoundBar(str(table)) as bar:
        done = repairing.repair(config, table, by, wait_ms=wait_ms, progress=bar)
    if output_format == "json":
        _print_json(done.found, done)
    else:
        _print_done(done)
    ctx.exit(EXIT_GIVEN_UP if _given_up(done) else 0)


def _given_up(done: Repaired) -> bool:
    return done.result is not None and done.result.is_given_up


def _print_json(found: Diagnosis, done: Repaired | None) -> None:
    from sluice.cli.output import print_json

    content: dict[str, Any] = {**found.to_json(), "done": None}
    if done is not None and done.way is not None:
        result = done.result.to_json() if done.result else None
        content["done"] = {"way": done.way.name, "notes": list(done.notes), "result": result}
    print_json(content)


def _print_found(found: Diagnosis, by: str | None) -> None:
    from sluice.cli.output import print_table

    click.echo(f"{found.table}: {'nothing to repair: ' if found.healthy else ''}{found.state}")
    print_table(["what", "value"], list(found.facts.items()), empty="")
    if found.ways:
        rows = [[way.name, way.does, "\n".join(way.risks) or "nothing"] for way in found.ways]
        print_table(["way", "what it does", "what is lost or not known"], rows, empty="")
    for line in found.advice:
        click.echo(f"note: {line}")
    if found.healthy:
        return
    best = found.recommended.name if found.recommended else None
    names = [way.name for way in found.ways]
    if by is not None and by not in names:
        click.echo(f"nothing was changed; --by {by} is not open here")
    elif by is not None or best is not None:
        named = f"--by {by} " if by else ""
        click.echo(f"nothing was changed; {named}--yes does: {by or best}")
    elif names:
        click.echo(f"nothing was changed; name the way: --by {'|'.join(names)} --yes")
    else:
        click.echo("nothing was changed, and this command can do nothing about it")


def _print_done(done: Repaired) -> None:
    if done.way is None:
        click.echo(f"{done.found.table}: nothing to repair: {done.found.state}")
        return
    made = "given up, as the claim was lost; look again" if _given_up(done) else "done"
    click.echo(f"{done.found.table}: {made}: {done.way.does}")
    if done.result is not None:
        from sluice.cli.output import counted

        result = done.result
        click.echo(
            f"the round: {result.outcome}, {counted(result.rows, 'row')}, lake snapshot"
            f" {result.lake_snapshot_id or 'none'}"
        )
    for note in done.notes:
        click.echo(f"note: {note}")
