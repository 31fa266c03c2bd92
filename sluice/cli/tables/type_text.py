"""Reads a data type as a user writes it, and suggests one for those of other systems."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sluice.did_you_mean import closest
from sluice.errors import InvalidTable
from sluice.model import DataType, types

_PLAIN: Mapping[str, DataType] = {
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
class _Parameters:
    """The numbers that a type takes in parentheses."""

    make: Callable[..., DataType]
    limits: Mapping[str, tuple[int, int]]
    example: str


_LENGTH = {"length": (1, 2**31 - 1)}
_DIGITS = {"precision": (0, 9)}
_WITH_NUMBERS: Mapping[str, _Parameters] = {
    "CHAR": _Parameters(types.char, _LENGTH, "CHAR(10)"),
    "BINARY": _Parameters(types.binary, _LENGTH, "BINARY(16)"),
    "DECIMAL": _Parameters(
        types.decimal, {"precision": (1, 38), "scale": (0, 38)}, "DECIMAL(10, 2)"
    ),
    "TIME": _Parameters(types.time, _DIGITS, "TIME(3)"),
    "TIMESTAMP": _Parameters(types.timestamp, _DIGITS, "TIMESTAMP(3)"),
    "TIMESTAMP_LTZ": _Parameters(types.timestamp_ltz, _DIGITS, "TIMESTAMP_LTZ(3)"),
}
_KNOWN = sorted({*_PLAIN, *_WITH_NUMBERS} - {"INTEGER"})
_NESTED = ("ARRAY", "LIST", "MAP", "ROW", "STRUCT")
_SAME_NUMBERS: Mapping[str, str] = {
    "CHARACTER": "CHAR",
    "DATETIME": "TIMESTAMP",
    "DEC": "DECIMAL",
    "NUMBER": "DECIMAL",
    "NUMERIC": "DECIMAL",
    "TIMESTAMP_NTZ": "TIMESTAMP",
    "TIMESTAMPTZ": "TIMESTAMP_LTZ",
}
_OTHER_NAMES: Mapping[str, str] = {
    **dict.fromkeys(("BOOL",), "BOOLEAN"),
    **dict.fromkeys(("BYTE",), "TINYINT"),
    **dict.fromkeys(("INT16", "SHORT"), "SMALLINT"),
    **dict.fromkeys(("INT32", "INT4"), "INT"),
    **dict.fromkeys(("INT64", "LONG"), "BIGINT"),
    **dict.fromkeys(("FLOAT32", "REAL"), "FLOAT"),
    **dict.fromkeys(("FLOAT64",), "DOUBLE"),
    **dict.fromkeys(("BLOB", "BYTEA", "VARBINARY"), "BYTES"),
    **dict.fromkeys(("CLOB", "NVARCHAR", "STR", "TEXT", "VARCHAR", "VARCHAR2"), "STRING"),
}
_TYPE = re.compile(r"(?P<name>\w+)\s*(?:\((?P<numbers>[^()]*)\))?(?P<rest>.*)", re.DOTALL)
_TWO_WORDS: Mapping[str, str] = {
    r"(?P<type>DOUBLE\s+PRECISION)\b": "DOUBLE",
    r"(?P<type>CHAR(?:ACTER)?\s+VARYING(?:\s*\(\d*\))?)": "STRING",
    r"(?P<type>TIMESTAMP\s*(?:\(\d*\))?\s+WITH\s+(?:LOCAL\s+)?TIME\s+ZONE)\b": "TIMESTAMP_LTZ",
    r"(?P<type>TIMESTAMP\s*(?:\(\d*\))?\s+WITHOUT\s+TIME\s+ZONE)\b": "TIMESTAMP",
}


def is_type_name(name: str) -> bool:
    """Whether a word is a type here or in another system."""
    known = {*_KNOWN, "INTEGER", *_NESTED, *_SAME_NUMBERS, *_OTHER_NAMES}
    return name.upper() in known


def parse_type(column: str, text: str) -> tuple[DataType, str]:
    """The type at the start of a text, and the rest of the text.

    :raises InvalidTable: there is no such type, or its numbers are wrong; names the column.
    """
    for pattern, use in _TWO_WORDS.items():
        if found := re.match(pattern, text, re.IGNORECASE):
            raise InvalidTable(f"column {column}: unknown type {found['type']}; use {use}")
    match = _TYPE.match(text)
    if match is None:
        raise InvalidTable(f"column {column}: expected a type such as BIGINT, found {text!r}")
    name, numbers = match["name"].upper(), match["numbers"]
    is_doubled = match["rest"].startswith("(")
    shown = text if is_doubled else text[: match.start("rest")].strip()
    if name in _NESTED:
        raise InvalidTable(
            f"column {column}: --schema does not support nested types such as {text!r}; use"
            " --like FILE with a Parquet file that has the column"
        )
    if numbers is None and name in _PLAIN:
        return _PLAIN[name], match["rest"]
    if name in _WITH_NUMBERS:
        return _with_numbers(column, name, numbers, shown), match["rest"]
    if name in _PLAIN:
        raise InvalidTable(f"column {column}: {name} takes no length; write '{column} {name}'")
    raise InvalidTable(f"column {column}: unknown type {shown}{_suggestion(name, numbers)}")


def _suggestion(name: str, numbers: str | None) -> str:
    if name in _OTHER_NAMES:
        return f"; use {_OTHER_NAMES[name]}"
    if name in _SAME_NUMBERS:
        use = _SAME_NUMBERS[name]
        given = ", ".join(part.strip() for part in (numbers or "").split(","))
        is_plain = not given and use in _PLAIN
        return f"; use {use if is_plain else f'{use}({given})' if given else _example(use)}"
    if found := closest(name, _KNOWN, cutoff=0.7):
        return f"; did you mean {found}?"
    return f"; the types are {', '.join(_KNOWN)}"


def _example(name: str) -> str:
    return _WITH_NUMBERS[name].example


def _with_numbers(column: str, name: str, numbers: str | None, shown: str) -> DataType:
    kind = _WITH_NUMBERS[name]
    parts = [part.strip() for part in (numbers or "").split(",")]
    if name == "DECIMAL" and len(parts) == 1 and parts[0]:
        parts.append("0")
    if len(parts) != len(kind.limits) or not all(part.isdecimal() for part in parts):
        words = " and a ".join(kind.limits)
        reason = f"{name} takes a {words}, as in {kind.example}; found {shown!r}"
        raise InvalidTable(f"column {column}: {reason}")
    given = [int(part) for part in parts]
    for (word, (low, high)), number in zip(kind.limits.items(), given, strict=True):
        if not low <= number <= high:
            reason = f"the {word} of {name} is from {low} to {high}; found {shown!r}"
            raise InvalidTable(f"column {column}: {reason}")
    if name == "DECIMAL" and given[1] > given[0]:
        reason = f"the scale of DECIMAL is at most its precision; found {shown!r}"
        raise InvalidTable(f"column {column}: {reason}")
    return kind.make(*given)
