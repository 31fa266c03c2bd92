"""`sluice clean`: shows or deletes orphan files that killed rounds left in the lake."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sluice.catalog_options import of_catalog
from sluice.cli.terminal.options import (
    DURATION,
    TABLE_PATH,
    Settings,
    check_warehouse,
    examples,
    format_option,
    require_lake,
    warehouse_option,
    with_settings,
)
from sluice.cli.terminal.output import say
from sluice.errors import SluiceError
from sluice.model import TablePath

if TYPE_CHECKING:
    from sluice.rounds.records.finished_runs import RunFolder
    from sluice.rounds.upkeep.orphans import CleanReport, OrphanFile


@click.command(
    short_help="Show or delete orphan files of killed rounds.",
    epilog=examples(
        "sluice clean shop.orders --warehouse ./lake",
        "sluice clean shop.orders --warehouse ./lake --yes",
        "sluice clean --config sluice.toml --work-uri s3://bucket/sluice --yes",
        "sluice clean --work-uri file:///srv/sluice/work --runs-older-than 1d --yes",
    ),
)
@click.argument("table", type=TABLE_PATH, required=False)
@click.option("--yes", is_flag=True, help="Delete the files; without it nothing is changed.")
@click.option(
    "--older-than",
    "older_than_ms",
    type=DURATION,
    default="0s",
    metavar="DURATION",
    help="Also keep files younger than this, as in 1h. Age alone never deletes a file.",
)
@click.option(
    "--work-uri",
    metavar="URI",
    help="Also delete folders of ended runs below this work_uri of an Airflow connection.",
)
@click.option(
    "--runs-older-than",
    "keep_ms",
    type=DURATION,
    default="7d",
    show_default=True,
    metavar="DURATION",
    help="Keep ended runs below --work-uri for this long.",
)
@warehouse_option
@format_option
@with_settings
def clean(
    table: TablePath | None,
    yes: bool,
    older_than_ms: int,
    work_uri: str | None,
    keep_ms: int,
    output_format: str,
    settings: Settings,
) -> None:
    """Show the orphan files that killed rounds left in the lake; --yes deletes them.

    The command checks TABLE, or every table of the cluster. It is safe while rounds run: it deletes
    a file only if no snapshot references it, and if its name proves that its round started from an
    older commit than the newest. Such a round can never commit. Every other unreferenced file is
    kept, and printed with the reason.

    With --work-uri, but without TABLE and a lake, the command only checks folders of runs.

    Needs Java 17 or newer.
    Needs a cluster only without TABLE, or with --work-uri. Exit code 1: a table or a
    folder could not be read, or a file could not be deleted.
    """
    check_warehouse(settings.warehouse)
    config = settings.config()
    only_runs = work_uri is not None and table is None and not of_catalog(config.datalake.iceberg)
    if not only_runs:
        require_lake(config)
    from sluice.cli.terminal.cluster import require_cluster
    from sluice.driver.cleaning import clean_runs, clean_tables

    if table is None or work_uri is not None:
        require_cluster(config.client)
    reports = None
    if not only_runs:
        reports = list(clean_tables(config, table, apply=yes, older_than_ms=older_than_ms))
    runs, error = None, ""
    if work_uri is not None:
        try:
            runs = clean_runs(config, work_uri, keep_ms, apply=yes)
        except (OSError, SluiceError) as failed:  # the tables are still reported
            error = f"{work_uri}: {type(failed).__name__}: {failed}"
    print_reports(reports, runs, applied=yes, as_json=output_format == "json", runs_error=error)


def print_reports(
    reports: list[CleanReport] | None,
    runs: list[RunFolder] | None,
    *,
    applied: bool,
    as_json: bool,
    runs_error: str = "",
) -> None:
    """Prints the files found, and which of them were deleted.

    :param reports: None if tables were not checked.
    :param runs_error: why the work folder could not be read.
    :raises click.exceptions.Exit: with code 1 if something could not be deleted.
    """
    if as_json:
        from sluice.cli.terminal.output import print_json

        print_json(
            {
                "applied": applied,
                "tables": [report.to_json() for report in reports or ()],
                "runs": [run.to_json() for run in runs or ()],
                "runs_error": runs_error,
            }
        )
    else:
        for report in reports or ():
            _print_table(report, applied)
        if reports == []:
            say(
                "note: this lake has no table of the cluster: check --warehouse",
                err=True,
            )
        if runs is not None:
            _print_runs(runs, applied)
        if runs_error:
            say(f"the runs cannot be read: {runs_error}")
    failed = any(report.failed or report.error for report in reports or ())
    if failed or runs_error or any(run.error for run in runs or ()):
        raise click.exceptions.Exit(1)


def _print_table(report: CleanReport, applied: bool) -> None:
    from sluice.cli.terminal.output import print_table, when
    from sluice.quantities import byte_size, counted

    say(f"{report.table}: {_summary(report, applied)}")
    groups: dict[str, list[OrphanFile]] = {}
    for left in report.dead:
        groups.setdefault(_fate(report, left, applied), []).append(left)
    for left in report.kept:
        groups.setdefault(f"kept: {left.reason}", []).append(left)
    for fate, found in groups.items():
        say()
        say(f"{fate}:")
        rows = [[left.size_bytes, when(left.modified_ms), left.path] for left in found]
        print_table(["bytes", "written", "file"], rows, empty="")
    if report.foreign_files:
        say(
            f"note: {counted(report.foreign_files, 'unreferenced data file')} of other writers,"
            f" {byte_size(report.foreign_bytes)}: Iceberg's remove_orphan_files deletes them"
        )


def _fate(report: CleanReport, left: OrphanFile, applied: bool) -> str:
    """Whether an orphan file is deleted, and why."""
    if left.path in report.failed:
        return f"not deleted: {report.failed[left.path]}"
    return f"{'deleted' if applied else 'would be deleted'}: {left.reason}"


def _summary(report: CleanReport, applied: bool) -> str:
    if report.error:
        return f"cannot be read: {report.error}"
    if not report.dead:
        return "nothing to delete"
    from sluice.quantities import byte_size, counted

    total = sum(left.size_bytes for left in report.dead)
    what = f"{counted(len(report.dead), 'orphan file')}, {byte_size(total)}"
    if not applied:
        return f"{what}; --yes deletes them"
    left = f", {len(report.failed)} could not be deleted" if report.failed else ""
    return f"{what}: {len(report.removed)} deleted{left}"


def _print_runs(runs: list[RunFolder], applied: bool) -> None:
    from sluice.cli.terminal.output import print_table, when

    done = "deleted" if applied else "would delete"
    rows = [
        [
            "keep" if run.reason else "not deleted" if run.error else done,
            run.uri,
            len(run.files),
            when(run.modified_ms),
            run.reason or run.error,
        ]
        for run in runs
    ]
    print_table(["", "run", "files", "newest", "why"], rows, empty="no runs in the work folder")
