"""`sluice clean`: what dead rounds have left behind, shown or removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from sluice.errors import SluiceError
from sluice.model import TablePath

if TYPE_CHECKING:
    from sluice.rounds.clean import CleanReport, Leftover
    from sluice.rounds.clean_runs import RunFolder


@click.command(
    short_help="Show or remove files that dead rounds have left.",
    epilog="""
\b
Examples:
  sluice clean shop.orders --warehouse ./lake
  sluice clean shop.orders --warehouse ./lake --yes
  sluice clean --config sluice.toml --work-uri s3://bucket/sluice --runs-older-than 7d --yes
  sluice clean --work-uri file:///srv/sluice/work --runs-older-than 7d --yes
""",
)
@click.argument("table", type=TABLE_PATH, required=False)
@click.option("--yes", is_flag=True, help="Remove what is found; without it nothing is changed.")
@click.option(
    "--older-than",
    "older_than_ms",
    type=DURATION,
    default="0s",
    metavar="DURATION",
    help="Leave younger files alone, too, as in 1h. Age alone never makes a file go.",
)
@click.option(
    "--work-uri",
    metavar="URI",
    help="Also remove folders of ended runs below this one (the connection's work_uri in Airflow).",
)
@click.option(
    "--runs-older-than",
    "keep_ms",
    type=DURATION,
    default="7d",
    show_default=True,
    metavar="DURATION",
    help="How long ended runs below --work-uri are kept.",
)
@warehouse_option
@format_option
@cluster_options
def clean(
    table: TablePath | None,
    yes: bool,
    older_than_ms: int,
    work_uri: str | None,
    keep_ms: int,
    warehouse: str | None,
    output_format: str,
    bootstrap: str | None,
    config_file: str | None,
) -> None:
    """Show what killed rounds have left behind TABLE, or behind every table; --yes removes it.

    Safe while rounds run. A file goes only if its name proves that its round was planned from an
    older commit than the newest, so that it can never be committed, and if no snapshot references
    it. Every other unreferenced file stays, with the reason. Needs Java 17, and the cluster only
    without TABLE or with --work-uri. With --work-uri and neither TABLE nor a lake, only folders of
    runs are looked at. Exit code 1: something could not be removed.
    """
    overrides = {"client.bootstrap": bootstrap, **lake_overrides(warehouse)}
    config = configuration(config_file, overrides)
    only_runs = work_uri is not None and table is None and not config.datalake.iceberg
    if not config.datalake.iceberg and not only_runs:
        raise click.UsageError("give --warehouse PATH, or the lake's catalog in --config FILE")
    from sluice.driver.cleaning import clean_runs, clean_tables

    reports = None
    if not only_runs:
        reports = list(clean_tables(config, table, apply=yes, older_than_ms=older_than_ms))
    runs, error = None, ""
    if work_uri is not None:
        try:
            runs = clean_runs(config, work_uri, keep_ms, apply=yes)
        except (OSError, SluiceError) as failed:  # what was done to the tables is told all the same
            error = f"{work_uri}: {type(failed).__name__}: {failed}"
    tell(reports, runs, applied=yes, as_json=output_format == "json", runs_error=error)


def tell(
    reports: list[CleanReport] | None,
    runs: list[RunFolder] | None,
    *,
    applied: bool,
    as_json: bool,
    runs_error: str = "",
) -> None:
    """Prints what was found and done.

    :param reports: None if tables were not looked at.
    :param runs_error: why the work folder could not be looked at.
    :raises click.exceptions.Exit: with code 1 if something could not be removed.
    """
    if as_json:
        from sluice.cli.output import print_json

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
            click.echo(
                "note: no table of the cluster is in this lake yet: check --warehouse",
                err=True,
            )
        if runs is not None:
            _print_runs(runs, applied)
        if runs_error:
            click.echo(f"runs could not be looked at: {runs_error}")
    failed = any(report.failed or report.error for report in reports or ())
    if failed or runs_error or any(run.error for run in runs or ()):
        raise click.exceptions.Exit(1)


def _print_table(report: CleanReport, applied: bool) -> None:
    from sluice.cli.output import print_table, when

    click.echo(f"{report.table}: {_summary(report, applied)}")
    groups: dict[str, list[Leftover]] = {}
    for left in report.dead:
        groups.setdefault(_fate(report, left, applied), []).append(left)
    for left in report.kept:
        groups.setdefault(f"kept: {left.reason}", []).append(left)
    for fate, found in groups.items():
        click.echo(f"\n{fate}:")
        rows = [[left.size_bytes, when(left.modified_ms), left.path] for left in found]
        print_table(["bytes", "written", "file"], rows, empty="")
    if report.foreign_files:
        click.echo(
            f"note: {report.foreign_files} unreferenced data files ({report.foreign_bytes} bytes)"
            " have names of other writers: only Iceberg's remove_orphan_files takes them"
        )


def _fate(report: CleanReport, left: Leftover, applied: bool) -> str:
    """What becomes of a dead round's file, and why."""
    if left.path in report.failed:
        return f"not removed: {report.failed[left.path]}"
    return f"{'removed' if applied else 'would be removed'}: {left.reason}"


def _summary(report: CleanReport, applied: bool) -> str:
    if report.error:
        return f"could not be looked at: {report.error}"
    if not report.dead:
        return "nothing to remove"
    from sluice.cli.output import counted

    total = sum(left.size_bytes for left in report.dead)
    what = f"{counted(len(report.dead), 'file')} of dead rounds, {total} bytes"
    if not applied:
        return f"{what}; --yes removes them"
    left = f", {len(report.failed)} could not be removed" if report.failed else ""
    return f"{what}: {len(report.removed)} removed{left}"


def _print_runs(runs: list[RunFolder], applied: bool) -> None:
    from sluice.cli.output import print_table, when

    done = "removed" if applied else "would remove"
    rows = [
        [
            "keep" if run.reason else "not removed" if run.error else done,
            run.uri,
            len(run.files),
            when(run.modified_ms),
            run.reason or run.error,
        ]
        for run in runs
    ]
    print_table(["", "run", "files", "newest", "why"], rows, empty="no runs in the work folder")
