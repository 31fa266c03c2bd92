"""Reads a schema as a user writes it: ``id BIGINT, price DECIMAL(10, 2), PRIMARY KEY (id)``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from sluice.cli.tables.type_text import is_type_name, parse_type
from sluice.did_you_mean import did_you_mean
from sluice.errors import InvalidTable
from sluice.model import Column, Schema

_EXAMPLE = "id BIGINT NOT NULL, item STRING"
_NAME = re.compile(r"`[^`]+`|[^\s`\"'():<>,]+")
_KEY_WORDS = re.compile(r"\s*PRIMARY\s+KEY\b", re.IGNORECASE)
_KEY = re.compile(r"\s*PRIMARY\s+KEY\s*\((?P<names>(?:`[^`]*`|[^()`])*)\)\s*", re.IGNORECASE)
_CONSTRAINT = re.compile(r"\s*(NOT\s+NULL|NULL|PRIMARY\s+KEY)\b", re.IGNORECASE)
_COLUMN_START = re.compile(r"(?:`[^`]+`|\w+)\s+(\w+)")
_NUMBERED = "AUTO_INCREMENT"
_UNSUPPORTED = (
    "CHECK",
    "COLLATE",
    "COMMENT",
    "DEFAULT",
    "GENERATED",
    "REFERENCES",
    "UNIQUE",
    "UNSIGNED",
)


def parse_schema(text: str) -> Schema:
    """Columns separated by commas, each ``NAME TYPE [NOT NULL] [PRIMARY KEY]``, as a schema.

    A key of several columns is ``PRIMARY KEY (NAME, ...)`` among the columns.

    :raises InvalidTable: names the column, the fragment that is wrong, and what is expected.
    """
    columns: list[Column] = []
    keys: list[list[str]] = []
    for part in _parts(text):
        if _KEY_WORDS.match(part):
            keys.append(_key(part))
            continue
        column, is_key = _column(part, len(columns))
        columns.append(column)
        keys += [[column.name]] if is_key else []
    if not columns:
        raise InvalidTable(f"the schema has no columns; write for example '{_EXAMPLE}'")
    if len(keys) > 1:
        both = ", ".join(dict.fromkeys(name for key in keys for name in key))
        raise InvalidTable(f"the primary key is given twice; give it once: PRIMARY KEY ({both})")
    names = [column.name for column in columns]
    for name in names:
        if names.count(name) > 1:
            raise InvalidTable(f"column {name}: the name is used twice")
    return with_primary_key(Schema(tuple(columns), (), len(columns) - 1), keys[0] if keys else ())


def with_primary_key(schema: Schema, primary_key: Sequence[str]) -> Schema:
    """The schema with this key, whose columns are NOT NULL then; without a key: unchanged.

    :raises InvalidTable: names the column that does not exist, or is named twice.
    """
    for name in primary_key:
        check_column(schema, name, "primary key")
        if list(primary_key).count(name) > 1:
            raise InvalidTable(f"primary key: column {name!r} is named twice")
    columns = tuple(
        replace(column, data_type=column.data_type.not_null())
        if column.name in primary_key
        else column
        for column in schema.columns
    )
    return replace(schema, columns=columns, primary_key=tuple(primary_key))


def check_column(schema: Schema, name: str, where: str = "") -> None:
    """:raises InvalidTable: the schema has no such column; suggests one."""
    if name not in schema.names:
        hint = did_you_mean(name, schema.names) or f"; the columns are {', '.join(schema.names)}"
        raise InvalidTable(f"{where}{': ' if where else ''}no column {name!r}{hint}")


def _parts(text: str) -> list[str]:
    """The text cut at commas outside of parentheses and backticks, without spaces around.

    :raises InvalidTable: a parenthesis, a backtick or a column between two commas is missing.
    """
    parts, opened, start = [], list[int](), 0
    for at, char in _outside_of_backticks(text):
        if char in "(<":
            opened.append(at)
        elif char in ")>":
            if not opened:
                raise InvalidTable(f"{char!r} closes nothing after {text[start:at].strip()!r}")
            opened.pop()
        elif char == "," and not opened:
            parts.append(text[start:at].strip())
            start = at + 1
    if opened:
        raise InvalidTable(_not_closed(text, opened[-1]))
    parts.append(text[start:].strip())
    if not parts[-1]:  # a comma at the end is allowed
        parts.pop()
    if "" in parts:
        number = parts.index("")
        place = f"after {parts[number - 1]!r}" if number else "at the start"
        raise InvalidTable(f"a column is missing before the comma {place}")
    if parts and parts[0].startswith("("):
        raise InvalidTable("write the columns without parentheses around all of them")
    return parts


def _outside_of_backticks(text: str) -> Iterator[tuple[int, str]]:
    """The characters outside of backticks, and where they are.

    :raises InvalidTable: a backtick is missing.
    """
    opened = None
    for at, char in enumerate(text):
        if char == "`":
            opened = at if opened is None else None
        elif opened is None:
            yield at, char
    if opened is not None:
        raise InvalidTable(f"a backtick is missing in {text[opened:].strip()!r}")


def _not_closed(text: str, at: int) -> str:
    """The message about an opening parenthesis that nothing closes."""
    closing = ")" if text[at] == "(" else ">"
    numbers = re.compile(r"\s*\d+(?:\s*,\s*\d+)*").match(text, at + 1)
    end = numbers.end() if numbers else len(text)
    start = max(text.rfind(char, 0, at) for char in ",(") + 1
    return f"{closing!r} is missing after {text[start:end].strip()!r}"


def _key(part: str) -> list[str]:
    match = _KEY.fullmatch(part)
    names = [name.strip().strip("`") for name in _names(match["names"])] if match else []
    if not all(names) or not names:
        raise InvalidTable(f"write PRIMARY KEY (NAME, ...) in place of {part!r}")
    return names


def _names(text: str) -> list[str]:
    """The text cut at commas outside of backticks."""
    commas = [at for at, char in _outside_of_backticks(text) if char == ","]
    starts, ends = [0, *(at + 1 for at in commas)], [*commas, len(text)]
    return [text[start:end] for start, end in zip(starts, ends, strict=True)]


def _column(part: str, index: int) -> tuple[Column, bool]:
    """A column, and whether PRIMARY KEY follows its type."""
    match = _NAME.match(part)
    if match is None:
        if quoted := re.match(r"[\"']([^\"']+)[\"']", part):
            raise InvalidTable(f"write `{quoted[1]}` in place of {quoted[0]}: names have backticks")
        raise InvalidTable(f"expected a column such as 'id BIGINT', found {part!r}")
    name, rest = match[0], part[match.end() :]
    if not name.startswith("`") and not re.fullmatch(r"\w+", name):
        raise InvalidTable(f"column {name}: write the name in backticks: `{name}`")
    name = name.strip("`")
    if rest.lstrip().startswith(":"):
        raise InvalidTable(f"column {name}: write '{name} {rest.lstrip(' :')}', without ':'")
    if not rest.strip() or _CONSTRAINT.match(rest):
        raise InvalidTable(f"column {name}: the type is missing; write for example '{name} BIGINT'")
    data_type, rest = parse_type(name, rest.strip())
    found = []
    while constraint := _CONSTRAINT.match(rest):
        found.append(" ".join(constraint[1].upper().split()))
        rest = rest[constraint.end() :]
    if rest.strip():
        raise InvalidTable(_surplus(name, rest.strip()))
    if "NULL" in found and len(found) > 1:
        raise InvalidTable(f"column {name}: NULL contradicts {found[1 - found.index('NULL')]}")
    if "NOT NULL" in found or "PRIMARY KEY" in found:
        data_type = data_type.not_null()
    return Column(name, data_type, index), "PRIMARY KEY" in found


def _surplus(name: str, rest: str) -> str:
    """The message about a text that follows the type of a column."""
    word = rest.split()[0].partition("(")[0].upper()
    next_column = _COLUMN_START.match(rest)
    if word == _NUMBERED:
        return f"column {name}: {word} is not supported here; use --auto-increment {name}"
    if word in _UNSUPPORTED:
        return f"column {name}: {word} is not supported; leave out {rest!r}"
    if next_column and is_type_name(next_column[1]):
        return f"a comma is missing before {rest!r}"
    return f"column {name}: expected NOT NULL, PRIMARY KEY or a comma, found {rest!r}"
