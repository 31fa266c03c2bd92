"""Reads a schema as a user writes it: ``id BIGINT, price DECIMAL(10, 2), PRIMARY KEY (id)``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sluice.errors import InvalidTable
from sluice.model import Column, DataType, Schema, TypeRoot, types

_PLAIN: dict[str, DataType] = {
    "BOOLEAN": types.BOOLEAN,
    "TINYINT": types.TINYINT,
    "SMALLINT": types.SMALLINT,
    "INT": types.INT,
    "INTEGER": types.INT,
    "BIGINT": types.BIGINT,
    "FLOAT": types.FLOAT,
    "DOUBLE": types.DOUBLE,
    "STRING": types.STRING,
    "BYTES": types.BYTES,
    "DATE": types.DATE,
    "TIME": types.time(),
    "TIMESTAMP": types.timestamp(),
    "TIMESTAMP_LTZ": types.timestamp_ltz(),
}


@dataclass(frozen=True, slots=True)
class _Range:
    make: Callable[..., DataType]
    limits: tuple[tuple[int, int], ...]


_WITH_NUMBERS: dict[str, _Range] = {
    "CHAR": _Range(types.char, ((1, 2**31 - 1),)),
    "BINARY": _Range(types.binary, ((1, 2**31 - 1),)),
    "DECIMAL": _Range(types.decimal, ((1, 38), (0, 38))),
    "TIME": _Range(types.time, ((0, 9),)),
    "TIMESTAMP": _Range(types.timestamp, ((0, 9),)),
    "TIMESTAMP_LTZ": _Range(types.timestamp_ltz, ((0, 9),)),
}
_COLUMN = re.compile(
    r"\s*(?P<name>`[^`]+`|\w+)\s+(?P<type>\w+)\s*(?:\((?P<numbers>[\d\s,]*)\))?"
    r"(?P<rest>.*)",
    re.DOTALL,
)


_PRIMARY_KEY = re.compile(r"\s*PRIMARY\s+KEY\s*\((?P<names>[^()]*)\)\s*", re.IGNORECASE)


def parse_schema(text: str, primary_key: Sequence[str] = ()) -> Schema:
    """Columns separated by commas, each ``NAME TYPE [NOT NULL]``, as a schema.

    A primary key may be given apart, or stand among the columns as ``PRIMARY KEY (NAME, ...)``.

    :raises InvalidTable: names the column that cannot be read and what is allowed.
    """
    parts = [part for part in _split(text) if part.strip()]
    keys = [match for part in parts if (match := _PRIMARY_KEY.fullmatch(part))]
    if len(keys) + bool(primary_key) > 1:
        raise InvalidTable("a table has one primary key: give it once, with all of its columns")
    if keys:
        primary_key = tuple(name.strip().strip("`") for name in keys[0]["names"].split(","))
    columns = tuple(
        _column(part, index)
        for index, part in enumerate(part for part in parts if not _PRIMARY_KEY.fullmatch(part))
    )
    if not columns:
        raise InvalidTable("the schema has no columns: write NAME TYPE [NOT NULL], ...")
    names = [column.name for column in columns]
    for name in names:
        if names.count(name) > 1:
            raise InvalidTable(f"column {name!r} is there twice")
    return with_primary_key(Schema(columns, (), len(columns) - 1), primary_key)


def with_primary_key(schema: Schema, primary_key: Sequence[str]) -> Schema:
    """The schema with this key, whose columns are NOT NULL then; none: as it is.

    :raises InvalidTable: names the column that is not there, or there twice.
    """
    for name in primary_key:
        if name not in schema.names:
            raise InvalidTable(
                f"primary key column {name!r} is not one of {', '.join(schema.names)}"
            )
        if list(primary_key).count(name) > 1:
            raise InvalidTable(f"primary key column {name!r} is there twice")
    columns = tuple(
        replace(column, data_type=column.data_type.not_null())
        if column.name in primary_key
        else column
        for column in schema.columns
    )
    return replace(schema, columns=columns, primary_key=tuple(primary_key))


def _split(text: str) -> list[str]:
    """Cuts at commas outside of parentheses."""
    return re.split(r",(?![^()]*\))", text)


def _column(part: str, index: int) -> Column:
    match = _COLUMN.fullmatch(part)
    if match is None:
        raise InvalidTable(f"column {part.strip()!r}: write NAME TYPE [NOT NULL]")
    data_type = _type(match["type"].upper(), match["numbers"], part.strip())
    rest = " ".join(match["rest"].upper().split())
    if rest not in ("", "NULL", "NOT NULL"):
        raise InvalidTable(f"column {part.strip()!r}: {match['rest'].strip()!r} is not NOT NULL")
    if rest == "NOT NULL":
        data_type = data_type.not_null()
    return Column(match["name"].strip("`"), data_type, index)


def _type(name: str, numbers: str | None, part: str) -> DataType:
    if numbers is None:
        if name in _PLAIN:
            return _PLAIN[name]
        if name in _WITH_NUMBERS:
            raise InvalidTable(f"column {part!r}: {name} needs a length, as in {name}(10)")
    elif name in _WITH_NUMBERS:
        return _with_numbers(name, numbers, part)
    elif name in _PLAIN:
        raise InvalidTable(f"column {part!r}: {name} takes no length")
    known = ", ".join(sorted({*_PLAIN, *_WITH_NUMBERS}))
    raise InvalidTable(f"column {part!r}: no type {name!r}; there are {known}")


def _with_numbers(name: str, numbers: str, part: str) -> DataType:
    kind = _WITH_NUMBERS[name]
    given = [int(number) for number in numbers.replace(" ", "").split(",") if number]
    if name == TypeRoot.DECIMAL.name and len(given) == 1:
        given.append(0)
    if len(given) != len(kind.limits):
        raise InvalidTable(f"column {part!r}: {name} takes {len(kind.limits)} numbers")
    for number, (low, high) in zip(given, kind.limits, strict=True):
        if not low <= number <= high:
            raise InvalidTable(f"column {part!r}: {number} is not between {low} and {high}")
    return kind.make(*given)
