"""`sluice doctor`: is everything there that tiering needs?"""

from __future__ import annotations

from dataclasses import asdict

import click

from sluice.cli.options import (
    cluster_options,
    configuration,
    format_option,
    lake_overrides,
    warehouse_option,
)
from sluice.cli.output import print_json, print_table

EXIT_ILL = 1


@click.command(
    short_help="Look for what keeps tables from being tiered.",
    epilog="""
\b
Examples:
  sluice doctor --warehouse ./lake
  sluice doctor --config sluice.toml --work-uri s3://bucket/sluice
""",
)
@warehouse_option
@click.option(
    "--work-uri",
    metavar="URI",
    default="",
    help="Folder that Airflow and Spark share, as the Airflow connection names it.",
)
@format_option
@cluster_options
@click.pass_context
def doctor(
    ctx: click.Context,
    warehouse: str | None,
    work_uri: str,
    output_format: str,
    bootstrap: str | None,
    config_file: str | None,
) -> None:
    """Reach the cluster, compare versions, and try the rights on the lake and the work folder.

    A small file is written, read and removed in each folder; nothing else is changed. Exit code 1:
    something is wrong.
    """
    overrides = {"client.bootstrap": bootstrap, **lake_overrides(warehouse)}
    config = configuration(config_file, overrides)
    from sluice.driver.doctor import findings

    found = list(findings(config, work_uri))
    if output_format == "json":
        print_json([asdict(finding) for finding in found])
    else:
        words = {True: "ok", False: "WRONG", None: "not checked"}
        rows = [[f.what, words[f.ok], f.seen] for f in found]
        print_table(["checked", "result", "seen"], rows, empty="")
    ctx.exit(EXIT_ILL if any(finding.ok is False for finding in found) else 0)
