"""`sluice skip-damaged`: lets a bucket go on without a damaged range of its log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sluice.cli.terminal.options import TABLE_PATH, Settings, examples, with_settings
from sluice.cli.terminal.output import print_wrapped, say
from sluice.cli.tiering.repair import BATCH
from sluice.model import TablePath

if TYPE_CHECKING:
    from sluice.driver.last_failure import BatchName


@click.command(
    "skip-damaged",
    short_help="Let a bucket go on without damaged offsets.",
    epilog=examples(
        "sluice skip-damaged shop.stock 0:1200",
        "sluice skip-damaged shop.stock 0:1200 --yes",
    ),
)
@click.argument("table", type=TABLE_PATH)
@click.argument("place", type=BATCH, metavar="BUCKET:OFFSET")
@click.option("--yes", is_flag=True, help="Do it; without it, nothing is changed.")
@with_settings
def skip_damaged(table: TablePath, place: BatchName, yes: bool, settings: Settings) -> None:
    """Give up a damaged range of the log of TABLE.

    If a log of an embedded server is damaged on its disk, the bucket refuses reads and writes.
    `sluice doctor` and `sluice status` name the file and the range. Restore the file from a backup
    if there is one. Otherwise this command lets the bucket go on behind the range. Its offsets are
    lost for ever, and rounds name them until `sluice repair --skip` leaves them out. In a
    primary-key table, rows that were changed in this range may then be old, or missing, or still
    there although they were deleted: put or delete them again.

    Exit code 1: no damaged range begins there, or nobody knows its end. Nothing was changed.
    """
    from sluice.errors import LogOffsetOutOfRange

    bucket, offset = place
    with settings.connect() as client:
        found = client.damage.list(table)
        named = [one for one in found if (one.bucket.name, one.start) == place]
        if not named:
            others = "".join(f". {one.refused}" for one in found)
            raise LogOffsetOutOfRange(
                f"table {table}, bucket {bucket}: no damaged range begins at offset"
                f" {offset}{others}"
            )
        if not yes:
            print_wrapped(named[0].refused)
            say("nothing was changed; --yes gives these offsets up")
            return
        client.damage.skip(named[0])
        print_wrapped(
            f"{table}: bucket {bucket} goes on without the offsets {offset} to"
            f" {(named[0].stop or 0) - 1} of its log. If a round fails at them, run `sluice repair"
            f" {table} --skip {bucket}:{offset}`"
        )
        for one in client.damage.list(table):
            print_wrapped(one.refused)
