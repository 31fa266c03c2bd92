"""Which lake format a table gets, and when it may be tiered. Stateless.

See docs/fluss/messages.md#catalog-changes
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from sluice.errors import InvalidAlterTable, InvalidTable, UnsupportedLakeOption
from sluice.iceberg_rules.lake_tables import NAME_OPTIONS, check_lake_table
from sluice.model import Partition, TableInfo
from sluice.rounds.plan.bucket_counts import check_bucket_counts
from sluice.server.coordinator.catalog.options import DATALAKE_ENABLED, DATALAKE_FORMAT

_NO_LAKE = "this server has no lake (datalake.format=none)"


@dataclass(frozen=True, slots=True)
class ServerLake:
    """The lake of a server."""

    format: str | None = "iceberg"
    """The format that new tables are bound to; None: the server has no lake."""
    is_enabled: bool = True
    """Whether tables can be tiered; if not, they are bound to the format only."""

    @property
    def why_not(self) -> str:
        """Why no table can be tiered; empty: they can."""
        if self.format is None:
            return f"{_NO_LAKE}: start it with datalake.format=iceberg"
        if not self.is_enabled:
            return (
                "this server has datalake.enabled=false: tables are bound to"
                f" {self.format}, and tiered once it has datalake.enabled=true"
            )
        return ""


def check_new_table(info: TableInfo, lake: ServerLake) -> None:
    """Checks a table that is to be created.

    :param lake: of the server. Without a format, a table may name the format whose keys and buckets
        it wants.
    :raises InvalidTable: the table has another format, or could never be tiered.
    """
    if lake.format is not None and info.datalake_format != lake.format:
        raise InvalidTable(
            f"table {info.path}: {DATALAKE_FORMAT} = {info.datalake_format!r}, but this server's"
            f" lake has the format {lake.format!r}"
        )
    if info.datalake_enabled and lake.why_not:
        raise InvalidTable(
            f"table {info.path}: {DATALAKE_ENABLED} is true, but {lake.why_not}; or leave it at"
            " false (create-table --no-datalake)"
        )
    named = [one for one in NAME_OPTIONS if one in info.descriptor.properties]
    if named and info.datalake_format == "iceberg":
        raise InvalidTable(
            f"table {info.path}: {named[0]} is not supported for Iceberg, as in Fluss 1.0: the lake"
            " table has the table's own name; remove the option"
        )
    if (why := _not_for_the_lake(info)) is not None:
        raise InvalidTable(f"{why}; or leave {DATALAKE_ENABLED} at false")


def check_change(
    before: TableInfo,
    after: TableInfo,
    changed: Collection[str],
    lake: ServerLake,
    partitions: Iterable[Partition],
) -> None:
    """Checks a table that gets columns, or whose options ``changed`` are to be set or removed.

    :param partitions: those that exist.
    :raises InvalidAlterTable: it was created without a lake format or with another one, or could
        never be tiered.
    """
    if DATALAKE_ENABLED in changed and after.datalake_format is None:
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
    if lake.why_not:
        raise InvalidAlterTable(
            f"table {before.path}: {DATALAKE_ENABLED} cannot be true, because {lake.why_not}"
        )
    if (after.datalake_format or "").lower() != lake.format:
        raise InvalidAlterTable(
            f"table {before.path}: {DATALAKE_ENABLED} cannot be true, because its {DATALAKE_FORMAT}"
            f" is {after.datalake_format!r}, and this server's lake has the format {lake.format!r};"
            " create a new table, and copy the rows"
        )
    if (why := _not_for_the_lake(after, partitions)) is not None:
        raise InvalidAlterTable(why)


def with_format(info: TableInfo, lake: ServerLake) -> TableInfo:
    """Binds a log table without a bucket key to the server's format when it is to be tiered.

    Its rows are in any bucket, whatever the format. It was created by a server without a lake
    (apache/fluss PR 2973).
    """
    is_free = not info.has_primary_key and not info.descriptor.bucket_keys
    if not (info.datalake_enabled and info.datalake_format is None and is_free and lake.format):
        return info
    properties = {**info.descriptor.properties, DATALAKE_FORMAT: lake.format}
    return replace(info, descriptor=replace(info.descriptor, properties=properties))


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
