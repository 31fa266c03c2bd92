"""`sluice skip-damaged`: lets a key-value store go on without a damaged range of its log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sluice.cli.terminal.options import TABLE_PATH, Settings, examples, with_settings
from sluice.cli.terminal.output import print_wrapped, say
from sluice.cli.tiering.repair import BATCH
from sluice.model import TablePath

if TYPE_CHECKING:
    from sluice.client.admin.damage import Damage
    from sluice.driver.last_failure import BatchName


@click.command(
    "skip-damaged",
    short_help="Let a bucket go on without damaged changes.",
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
    """Give up the changes of a damaged range that a primary-key TABLE needs.

    An embedded server whose key-value store was lost replays the log of the bucket. If a range of
    the log is damaged, the bucket refuses reads and writes. `sluice doctor` and `sluice status`
    name such a range. Restore the log from a backup if there is one. Otherwise this command lets
    the bucket go on. Rows that were changed in this range may then be old, or missing, or still
    there although they were deleted: put or delete them again. The lake keeps what was tiered
    before, and no status names the difference.

    Exit code 1: no such range is needed, and nothing was changed.
    """
    from sluice.errors import LogOffsetOutOfRange

    bucket, offset = place
    with settings.connect() as client:
        found = _refusing(client.damage.list(table))
        named = [one for one in found if (one.bucket.name, one.start) == place]
        if not named:
            others = "".join(f". {one.refused}" for one in found)
            raise LogOffsetOutOfRange(
                f"table {table}, bucket {bucket}: no key-value store refuses calls because of a"
                f" damaged range that begins at offset {offset}{others}"
            )
        (damage,) = named
        if not yes:
            print_wrapped(damage.refused)
            say("nothing was changed; --yes gives these changes up")
            return
        client.damage.skip(damage)
        print_wrapped(
            f"{table}: bucket {bucket} goes on without the offsets {damage.start} to"
            f" {(damage.stop or 0) - 1} of its log. Its rows may lack changes of these offsets. The"
            " lake keeps those that it has: append these rows again, so that both are the same"
        )
        for one in _refusing(client.damage.list(table)):
            print_wrapped(one.refused)


def _refusing(found: list[Damage]) -> list[Damage]:
    return [one for one in found if one.refused]
