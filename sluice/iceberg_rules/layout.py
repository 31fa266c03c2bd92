"""What a lake table looks like: its columns and their roles, its partition fields, its order.

There are two layouts, and a table keeps its own for good. *Legacy* tables, which Fluss made before
1.0, end with three system columns: bucket, offset and timestamp of each row. *Clean* tables have
the columns of the user only. Nothing outside this module knows the names of the system columns.

Without them, a log table that has no bucket key has no partition field for its buckets: their
rows share files. No feature needs the bucket of such a row. Files of a log table are in the order
of their names (``sluice/rounds/values/write_ids.py``), as those of a legacy table are in the
order of their offsets.

See docs/fluss/iceberg.md#layouts
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from sluice.catalog_options import LAYOUT
from sluice.errors import ConfigurationError, LakeTableMismatch
from sluice.iceberg_rules.keys import check_bucket_key, check_partition_keys
from sluice.model import DataType, TableInfo, TablePath, TypeRoot


class Role(Enum):
    """What a system column says of its row."""

    BUCKET = "its bucket"
    OFFSET = "its offset in the log of the bucket"
    TIMESTAMP = "when the server stored it"


@dataclass(frozen=True, slots=True)
class SystemColumn:
    """A column that Fluss adds to each lake table of a layout."""

    name: str
    data_type: DataType
    role: Role


_SYSTEM_COLUMNS = (
    SystemColumn("__bucket", DataType(TypeRoot.INT, nullable=False), Role.BUCKET),
    SystemColumn("__offset", DataType(TypeRoot.BIGINT, nullable=False), Role.OFFSET),
    SystemColumn(
        "__timestamp",
        DataType(TypeRoot.TIMESTAMP_LTZ, nullable=False, precision=6),
        Role.TIMESTAMP,
    ),
)
SYSTEM_NAMES = frozenset(column.name for column in _SYSTEM_COLUMNS)
"""Names that no column of a user may have, whatever the layout of the lake table (Fluss 1.0)."""


class Layout(Enum):
    """The two layouts. The values are those of the option ``datalake.iceberg.layout``."""

    LEGACY = "legacy"
    CLEAN = "clean"

    @property
    def system_columns(self) -> tuple[SystemColumn, ...]:
        """The columns after those of the user, in order."""
        return _SYSTEM_COLUMNS if self is Layout.LEGACY else ()

    def column(self, role: Role) -> str | None:
        """The name of the column with a role; None: this layout has none."""
        found = [one.name for one in self.system_columns if one.role is role]
        return found[0] if found else None


def new_layout(
    info: TableInfo, options: Mapping[str, str], of_cluster: Callable[[], Layout]
) -> Layout:
    """The layout of a lake table that is to be created.

    :param options: of the catalog here, ``datalake.iceberg.*``: its option decides first. Then that
        of the server, which it tells with the table.
    :param of_cluster: asks which layout the cluster's version makes.
    :raises ConfigurationError: there is no such layout.
    """
    of_server = info.descriptor.properties.get(f"table.datalake.iceberg.{LAYOUT}", "")
    named = options.get(LAYOUT) or of_server
    if not named:
        return of_cluster()
    try:
        return Layout(named.lower())
    except ValueError:
        raise ConfigurationError(
            f"datalake.iceberg.{LAYOUT} is {named!r}: use"
            f" {' or '.join(one.value for one in Layout)}"
        ) from None


def layout_of(path: TablePath, names: Collection[str]) -> Layout:
    """The layout of a lake table by the names of its columns, as Fluss tells it.

    :raises LakeTableMismatch: it has some of the system columns only.
    """
    missing = [one.name for one in _SYSTEM_COLUMNS if one.name not in names]
    if not missing:
        return Layout.LEGACY
    if len(missing) == len(_SYSTEM_COLUMNS):
        return Layout.CLEAN
    found = " and ".join(one.name for one in _SYSTEM_COLUMNS if one.name in names)
    raise LakeTableMismatch(
        f"lake table {path} has {found}, but not {' and '.join(missing)}: Fluss's lake tables have"
        " all three system columns or none. Nothing was written. If one was renamed, give it its"
        " old name. One that was dropped has lost its values for good: tier to another lake",
        table=str(path),
    )


def system_roles(names: Collection[str]) -> dict[str, Role]:
    """The roles of the system columns among these columns, by their names."""
    return {one.name: one.role for one in _SYSTEM_COLUMNS if one.name in names}


class PartKind(Enum):
    """What a partition field stands for."""

    KEY = "a partition key of the Fluss table"
    BUCKET = "the bucket"
    OWN = "a field that the user has chosen, of any column"


@dataclass(frozen=True, slots=True)
class PartField:
    """One partition field of a lake table."""

    name: str
    column: str
    transform: str
    kind: PartKind


@dataclass(frozen=True, slots=True)
class PartFields:
    """The partition fields of a lake table, and how they name a bucket's files."""

    fields: tuple[PartField, ...]

    @property
    def has_bucket(self) -> bool:
        """Whether each bucket has files of its own."""
        return bool(self.fields) and self.fields[-1].kind is PartKind.BUCKET

    @property
    def has_own(self) -> bool:
        """Whether a user has chosen some, so that the rows of a bucket are in several."""
        return any(one.kind is PartKind.OWN for one in self.fields)

    @property
    def key_columns(self) -> list[str]:
        """The lake's columns of the partition keys, in order."""
        return [one.column for one in self.fields if one.kind is PartKind.KEY]

    def partition(self, values: Sequence[str], bucket: int) -> tuple[str, ...]:
        """One text for each field: where the rows of a bucket are.

        Where a user has chosen fields, only those of the partition keys: rows have the others.

        :param values: of the partition keys.
        """
        return (*values, str(bucket)) if self.has_bucket else tuple(values)

    def place(self, partition: Iterable[Any]) -> tuple[tuple[Any, ...], int | None]:
        """The values of the partition keys, and the bucket; 0 if buckets share their files.

        :param partition: of a file, as Iceberg's JSON has it. Where it is a file of others, keys
            may be no texts, and the bucket may be None.
        """
        found = tuple(partition)
        if self.has_bucket:
            return found[:-1], found[-1]
        kinds = zip(self.fields, found, strict=True)
        return tuple(value for one, value in kinds if one.kind is PartKind.KEY), 0


def part_fields(info: TableInfo, layout: Layout) -> PartFields:
    """The partition fields of the lake table that Fluss makes for a table.

    :raises UnsupportedLakeOption: as ``check_bucket_key`` and ``check_partition_keys``.
    """
    check_bucket_key(info)
    check_partition_keys(info)
    found = [
        PartField(name, name, "identity", PartKind.KEY) for name in info.descriptor.partition_keys
    ]
    bucket = layout.column(Role.BUCKET)
    if keys := info.descriptor.bucket_keys:
        transform = f"bucket[{info.bucket_count}]"
        found.append(PartField(f"{keys[0]}_bucket", keys[0], transform, PartKind.BUCKET))
    elif bucket is not None:
        found.append(PartField(bucket, bucket, "identity", PartKind.BUCKET))
    return PartFields(tuple(found))


def found_part_fields(schema: Mapping[str, Any], spec: Mapping[str, Any]) -> PartFields:
    """The partition fields that a lake table has, from Iceberg's JSON of its schema and spec."""
    names = {field["id"]: field["name"] for field in schema["fields"]}
    fields = [
        (one["name"], names.get(one["source-id"], "?"), one["transform"]) for one in spec["fields"]
    ]
    return PartFields(
        tuple(
            PartField(
                name, column, transform, _kind(column, transform, is_last=place == len(fields))
            )
            for place, (name, column, transform) in enumerate(fields, start=1)
        )
    )


def _kind(column: str, transform: str, *, is_last: bool) -> PartKind:
    is_bucket = column in SYSTEM_NAMES or transform.startswith("bucket[")
    return PartKind.BUCKET if is_last and is_bucket else PartKind.KEY


def sort_columns(layout: Layout) -> tuple[str, ...]:
    """The columns of the table's sort order, ascending."""
    offset = layout.column(Role.OFFSET)
    return () if offset is None else (offset,)
