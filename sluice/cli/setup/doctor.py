"""`sluice doctor`: checks what tiering needs on this machine, and shows the health of tables."""

from __future__ import annotations

from dataclasses import asdict

import click

from sluice.cli.terminal.options import (
    Settings,
    examples,
    format_option,
    warehouse_option,
    with_settings,
)
from sluice.cli.terminal.output import print_json, print_table

EXIT_WRONG = 1


@click.command(
    short_help="Check cluster, Java, jars, lake, work folder and tables.",
    epilog=examples(
        "sluice doctor --warehouse ./lake",
        "sluice doctor --config sluice.toml --work-uri s3://bucket/sluice",
    ),
)
@warehouse_option
@click.option(
    "--work-uri",
    metavar="URI",
    default="",
    help="Folder that Airflow and Spark share: work_uri of the Airflow connection.",
)
@format_option
@with_settings
@click.pass_context
def doctor(
    ctx: click.Context,
    work_uri: str,
    output_format: str,
    settings: Settings,
) -> None:
    """Check the cluster, versions, Java, jars, the lake, the work folder and the lake's tables.

    In the lake and in the work folder, the command writes, reads and removes a small file. It
    changes nothing else. The lake is opened as a round does: by Iceberg's own client, with its
    login. In the folder of one table, Sluice and that client write, read and remove a file each.

    If all is well, the command shows the health of each tiered table: files, deleted rows, kinds of
    deletes, snapshots and size of the metadata. A table that `needs work` is no failure: `sluice
    maintain` does the work. A table whose last round failed is `Failed`, with the error that
    `sluice status` shows. A table that Fluss has registered, but this lake does not have, is `not
    in this lake`.

    Exit code 1: a check failed, so a round could not write, or the last round of a table failed.
    """
    config = settings.config()
    from sluice.cli.terminal.cluster import require_cluster
    from sluice.driver.doctor import findings

    found = list(findings(config, work_uri, require_cluster))
    if output_format == "json":
        print_json([asdict(finding) for finding in found])
    else:
        words = {True: "ok", False: "WRONG", None: "not checked"}
        rows = [[f.what, f.result or words[f.ok], f.seen] for f in found]
        print_table(["checked", "result", "seen"], rows, empty="")
    ctx.exit(EXIT_WRONG if any(finding.ok is False for finding in found) else 0)
