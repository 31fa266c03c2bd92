"""Which lake format a table gets, and when it may be tiered. Stateless.

See docs/fluss/messages.md#catalog-changes
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sluice.errors import InvalidAlterTable, InvalidTable, UnsupportedLakeOption
from sluice.iceberg_rules.lake_tables import check_lake_table
from sluice.model import Partition, TableInfo
from sluice.rounds.bucket_counts import check_bucket_counts
from sluice.server.coordinator.options import DATALAKE_ENABLED, DATALAKE_FORMAT

_NO_LAKE = "this server has no lake (datalake.format=none)"


def check_new_table(info: TableInfo, lake_format: str | None) -> None:
    """Checks a table that is to be created.

    :param lake_format: that of the server's lake; None without a lake. Then a table may name the
        format whose keys and buckets it wants.
    :raises InvalidTable: the table has another format, or could never be tiered.
    """
    if lake_format is not None and info.datalake_format != lake_format:
        raise InvalidTable(
            f"table {info.path}: {DATALAKE_FORMAT} = {info.datalake_format!r}, but this server's"
            f" lake has the format {lake_format!r}"
        )
    if info.datalake_enabled and lake_format is None:
        raise InvalidTable(
            f"table {info.path}: {DATALAKE_ENABLED} is true, but {_NO_LAKE}: leave it at false"
            " (create-table --no-datalake), or start the server with datalake.format=iceberg"
        )
    if (why := _not_for_the_lake(info)) is not None:
        raise InvalidTable(f"{why}; or leave {DATALAKE_ENABLED} at false")


def check_change(
    before: TableInfo,
    after: TableInfo,
    changed: Collection[str],
    lake_format: str | None,
    partitions: Iterable[Partition],
) -> None:
    """Checks a table that gets columns, or whose options ``changed`` are to be set or removed.

    :param partitions: those that exist.
    :raises InvalidAlterTable: it was created without a lake format or with another one, or could
        never be tiered.
    """
    if DATALAKE_ENABLED in changed and before.datalake_format is None:
        raise InvalidAlterTable(
            f"table {before.path}: {DATALAKE_ENABLED} cannot be changed, because the table was"
            " created without a lake: its keys and buckets are not those of a lake format; create a"
            " new table with datalake.format=iceberg at the server, and copy the rows"
        )
    has_new_columns = after.schema.names != before.schema.names
    if before.datalake_enabled and has_new_columns and (why := _not_for_the_lake(after)):
        raise InvalidAlterTable(why)
    if before.datalake_enabled or not after.datalake_enabled:
        return
    if lake_format is None:
        raise InvalidAlterTable(
            f"table {before.path}: {DATALAKE_ENABLED} cannot be true, because {_NO_LAKE}: start it"
            " with datalake.format=iceberg"
        )
    if (after.datalake_format or "").lower() != lake_format:
        raise InvalidAlterTable(
            f"table {before.path}: {DATALAKE_ENABLED} cannot be true, because its {DATALAKE_FORMAT}"
            f" is {after.datalake_format!r}, and this server's lake has the format {lake_format!r};"
            " create a new table, and copy the rows"
        )
    if (why := _not_for_the_lake(after, partitions)) is not None:
        raise InvalidAlterTable(why)


def _not_for_the_lake(info: TableInfo, partitions: Iterable[Partition] = ()) -> str | None:
    """Why a lake table could never be tiered; None if it can be, or is not a lake table."""
    if not info.datalake_enabled or info.datalake_format != "iceberg":
        return None
    try:
        check_lake_table(info)
        check_bucket_counts(info, partitions)
    except UnsupportedLakeOption as error:
        return error.message
    return None
