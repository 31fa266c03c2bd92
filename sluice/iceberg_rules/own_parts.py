"""Partition fields that a user chooses for the lake table of a log table, as ``days(ts)``.

Fluss's own tiering refuses a table that has some: it compares the partition spec with its own. So
only clean log tables without a bucket key may have them, whose rows nobody looks up by bucket.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from sluice.did_you_mean import did_you_mean
from sluice.errors import ConfigurationError
from sluice.iceberg_rules.layout import Layout, PartField, PartFields, PartKind, part_fields
from sluice.iceberg_rules.types import JsonType, column_type_json, type_text
from sluice.model import TableInfo

_DATES = ("date", "timestamp", "timestamptz")
_TYPES: dict[str, tuple[str, ...]] = {
    "identity": ("string", "int", "long", "boolean", "date"),
    "bucket": ("string", "int", "long", "binary", "time", *_DATES),
    "truncate": ("string", "int", "long"),
    "year": _DATES,
    "month": _DATES,
    "day": _DATES,
    "hour": ("timestamp", "timestamptz"),
}
"""The types of columns that rounds can partition by, by transform."""
_PLURALS = {"years": "year", "months": "month", "days": "day", "hours": "hour"}
_WIDTH_MAX = 2**31 - 1
_NAME = r"`[^`]+`|[^(),`\s]+"
_TEXT = re.compile(rf"\s*(?:(\w+)\s*\(\s*(?:(\d+)\s*,\s*)?({_NAME})\s*\)|({_NAME}))\s*")
_FORMS = "years, months, days or hours(COLUMN), bucket(N, COLUMN), truncate(W, COLUMN) or COLUMN"


def own_field(info: TableInfo, text: str) -> PartField:
    """A partition field from a text as Spark SQL writes it, with a column in backquotes or without.

    :raises ConfigurationError: there is no such column or transform, or they do not fit.
    """
    found = _TEXT.fullmatch(text)
    if found is None:
        raise ConfigurationError(f"partition field {text!r}: use {_FORMS}")
    word, width, column = found[1] or "identity", found[2], (found[3] or found[4]).strip("`")
    kind = _PLURALS.get(word.lower(), word.lower())
    if kind not in _TYPES:
        meant = did_you_mean(kind, ("bucket", "truncate", *_PLURALS), cutoff=0.6)
        raise ConfigurationError(
            f"partition field {text!r}: {word} is unknown{meant} (use {_FORMS})"
        )
    if column not in info.schema.names:
        meant = did_you_mean(column, info.schema.names, cutoff=0.6)
        raise ConfigurationError(
            f"partition field {text!r}: table {info.path} has no column {column}{meant}"
        )
    if (kind in ("bucket", "truncate")) != bool(width) or not 0 < int(width or 1) <= _WIDTH_MAX:
        raise ConfigurationError(
            f"partition field {text!r}: use {_FORMS}, with a number from 1 to {_WIDTH_MAX}"
        )
    transform = f"{kind}[{int(width)}]" if width else kind
    name = column if kind == "identity" else f"{column}_{kind if kind != 'truncate' else 'trunc'}"
    if not is_supported(transform, column_type_json(info.schema.column(column))):
        raise ConfigurationError(
            f"partition field {text!r}: column {column} is"
            f" {info.schema.column(column).data_type}; {word} takes {', '.join(_TYPES[kind])}"
        )
    return PartField(name, column, transform, PartKind.OWN)


def with_own_fields(info: TableInfo, layout: Layout, texts: Sequence[str]) -> PartFields:
    """The partition fields of a new lake table with those of the user behind Fluss's.

    :raises ConfigurationError: the table cannot have own fields, or one of them does not fit.
    """
    fields = part_fields(info, layout)
    if not texts:
        return fields
    if why := why_not_own(info, layout):
        raise ConfigurationError(f"lake table {info.path} has Fluss's partition fields: {why}")
    own: list[PartField] = []
    for text in texts:
        one = own_field(info, text)
        if one.name in {known.name for known in (*fields.fields, *own)}:
            raise ConfigurationError(f"partition field {text!r}: there is one of that name")
        if one.name != one.column and one.name in info.schema.names:
            raise ConfigurationError(
                f"partition field {text!r}: Iceberg would name it {one.name}, as a column of the"
                " table"
            )
        own.append(one)
    return PartFields((*fields.fields, *own))


def why_not_own(info: TableInfo, layout: Layout) -> str:
    """Why a table has exactly the partition fields of Fluss; empty: it may have more."""
    if info.has_primary_key:
        return "it has a primary key, whose rows are found by bucket"
    if info.descriptor.bucket_keys:
        return f"its rows are in buckets by {', '.join(info.descriptor.bucket_keys)}"
    if layout is not Layout.CLEAN:
        return "its layout is legacy, with a partition for each bucket"
    return ""


def found_own_fields(
    found: PartFields, keys: Sequence[str], types: Mapping[str, JsonType]
) -> PartFields | None:
    """The partition fields that a lake table has, if rounds can write them; None: they cannot.

    :param keys: the lake's columns of the partition keys: each has to be an identity field.
    :param types: the lake's types by column.
    """
    left, fields = list(keys), list[PartField]()
    for one in found.fields:
        if one.transform == "identity" and left and one.column == left[0]:
            fields.append(PartField(one.name, one.column, one.transform, PartKind.KEY))
            left.pop(0)
        elif one.transform == "void" or is_supported(one.transform, types.get(one.column, "")):
            fields.append(PartField(one.name, one.column, one.transform, PartKind.OWN))
        else:
            return None
    return None if left else PartFields(tuple(fields))


def is_supported(transform: str, kind: JsonType) -> bool:
    """Whether rounds can partition a column of a type by a transform."""
    return type_text(kind) in _TYPES.get(transform.partition("[")[0], ())
