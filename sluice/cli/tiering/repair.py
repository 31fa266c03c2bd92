"""`sluice repair`: shows what keeps a table from being tiered, or repairs it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from sluice.cli.terminal.options import (
    DURATION,
    TABLE_PATH,
    Settings,
    TextType,
    examples,
    format_option,
    warehouse_option,
    with_settings,
)
from sluice.cli.terminal.output import say
from sluice.cli.tiering.tier import EXIT_GIVEN_UP
from sluice.errors import InvalidConfig
from sluice.model import TablePath
from sluice.stop_signals import explain_stop, sigterm_raises

_DONE = {
    "register": "registered the newest lake snapshot with Fluss",
    "restore": "set main to the registered snapshot again",
    "adopt": "marked main as holding what Fluss has registered",
    "retier": "copied the missing offsets from the logs again",
    "tag": "set the tag sluice-tiered to the newest tiering snapshot",
    "accept-gap": "moved on to where the logs begin",
    "rebuild": "read the damaged buckets again and replaced their files in the lake",
    "skip": "copied the bucket up to the batch and left the batch out",
}
_DUE = "The table is due at once, and the next round copies the other rows"
_BUCKET = re.compile(r"(\d+/)?\d+")

if TYPE_CHECKING:
    from sluice.driver.last_failure import BatchName
    from sluice.driver.repairing import RepairResult
    from sluice.rounds.repair.diagnosis import Diagnosis


def _batch(text: str) -> BatchName:
    bucket, colon, offset = text.rpartition(":")
    if not colon or not offset.isdecimal() or not _BUCKET.fullmatch(bucket):
        raise InvalidConfig(
            f"{text!r} is not a batch; write BUCKET:OFFSET, in a partitioned table"
            " PARTITION_ID/BUCKET:OFFSET"
        )
    return bucket, int(offset)


BATCH = TextType("BUCKET:OFFSET", _batch)


@click.command(
    short_help="Show or repair a lake table that cannot be tiered.",
    epilog=examples(
        "sluice repair shop.orders --warehouse ./lake",
        "sluice repair shop.orders --warehouse ./lake --yes",
        "sluice repair shop.orders --config sluice.toml --by retier --yes",
        "sluice repair shop.orders --warehouse ./lake --skip 0:1200",
    ),
)
@click.argument("table", type=TABLE_PATH)
@click.option("--yes", is_flag=True, help="Repair the table; without it nothing is changed.")
@click.option(
    "--by",
    type=click.Choice(list(_DONE)),
    help="The repair to run, one of those printed; required if each of them has a risk.",
)
@click.option(
    "--skip",
    type=BATCH,
    help="A batch that cannot be read, as the error of the round names it. --by chooses between"
    " skip and rebuild; a log table needs no --by. With --by retier, that repair leaves it out.",
)
@click.option(
    "--wait",
    "wait_ms",
    type=DURATION,
    default="3 min",
    show_default=True,
    metavar="DURATION",
    help="If the repair is a round: wait this long for a round under way to end. The claim of a"
    " killed round ends after 2 min.",
)
@warehouse_option
@format_option
@with_settings
@click.pass_context
def repair(
    ctx: click.Context,
    table: TablePath,
    yes: bool,
    by: str | None,
    skip: BatchName | None,
    wait_ms: int,
    output_format: str,
    settings: Settings,
) -> None:
    """Show what keeps TABLE from being tiered and the possible repairs; --yes runs one.

    Use it for a lake table that was rolled back or dropped, or whose registered snapshot has
    expired, and for a log that has lost its beginning or has a batch that cannot be read. --yes
    runs the first repair if it loses nothing. A repair with a risk must be named with --by.

    Repairs are safe while rounds run, unless a risk says otherwise. The branch main of the lake
    table is moved only if no other commit moved it since; every other repair is itself a round.

    Needs Java 17 or newer.
    Ctrl-C and SIGTERM end the command and change nothing. If the commit has begun, the command
    completes it and prints its result before it ends.

    Exit code 1: nothing could be repaired. 2: an option is wrong, or does not fit the state of
    the table. 3: the round of the repair lost its claim before the commit; run the command again,
    unless the table was dropped. 130: Ctrl-C ended the command. 143: SIGTERM ended it.
    """
    if by == "skip" and skip is None:
        raise click.UsageError("--by skip needs --skip BUCKET:OFFSET")
    config = settings.lake_config()
    from sluice.cli.terminal.cluster import require_cluster
    from sluice.cli.terminal.progress import RoundBar
    from sluice.driver import repairing

    require_cluster(config.client)
    if not yes:
        found = repairing.diagnose_table(config, table, skip=skip)
        if output_format == "json":
            _print_json(found, None)
        else:
            _print_found(found, by, skip)
        return
    results: list[RepairResult] = []
    try:
        with RoundBar(str(table)) as bar, sigterm_raises():
            try:
                repairing.repair(
                    config,
                    table,
                    by,
                    skip=skip,
                    wait_ms=wait_ms,
                    progress=bar,
                    on_result=results.append,
                )
            except KeyboardInterrupt as stop:
                explain_stop(stop, " after the repair" if results else ": nothing was changed")
                raise
    finally:  # if a signal arrived during the commit, the repair has a result
        for done in results:
            if output_format == "json":
                _print_json(done.diagnosis, done)
            else:
                _print_done(done)
    ctx.exit(EXIT_GIVEN_UP if _given_up(done) else 0)


def _given_up(done: RepairResult) -> bool:
    return done.result is not None and done.result.is_given_up


def _print_json(found: Diagnosis, done: RepairResult | None) -> None:
    from sluice.cli.terminal.output import print_json

    content: dict[str, Any] = {**found.to_json(), "done": None}
    if done is not None and done.action is not None:
        result = done.result.to_json() if done.result else None
        content["done"] = {
            "repair": done.action.name,
            "accepted_risks": list(done.action.risks),
            "notes": list(done.notes),
            "result": result,
        }
    print_json(content)


def _print_found(found: Diagnosis, by: str | None, skip: BatchName | None = None) -> None:
    from sluice.cli.terminal.output import print_table

    if found.healthy:
        _print_healthy(found)
        print_table(["what", "value"], list(found.facts.items()), empty="")
        return
    say(f"{found.table}: {found.state}")
    print_table(["what", "value"], list(found.facts.items()), empty="")
    if found.actions:
        rows = [[one.name, one.effect, "; ".join(one.risks) or "none"] for one in found.actions]
        print_table(["repair", "what it does", "risk"], rows, empty="")
    for line in found.advice:
        say(f"note: {line}")
    say(f"nothing was changed; {_next_step(found, by, skip)}")


def _print_healthy(found: Diagnosis) -> None:
    if found.last_failure:
        say(f"{found.table}: the lake needs no repair, but {found.last_failure}")
        say(f"note: {found.state}")
    else:
        say(f"{found.table}: nothing to repair: {found.state}")
    for line in found.advice:
        say(f"note: {line}")


def _next_step(found: Diagnosis, by: str | None, skip: BatchName | None) -> str:
    """What the user can run now."""
    from sluice.rounds.commit.failures import WITH_LAKE

    names = [one.name for one in found.actions]
    run = f"run {found.commands()} {WITH_LAKE}"
    if not names and by is not None:
        return f"--by {by} is not available for this table"
    if not names:
        yet = "no repair is possible yet; the note says what to do"
        return yet if found.batch else "this command has no repair for it"
    if found.batch and skip is None:
        return run
    if skip is not None and not found.batch:
        return f"first {run}. If a later round fails at the batch, repeat this command"
    if by is not None and by not in names:
        return f"--by {by} is not available for this table; {run}"
    if by is not None:
        return f"--by {by} --yes runs the repair {by}"
    if found.batch:
        return run
    if found.recommended is not None:
        return f"--yes runs the repair {found.recommended.name}"
    return f"name a repair: --by {'|'.join(names)} --yes"


def _print_done(done: RepairResult) -> None:
    if done.action is None:
        _print_healthy(done.diagnosis)
        return
    result = done.result
    say(f"{done.diagnosis.table}: {_outcome(done)}")
    if result is not None and not result.is_given_up:
        from sluice.cli.tiering.tier import ended
        from sluice.quantities import counted

        parts = [ended(result), counted(result.rows, "row")]
        if result.lake_snapshot_id is not None:
            parts.append(f"lake snapshot id {result.lake_snapshot_id}")
        say(f"the round: {', '.join(parts)}")
    if not (_given_up(done) or done.repaired_nothing):
        for risk in done.action.risks:
            say(f"accepted risk: {risk}")
    for note in done.notes:
        if result is None or note not in result.accepted:
            say(f"note: {note}")


def _outcome(done: RepairResult) -> str:
    """What the repair did, what is missing in the lake because of it, and the next step."""
    result = done.result
    assert done.action is not None
    if result is None:
        return f"done: {_DONE[done.action.name]}"
    if result.is_given_up:
        from sluice.cli.tiering.tier import ended

        if result.table_dropped:
            return f"not repaired: {ended(result)}"
        return (
            "not repaired: nothing was committed, because the claim was lost. Run the command again"
        )
    if done.repaired_nothing:
        sentences = [f"nothing was left to repair by {done.action.name}"]
    else:
        sentences = [f"done: {_DONE[done.action.name]}"]
        if result.accepted:
            sentences.append(f"Missing in the lake, as accepted: {result.accepted}")
    if result.forced:
        sentences.append(_DUE)
    return ". ".join(sentences)
