"""`sluice maintain`: shows what lake tables need besides their rounds, or does it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from sluice.cli.terminal.options import (
    TABLE_PATH,
    Settings,
    examples,
    format_option,
    warehouse_option,
    with_settings,
)
from sluice.cli.terminal.output import say
from sluice.errors import SluiceError
from sluice.masking import mask
from sluice.model import Reason, TablePath
from sluice.model.patterns import is_pattern
from sluice.stop_signals import explain_stop, signal_name, sigterm_raises

if TYPE_CHECKING:
    from sluice.config import Config
    from sluice.rounds.upkeep.maintenance import MaintenanceReport


_STOPPED = ": what was done stays; call the command again for the rest"
_OFFER = "  --yes does what is possible now"
_LATER = ", and requests a compaction from the table's next round"


@click.command(
    short_help="Show or do what lake tables need.",
    epilog=examples(
        "sluice maintain --warehouse ./lake",
        "sluice maintain shop.stock --warehouse ./lake --yes",
        "sluice maintain --config sluice.toml --yes --format json",
        "sluice maintain --config sluice.toml --yes --work-uri s3://bucket/sluice",
    ),
)
@click.argument("table", type=TABLE_PATH, required=False)
@click.option("--yes", is_flag=True, help="Do it; without it nothing is changed.")
@click.option(
    "--work-uri",
    metavar="URI",
    help="Leave the reports below this work_uri of an Airflow connection, where the page shows"
    " them.",
)
@warehouse_option
@format_option
@with_settings
def maintain(
    table: TablePath | None,
    yes: bool,
    work_uri: str | None,
    output_format: str,
    settings: Settings,
) -> None:
    """Show what lake tables need besides their rounds; --yes does it.

    The command looks at TABLE, or at every table of the cluster. It converts equality deletes to
    positions, so that all engines read the table and scans are fast. It expires old snapshots as
    Iceberg's table properties history.expire.* say, merges small manifests, and deletes files that
    no snapshot references.

    It is safe while rounds run, and holds no claim. It rewrites no rows. If a table needs that, the
    command requests a compaction, which the table's next round makes.

    With --work-uri, `sluice ui` and the page in Airflow show what the command did.

    Needs a cluster, and Java 17 or newer. Exit code 1: a table could not be read, or something did
    not work. 130: Ctrl-C ended the command. 143: SIGTERM ended it. What is done by then stays, and
    the next call does the rest.
    """
    if table is not None and is_pattern(str(table)):
        raise click.UsageError(
            f"TABLE: {str(table)!r} is a pattern; give one name, or none for all"
        )
    config = settings.lake_config()
    from sluice.cli.terminal.cluster import require_cluster
    from sluice.cli.terminal.output import print_json

    reports: list[MaintenanceReport] = []
    is_complete = False
    with sigterm_raises():
        try:
            require_cluster(config.client)
            with _recorded(config, work_uri, table, applied=yes) as record:
                _maintain(config, table, reports, yes, record, is_json=output_format == "json")
            is_complete = True
        except KeyboardInterrupt as stop:
            explain_stop(stop, _STOPPED if yes else "")
            raise
        finally:  # what was done is reported, also if an error ends the run
            if output_format == "json" and (reports or is_complete):
                tables = [report.to_json() for report in reports]
                print_json({"applied": yes, "complete": is_complete, "tables": tables})
    if not reports:
        places = "--warehouse and --bootstrap"
        say(f"note: this lake has no table of the cluster: check {places}", err=True)
    if any(report.error or report.notes for report in reports):
        raise click.exceptions.Exit(1)


@contextmanager
def _recorded(
    config: Config, work_uri: str | None, table: TablePath | None, *, applied: bool
) -> Iterator[Callable[[MaintenanceReport], None]]:
    """Yields what records a report in the work folder, and records there how the block ends.

    What cannot be recorded is a note: the maintenance does not need it.

    :raises click.BadParameter: the folder cannot be written; nothing was done.
    """
    if work_uri is None:
        yield lambda _: None
        return
    from sluice.rounds.records.maintenance import RecordedMaintenance
    from sluice.rounds.upkeep.maintenance import table_report
    from sluice.rounds.values.reasons import reason_of

    secrets = config.secrets()
    tables = ["*" if table is None else str(table)]
    try:
        bootstrap = mask(config.client.bootstrap, secrets)
        record = RecordedMaintenance(work_uri, bootstrap, tables, applied=applied)
    except (OSError, ValueError, ImportError, SluiceError) as error:
        where = mask(work_uri, secrets)
        raise click.BadParameter(
            f"{where!r} cannot be written, so nothing was done: {reason_of(error, secrets)}",
            param_hint="--work-uri",
        ) from error

    def tried(act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # file systems raise errors of many kinds
            say(f"note: the work folder lacks a report: {reason_of(error, secrets)}", err=True)

    try:
        yield lambda report: tried(lambda: record.add(table_report(report, applied=applied)))
    except KeyboardInterrupt as stop:
        why = Reason.from_text(f"{signal_name(stop)} ended the command", kind="Stopped")
        tried(lambda: record.end(why))
        raise
    except Exception as error:
        failed = reason_of(error, secrets)
        tried(lambda: record.end(failed))
        raise
    tried(record.end)


def _maintain(
    config: Config,
    table: TablePath | None,
    reports: list[MaintenanceReport],
    applied: bool,
    record: Callable[[MaintenanceReport], None],
    *,
    is_json: bool,
) -> None:
    """:param reports: receives the report of each table as soon as it is done.
    :param record: receives them, too.
    """
    from sluice.driver.maintaining import maintain_tables

    for report in maintain_tables(config, table, apply=applied):
        reports.append(report)
        record(report)
        if not is_json:
            _print(report, applied=applied)


def _print(report: MaintenanceReport, *, applied: bool) -> None:
    if report.error:
        say(f"{report.table}: cannot be read: {report.error}")
        return
    needs = report.needs()
    say(f"{report.table}: {'; '.join(needs) or 'healthy'}")
    say(f"  {report.before}")
    from sluice.rounds.upkeep.maintenance import done_words, due_words, standing_words

    due = [] if applied else due_words(report)
    for line in done_words(report) if applied else [*due, *standing_words(report)]:
        say(f"  {line}")
    if report.after is not None and report.after != report.before:
        say(f"  now {report.after}")
    if not applied and (report.before.has_work or report.compaction_due or due):
        say(_OFFER + _LATER if report.compaction_due else _OFFER)
    for note in report.notes:
        say(f"  note: {note}")
