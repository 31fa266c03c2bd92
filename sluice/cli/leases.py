"""`sluice leases`: who holds KV snapshots and for how long; `sluice leases drop` ends one."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from sluice.cli.options import cluster_options, configuration, format_option
from sluice.cli.output import print_json, print_table, when

if TYPE_CHECKING:
    from sluice.model import LeaseInfo


@click.group(
    invoke_without_command=True,
    short_help="Show or drop leases on KV snapshots.",
    epilog="""
\b
Examples:
  sluice leases
  sluice leases --format json
  sluice leases drop sluice-c6ef648e-97e3-5f2e-95d1-8912a7000d46
""",
)
@format_option
@cluster_options
@click.pass_context
def leases(
    ctx: click.Context, output_format: str, bootstrap: str | None, config_file: str | None
) -> None:
    """Show who holds KV snapshots of tables with a primary key.

    A snapshot that a lease holds is not deleted. A lease ends when its owner drops it, or when it
    was neither acquired again nor renewed for its whole duration. A job of the DAG
    sluice_lake_tiering has one lease for each of its runs.
    """
    if ctx.invoked_subcommand is not None:
        return
    config = configuration(config_file, {"client.bootstrap": bootstrap})
    from sluice.client import connect

    with connect(config.client) as client:
        found = client.leases.all()
    if output_format == "json":
        print_json([_json(lease) for lease in found])
        return
    headings = ["lease", "buckets", "age", "left", "expires", "oldest snapshot"]
    print_table(headings, [_row(lease) for lease in found], empty="no leases")


@leases.command(
    short_help="End a lease.",
    epilog="""
\b
Examples:
  sluice leases drop job-7
  sluice leases drop job-7 --data-dir ./data
""",
)
@click.argument("lease_id", metavar="ID")
@click.option(
    "--data-dir",
    type=click.Path(exists=True, file_okay=False),
    metavar="DIR",
    help="The lease lies in this data directory of a server that is stopped: for one that cannot"
    " be read and keeps the server from starting.",
)
@cluster_options
def drop(
    lease_id: str, data_dir: str | None, bootstrap: str | None, config_file: str | None
) -> None:
    """End the lease ID: what only it holds may be deleted from now on.

    Whoever still reads under it fails with the next renewal, and says so. Exit code 1: there is no
    such lease. A real Fluss does not tell whether there was one.
    """
    there: bool | None
    if data_dir is not None:
        from sluice.server.coordinator.leases_offline import drop_stored_lease

        there = drop_stored_lease(data_dir, lease_id)
    else:
        config = configuration(config_file, {"client.bootstrap": bootstrap})
        from sluice.client import connect
        from sluice.errors import UnsupportedVersion

        with connect(config.client) as client:
            try:
                there = any(lease.lease_id == lease_id for lease in client.leases.all())
            except UnsupportedVersion:
                there = None
            client.leases.drop(lease_id)
    if there is None:
        click.echo(f"lease {lease_id} is dropped, if there was one: this cluster lists none")
        return
    if not there:
        raise click.ClickException(f"there is no lease {lease_id}")
    click.echo(f"lease {lease_id} is dropped")


def _row(lease: LeaseInfo) -> list[object]:
    where = str(lease.oldest_path or f"table {lease.oldest.table_id}")
    if lease.oldest.partition_id is not None:
        where += f", partition {lease.oldest.partition_id}"
    return [
        lease.lease_id,
        lease.buckets,
        _span(lease.now_ms - lease.created_ms),
        _span(lease.expires_ms - lease.now_ms),
        when(lease.expires_ms),
        f"{lease.oldest_snapshot_id} of {where}, bucket {lease.oldest.bucket}",
    ]


def _span(ms: int) -> str:
    """A time span in its two largest units; one that is over is ``0s``."""
    seconds = max(ms, 0) // 1000
    parts = []
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, seconds = divmod(seconds, length)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2]) or "0s"


def _json(lease: LeaseInfo) -> dict[str, Any]:
    content = asdict(lease)
    content["oldest_path"] = str(lease.oldest_path) if lease.oldest_path else None
    content["age_ms"] = lease.now_ms - lease.created_ms
    content["left_ms"] = max(lease.expires_ms - lease.now_ms, 0)
    return content
