"""Values of a file as values of a table's column, and how they are told when they do not fit."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

INSTANT = b"instant"
"""Metadata of a column of TIMESTAMP_LTZ, which has Arrow's type of a TIMESTAMP."""
TYPE = b"type"
"""Metadata: the column's type in words of the table."""
KEY = b"key"
"""Metadata of a column that may not be null for another reason than its type: the reason."""

_SHOWN_CHARACTERS = 80
_WITH_ZONE = r"[T ]\d\d.*(Z|[+-]\d\d(:?\d\d)?)$"
_TIME_OF_DAY = r"[T ]\d\d"


def cast(array: pa.Array, field: pa.Field) -> pa.Array:
    """Values of a file as those of a column.

    :raises pa.ArrowException: for a value that does not fit, or would change.
    """
    if array.type == field.type:
        if pa.types.is_decimal(field.type):  # a CSV file's may have too many digits
            array.validate(full=True)
        return array
    if pa.types.is_string(array.type):
        return from_text(array, field)
    if pa.types.is_integer(array.type) and pa.types.is_decimal(field.type):
        # room for any number first: Arrow looks at the type here, not at the values
        array = array.cast(pa.decimal256(20 + field.type.scale, field.type.scale))
    converted = array.cast(field.type)
    narrows = pa.types.is_float64(array.type) and pa.types.is_float32(field.type)
    if narrows and pc.any(pc.and_(pc.is_inf(converted), pc.is_finite(array))).as_py():
        raise pa.ArrowInvalid("out of range")  # pyarrow makes it infinite without a word
    return converted


def from_text(texts: pa.Array, field: pa.Field) -> pa.Array:
    """Texts as values of a column.

    A time of TIMESTAMP_LTZ may have a zone (``Z``, ``+02:00``); without one it is UTC.

    :raises pa.ArrowInvalid: for a text that is no such value.
    """
    if not field.metadata or INSTANT not in field.metadata:
        return texts.cast(field.type)
    zoned = pc.match_substring_regex(texts, _WITH_ZONE)
    at_midnight = pc.if_else(pc.match_substring_regex(texts, _TIME_OF_DAY), "Z", "T00:00Z")
    texts = pc.if_else(zoned, texts, pc.binary_join_element_wise(texts, at_midnight, ""))
    return texts.cast(pa.timestamp(field.type.unit, "UTC")).cast(field.type)


def type_text(field: pa.Field) -> str:
    """The type of a column as the user knows it."""
    known = (field.metadata or {}).get(TYPE)
    return known.decode() if known else str(field.type)


def value_at(values: pa.Array, row: int) -> object:
    """One value, for people to read."""
    try:
        return values[row].as_py()
    except ValueError:  # nanoseconds, which Python's times do not have
        return str(values.slice(row, 1).cast(pa.string())[0])


def expected(field: pa.Field, value: object) -> str:
    """What a column wants and what it was given; None is a null."""
    because = (field.metadata or {}).get(KEY)
    if value is None:
        shown = f"no value ({because.decode()})" if because else "no value"
    elif isinstance(value, str | bytes):
        shown = repr(value[:_SHOWN_CHARACTERS]) + ("..." if len(value) > _SHOWN_CHARACTERS else "")
    else:
        shown = str(value)[:_SHOWN_CHARACTERS]
    return f"column {field.name}: expected {type_text(field)}, found {shown}"
