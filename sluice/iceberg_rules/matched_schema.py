"""Which column of the lake is which one of Fluss, and what others have changed in the lake.

Three schemas are compared: Fluss's now, what the last round wrote, and the lake's now. Columns that
a round has written are known by the lake's field id, so that their names, order and width may
change there. A column that is gone is never added again by a round: nobody could tell its earlier
values from nulls.

Each error has the statement that mends it, in Spark SQL. None says to drop or rename a table that
may hold tiered rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, takewhile
from typing import Any

from sluice.errors import LakeTableMismatch
from sluice.iceberg_rules.keys import check_primary_key
from sluice.iceberg_rules.layout import SYSTEM_NAMES, Layout, PartFields, layout_of, part_fields
from sluice.iceberg_rules.mends import add_column, changes_of, drop_not_null, rename_column
from sluice.iceberg_rules.own_parts import found_own_fields, why_not_own
from sluice.iceberg_rules.types import (
    Fit,
    JsonType,
    column_type_json,
    field_text,
    fit,
    iceberg_field,
    quoted,
    type_text,
    written_type,
)
from sluice.iceberg_rules.written_schema import WrittenSchema
from sluice.model import Column, TableInfo

LakeSchema = Mapping[str, Any]
"""Iceberg's JSON of a schema."""


@dataclass(frozen=True, slots=True)
class LakeSide:
    """What is known of a lake table when it is compared."""

    schema: LakeSchema
    """The newest one."""
    written: WrittenSchema | None = None
    """What the newest tiering snapshot says; None: nothing."""
    is_of_fluss: bool = False
    """Whether a tiering snapshot or a table property shows that it was made for a Fluss table."""
    earlier: Callable[[], Sequence[LakeSchema]] = lambda: ()
    """Reads the table's earlier schemas."""
    has_rows: bool = False
    """Whether its current snapshot has some."""


@dataclass(frozen=True, slots=True)
class WrittenColumn:
    """A column that writers write."""

    source: str
    """The name of the Fluss table's column."""
    field: Mapping[str, Any]
    """Of the lake, without nested fields that only the lake has."""


@dataclass(frozen=True, slots=True)
class MatchedSchema:
    """The columns of a lake table, as writers use them."""

    layout: Layout
    columns: tuple[WrittenColumn, ...]
    """In Fluss's order."""
    added: tuple[Column, ...]
    """Columns that Fluss has added, and the lake lacks."""
    notes: tuple[str, ...]
    """What others have changed in the lake since the last round, for users."""
    written: WrittenSchema
    """What the round writes down of it; not complete if columns are to be added."""

    @property
    def names(self) -> dict[str, str]:
        """The lake's name of each column, by its name in Fluss."""
        return {one.source: str(one.field["name"]) for one in self.columns}


def columns_of(schema: LakeSchema) -> tuple[WrittenColumn, ...]:
    """All columns of the user, for a table that Fluss has under the same names."""
    return tuple(
        WrittenColumn(one["name"], one)
        for one in schema["fields"]
        if one["name"] not in SYSTEM_NAMES
    )


def match(info: TableInfo, lake: LakeSide) -> MatchedSchema:
    """Compares the lake table with the Fluss table.

    :raises LakeTableMismatch: names the first column that differs, and the statement that mends it.
    :raises UnsupportedLakeOption: as ``check_primary_key``.
    """
    check_primary_key(info)
    if lake.has_rows and not lake.is_of_fluss:
        raise mismatch(info, "rows that no tiering of Fluss wrote", "", is_of_fluss=False)
    return _Comparison(info, lake).run()


class _Comparison:
    """One comparison while it runs."""

    def __init__(self, info: TableInfo, lake: LakeSide) -> None:
        self._info, self._lake = info, lake
        fields = lake.schema["fields"]
        self._layout = layout_of(info.path, [one["name"] for one in fields])
        system = {one.name: one for one in self._layout.system_columns}
        self._system = {one["name"]: one for one in fields if one["name"] in system}
        self._free = {one["id"]: one for one in fields if one["name"] not in system}
        """Columns that are not matched yet, by their id."""
        self._ids = dict(lake.written.field_ids) if lake.written is not None else {}
        self._found: dict[str, WrittenColumn] = {}
        self._added: list[Column] = []
        self._notes: list[str] = []

    def run(self) -> MatchedSchema:
        columns = self._info.schema.columns
        for column in columns:  # by id first: a new column may have the old name of another one
            field = self._free.get(self._ids.get(column.column_id, -1))
            if field is not None:
                self._take(column, field)
        names = {one["name"] for one in self._free.values()}
        for column in columns:
            if column.name not in self._found and column.name not in names:
                self._by_earlier_name(column)
        for column in columns:
            if column.name not in self._found:
                self._by_name(column)
        self._check_others()
        self._check_system()
        self._check_identifiers()
        ordered = [self._found[one.name] for one in columns if one.name in self._found]
        ids = {
            one.column_id: int(self._found[one.name].field["id"])
            for one in columns
            if one.name in self._found
        }
        lake_id = int(self._lake.schema.get("schema-id", 0))
        written = WrittenSchema(self._info.schema_id, lake_id, ids)
        is_known = self._lake.written is not None and self._lake.written.lake_schema_id == lake_id
        notes = () if is_known else tuple(self._notes)
        return MatchedSchema(self._layout, tuple(ordered), tuple(self._added), notes, written)

    def _by_name(self, column: Column) -> None:
        field = next((one for one in self._free.values() if one["name"] == column.name), None)
        if field is not None:
            if column.column_id in self._ids:
                self._notes.append(
                    f"column {column.name} was dropped in the lake and added again: its earlier"
                    " values are null there"
                )
            self._take(column, field)
        elif (other := self._named(column.name)) is not None:
            raise self._mismatch(
                f"a column {column.name} which is Fluss's column {other}, renamed; Fluss has a"
                f" column {column.name}, too",
                _in_sql(self._alter(rename_column((column.name,), other))),
            )
        elif column.column_id in self._ids:
            raise self._dropped(column)
        elif not column.data_type.nullable:
            add = add_column((column.name,), column_type_json(column))
            raise self._mismatch(
                f"no column {column.name}, which is NOT NULL in Fluss",
                f"To go on with nulls in the earlier rows, in Spark SQL: {self._alter(add)}",
            )
        else:
            self._added.append(column)

    def _named(self, name: str) -> str | None:
        """Fluss's column that is the lake's column of this name."""
        found = self._found.items()
        return next((source for source, one in found if one.field["name"] == name), None)

    def _by_earlier_name(self, column: Column) -> None:
        """Finds a column by the name that it once had, if no snapshot of Sluice tells ids."""
        if self._lake.written is not None:
            return
        for schema in reversed(self._lake.earlier()):
            ids = [one["id"] for one in schema["fields"] if one["name"] == column.name]
            if ids and ids[0] in self._free:
                self._take(column, self._free[ids[0]])
                return
            if ids:
                raise self._dropped(column)

    def _dropped(self, column: Column) -> LakeTableMismatch:
        add = add_column((column.name,), column_type_json(column))
        return self._mismatch(
            f"no column {column.name}: another engine has dropped it. Rounds do not add it again,"
            " because its earlier values would be null",
            f"To go on without these, in Spark SQL: {self._alter(add)}",
        )

    def _take(self, column: Column, field: Mapping[str, Any]) -> None:
        expected = column_type_json(column)
        self._check_type(column, expected, field)
        del self._free[field["id"]]
        if field["name"] != column.name:
            self._notes.append(
                f"column {column.name} is named {field['name']} in the lake, and written there"
            )
        self._found[column.name] = WrittenColumn(
            column.name, {**field, "type": written_type(expected, field["type"])}
        )

    def _check_type(self, column: Column, expected: Any, field: Mapping[str, Any]) -> None:
        found = fit(expected, field["type"])
        name = field["name"]
        if found is Fit.NO:
            wanted = iceberg_field(0, column.name, column.data_type, None, count())
            changes = changes_of(expected, field["type"], (name,))
            if changes is None and field["id"] not in self._ids.values():
                changes = [rename_column((name,), f"{name}_of_others")]
            raise self._mismatch(
                f"column '{field_text(field)}', but '{field_text(wanted)}' is expected",
                _in_sql("; ".join(map(self._alter, changes))) if changes else _NO_CHANGE,
            )
        if found is Fit.WIDER:
            self._notes.append(
                f"column {column.name} is {type_text(field['type'])} in the lake and"
                f" {type_text(expected)} in Fluss: its values fit"
            )
        if field["required"] and column.data_type.nullable:
            raise self._mismatch(
                f"column '{field_text(field)}', which is NOT NULL there and not in Fluss",
                _in_sql(self._alter(drop_not_null((name,)))),
            )

    def _check_others(self) -> None:
        """Checks the columns that only the lake has: rounds write no value there."""
        known = set(self._ids.values())
        for field in self._free.values():
            name = field["name"]
            whose = "Fluss has dropped" if field["id"] in known else "another engine has added"
            if field["required"]:
                raise self._mismatch(
                    f"column {name}, which {whose} and which is NOT NULL: rows of Fluss have no"
                    " value for it",
                    _in_sql(self._alter(drop_not_null((name,)))),
                )
            default, initial = field.get("write-default"), field.get("initial-default")
            if default != initial:
                raise self._mismatch(
                    f"column {name}, which {whose}: its default for new rows is {default!r}, and"
                    f" {initial!r} for rows that were there before",
                    "Rounds write no value, and readers then show the latter: make both alike",
                )
            value = "null" if default is None else f"its default {default!r}"
            self._notes.append(f"column {name}, which {whose}, is {value} in new rows")

    def _check_system(self) -> None:
        for one in self._layout.system_columns:
            expected = iceberg_field(0, one.name, one.data_type, None, count())
            found = self._system[one.name]
            if field_text(found) != field_text(expected):
                raise self._mismatch(
                    f"column '{field_text(found)}', but '{field_text(expected)}' is expected",
                    _NO_CHANGE,
                )

    def _check_identifiers(self) -> None:
        ids = set(self._lake.schema.get("identifier-field-ids", ()))
        names = {one["name"] for one in self._lake.schema["fields"] if one["id"] in ids}
        keys = [self._found[one] for one in self._info.schema.primary_key if one in self._found]
        expected = [str(one.field["name"]) for one in keys]
        if names != set(expected):
            mend = f"SET IDENTIFIER FIELDS {', '.join(map(quoted, expected))}"
            if not expected:
                mend = f"DROP IDENTIFIER FIELDS {', '.join(map(quoted, sorted(names)))}"
            raise self._mismatch(
                f"identifier fields {sorted(names)}, but {sorted(expected)} are expected",
                _in_sql(self._alter(mend)),
            )

    def _alter(self, change: str) -> str:
        return _alter(self._info, change)

    def _mismatch(self, what: str, mend: str) -> LakeTableMismatch:
        return mismatch(self._info, what, mend, is_of_fluss=self._lake.is_of_fluss)


_NO_CHANGE = (
    "Iceberg has no statement that makes or mends such a change: undo it with the program that made"
    " it"
)


def check_parts(
    info: TableInfo,
    matched: MatchedSchema,
    found: PartFields,
    types: Mapping[str, JsonType],
    *,
    is_of_fluss: bool,
) -> PartFields:
    """Compares the lake table's partition fields with those that Fluss gives it.

    A clean log table without a bucket key may have more (:mod:`.own_parts`).

    :param types: the lake's types by column.
    :returns: the fields, as rounds use them.
    :raises LakeTableMismatch: they differ; names the statements that change them.
    """
    names, wanted = matched.names, part_fields(info, matched.layout).fields
    expected = [(names.get(one.column, one.column), one.transform) for one in wanted]
    actual = [(one.column, one.transform) for one in found.fields]
    if actual == expected:
        pairs = zip(found.fields, wanted, strict=True)
        return PartFields(tuple(replace(one, kind=own.kind) for one, own in pairs))
    if not why_not_own(info, matched.layout):
        keys = [column for column, _ in expected]
        own = found_own_fields(found, keys, types)
        if own is not None:
            return own
    pairs_of_both = zip(actual, expected, strict=False)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs_of_both))
    drops = [f"DROP PARTITION FIELD {quoted(one.name)}" for one in found.fields[same:]]
    adds = [f"ADD PARTITION FIELD {_spark_transform(*one)}" for one in expected[same:]]
    raise mismatch(
        info,
        f"the partition fields {parts_text(actual)}, but {parts_text(expected)} are expected",
        _in_sql("; ".join(_alter(info, one) for one in (*drops, *adds))),
        is_of_fluss=is_of_fluss,
    )


def mismatch(info: TableInfo, what: str, mend: str, *, is_of_fluss: bool) -> LakeTableMismatch:
    """The error of a lake table that rounds cannot write.

    :param mend: how it is mended.
    :param is_of_fluss: as of :class:`LakeSide`. If not, it is another table, and no change helps.
    """
    if not is_of_fluss:
        mend = (
            "It has no snapshot of Fluss's tiering either, so it is another table than Fluss's:"
            " rename it, or tier to another lake"
        )
    return LakeTableMismatch(
        f"lake table {info.path} has {what}. Nothing was written. {mend}", table=str(info.path)
    )


def _alter(info: TableInfo, change: str) -> str:
    return f"ALTER TABLE CATALOG.{info.path} {change}"


def _in_sql(statement: str) -> str:
    return f"In Spark SQL: {statement}"


def parts_text(fields: Sequence[tuple[str, str]]) -> str:
    """``[identity(day), bucket[4](id)]``."""
    return "[" + ", ".join(f"{transform}({column})" for column, transform in fields) + "]"


def _spark_transform(column: str, transform: str) -> str:
    if transform == "identity":
        return quoted(column)
    name, _, width = transform.rstrip("]").partition("[")
    return f"{name}({width}, {quoted(column)})" if width else f"{name}({quoted(column)})"
