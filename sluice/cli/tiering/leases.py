"""`sluice leases`: lists the leases on KV snapshots; `sluice leases drop` ends one."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from sluice.cli.terminal.command_group import CommandGroup
from sluice.cli.terminal.options import Settings, examples, format_option, with_settings
from sluice.cli.terminal.output import print_json, print_table, print_wrapped, say, span
from sluice.quantities import byte_size

if TYPE_CHECKING:
    from sluice.client import Client
    from sluice.client.leases.round_leases import RoundLease
    from sluice.model import LeasedTable, LeaseInfo

_of_work_folder = click.option(
    "--work-uri",
    metavar="URI",
    help="On Apache Fluss: the folder that Airflow and Spark share, with plans of runs.",
)


@click.group(
    cls=CommandGroup,
    invoke_without_command=True,
    short_help="Show or drop leases on KV snapshots.",
    epilog=examples(
        "sluice leases",
        "sluice leases --format json",
        "sluice leases drop sluice-west-c6ef648e-97e3-5f2e-95d1-8912a7000d46",
    ),
)
@format_option
@_of_work_folder
@with_settings
@click.pass_context
def leases(
    ctx: click.Context, output_format: str, work_uri: str | None, settings: Settings
) -> None:
    """Show the leases on KV snapshots of primary-key tables.

    The server keeps a snapshot while a lease holds it. A lease ends when its owner drops it, or
    when it expires without renewal. Each run of the DAG sluice_lake_tiering has a lease, whose id
    begins with sluice- and the id of its Airflow. A round of `sluice tier` on a table with a
    primary key has the lease sluice-tier-INSTALLATION-TABLE, with the id of its installation and
    the id of the table. It expires after ten minutes without renewal. A second process that tiers
    the table adds .2. If another user holds that id, the lease has a random one.

    With a users file, a lease belongs to the user who made it, and the list shows the owner. Only
    the owner and users with the role admin can change it.

    bytes are those of its snapshots. freed are those that only this lease keeps, and that the
    server deletes once it ends.

    An Apache Fluss cluster lists no leases. There, the command shows those that Sluice's rounds in
    progress may hold, with their tables; of `sluice tier` only rounds of this user on this machine.
    With --work-uri it reads from plan files what runs hold: buckets, bytes, and since when.

    --format json also has the times in milliseconds, and for each lease its largest tables. What is
    not known is null.
    """
    if ctx.invoked_subcommand is not None:
        return
    from sluice.errors import UnsupportedVersion

    with settings.connect() as client:
        try:
            found = client.leases.all()
        except UnsupportedVersion:
            _print_unlisted(client, work_uri, as_json=output_format == "json")
            return
    if output_format == "json":
        print_json([_json(lease) for lease in found])
        return
    headings = ["lease", "buckets", "bytes", "freed", "age", "expires in"]
    rows = [_row(lease) for lease in found]
    if any(lease.owner for lease in found):
        headings.insert(1, "owner")
        for row, lease in zip(rows, found, strict=True):
            row.insert(1, lease.owner or "-")
    print_table(headings, rows, empty="no leases")
    for lease in found:
        print_wrapped(f"{lease.lease_id}: {_oldest(lease)}")


@leases.command(
    short_help="Drop a lease, so that its snapshots can be deleted.",
    epilog=examples(
        "sluice leases drop job-7",
        "sluice leases drop job-7 --data-dir ./data",
    ),
)
@click.argument("lease_id", metavar="ID")
@click.option(
    "--data-dir",
    type=click.Path(exists=True, file_okay=False),
    metavar="DIR",
    help="Drop the lease in the data directory of a stopped server, if it keeps the server from"
    " starting.",
)
@_of_work_folder
@with_settings
def drop(lease_id: str, data_dir: str | None, work_uri: str | None, settings: Settings) -> None:
    """Drop the lease ID, so that the server may delete its snapshots.

    A reader that still uses the lease fails at its next renewal. If the server has a users file,
    the lease of another user needs the role admin. Exit code 1: no such lease.

    An Apache Fluss cluster does not report whether the lease existed. With --work-uri, the command
    notes the drop in the folder of the lease's run, so that `sluice leases` and the page stop
    showing it. Without the note, they show it until its rounds end.
    """
    if data_dir is not None:
        from sluice.server.coordinator.leases.offline import drop_stored_lease

        existed = drop_stored_lease(data_dir, lease_id)
    else:
        from sluice.errors import UnsupportedVersion

        with settings.connect() as client:
            try:
                existed = any(lease.lease_id == lease_id for lease in client.leases.all())
            except UnsupportedVersion:
                from sluice.client.leases.round_leases import RoundLeases

                say(RoundLeases(work_uri).drop(client, lease_id))
                return
            client.leases.drop(lease_id)
    if not existed:
        from sluice.errors import LeaseNotExist

        hint = "" if data_dir else "; `sluice leases` lists all leases"
        raise LeaseNotExist(f"lease {lease_id!r} does not exist{hint}")
    say(f"lease {lease_id} is dropped")


def _print_unlisted(client: Client, work_uri: str | None, *, as_json: bool) -> None:
    """Prints what is known of leases on a cluster that does not list them."""
    import time

    from sluice.client.leases.round_leases import RoundLeases, what_is_unknown

    found = RoundLeases(work_uri).known(client)
    if as_json:
        from sluice.model import LeaseInfo

        unknown = dict.fromkeys([*LeaseInfo.__slots__, "age_ms", "left_ms"])
        print_json([unknown | _json_of_round(lease) for lease in found.leases])
    else:
        now_s = time.time()
        rows = [
            [
                lease.lease_id,
                _known(lease.buckets),
                _size(lease.held_bytes),
                "-" if lease.created_ms is None else _span(now_s * 1000 - lease.created_ms),
                ", ".join(str(table.path) for table in lease.tables),
            ]
            for lease in found.leases
        ]
        headings = ["lease", "buckets", "bytes", "age", "tables"]
        print_table(headings, rows, empty="no round in progress can have a lease")
    say(f"note: {what_is_unknown(found, work_uri)}", err=True)


def _row(lease: LeaseInfo) -> list[object]:
    age_ms = lease.now_ms - lease.created_ms
    left_ms = lease.expires_ms - lease.now_ms
    sizes = map(_size, (lease.held_bytes, lease.freed_bytes))
    return [lease.lease_id, lease.buckets, *sizes, _span(age_ms), _span(left_ms)]


def _span(ms: float) -> str:
    return span(round(max(ms, 0)) // 1000)


def _size(size_bytes: int | None) -> str:
    return "-" if size_bytes is None else byte_size(size_bytes)


def _known(number: int | None) -> object:
    return "-" if number is None else number


def _oldest(lease: LeaseInfo) -> str:
    table = str(lease.oldest_path or f"table {lease.oldest.table_id}")
    if lease.oldest.partition_id is not None:
        table += f", partition {lease.oldest.partition_id}"
    return (
        f"its oldest is snapshot {lease.oldest_snapshot_id} of {table}, bucket"
        f" {lease.oldest.bucket}"
    )


def _json(lease: LeaseInfo) -> dict[str, Any]:
    content = asdict(lease)
    content["oldest_path"] = str(lease.oldest_path) if lease.oldest_path else None
    content["age_ms"] = lease.now_ms - lease.created_ms
    content["left_ms"] = max(lease.expires_ms - lease.now_ms, 0)
    content["tables"] = [_table_json(table) for table in lease.tables]
    return content


def _json_of_round(lease: RoundLease) -> dict[str, Any]:
    return {
        "lease_id": lease.lease_id,
        "buckets": lease.buckets,
        "held_bytes": lease.held_bytes,
        "created_ms": lease.created_ms,
        "table_count": len(lease.tables),
        "tables": [_table_json(table) for table in lease.tables],
    }


def _table_json(table: LeasedTable) -> dict[str, Any]:
    return asdict(table) | {"path": str(table.path) if table.path else None}
