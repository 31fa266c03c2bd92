"""Values of a file as values of a table's column, and messages about those that do not fit."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from sluice.cli.terminal.shown_values import is_time, times

INSTANT = b"instant"
"""Metadata of a column of TIMESTAMP_LTZ, which has Arrow's type of a TIMESTAMP."""
TYPE = b"type"
"""Metadata: the column's type in words of the table."""
KEY = b"key"
"""Metadata of a column that may not be null for another reason than its type: the reason."""
LENGTH = b"length"
"""Metadata of a column of CHAR: how many characters fit."""

_SHOWN_CHARACTERS = 80
_WITH_ZONE = r"[T ]\d\d.*(Z|[+-]\d\d(:?\d\d)?)$"
_LARGEST = {16: "6.5e4", 32: "3.4e38", 64: "1.8e308"}
"""The largest floating-point number, by the bits of its type."""
_MICROS = 2**63 // 1_000
"""Of 64 bits of nanoseconds, from 1970 on."""
_FRACTIONS = {"s": "", "ms": ".123", "us": ".123456", "ns": ".123456789"}
"""The fraction of a second that a unit of time can hold."""
_RANGE = ", from 1677-09-21 00:12:44 to 2262-04-11 23:47:16: nanoseconds have 64 bits"
"""The times of a column with nanoseconds; those of other units end after the year 9999."""
_TAKES: dict[str, tuple[str, ...]] = {
    "number": ("number",),
    "text": ("text", "number", "boolean", "date", "time", "timestamp", "bytes"),
    "bytes": ("bytes",),
    "boolean": ("boolean",),
    "date": ("date", "timestamp"),
    "time": ("time",),
    "timestamp": ("timestamp", "date"),
    "instant": ("instant", "timestamp"),  # which is UTC, as in Fluss's own Arrow batches
}
"""The kinds of values that each kind of column accepts; text is read as values of any kind."""


def cast(array: pa.Array, field: pa.Field) -> pa.Array:
    """Converts values of a file to values of a column: equal ones, or the ones that a text means.

    :raises pa.ArrowNotImplementedError: the column does not accept values of this kind.
    :raises pa.ArrowException: a value does not fit, or would change.
    """
    array = _plain(array)
    if pa.types.is_null(array.type):
        return array.cast(field.type)
    if pa.types.is_nested(field.type):
        return _cast_nested(array, field)
    if pa.types.is_string(array.type) and not pa.types.is_string(field.type):
        array = from_text(array, field)
    elif _kind(array.type) not in _TAKES[_kind(field.type, is_instant=is_instant(field))]:
        raise pa.ArrowNotImplementedError(unfit(array.type, field))
    elif array.type != field.type:
        array = _same_values(array, field.type)
    if pa.types.is_decimal(field.type):  # Arrow reads texts with too many digits
        array.validate(full=True)
    length = (field.metadata or {}).get(LENGTH)
    if length and (pc.max(pc.utf8_length(array)).as_py() or 0) > int(length):
        raise pa.ArrowInvalid("too long")
    return array


def from_text(texts: pa.Array, field: pa.Field) -> pa.Array:
    """Texts as values of a column.

    A time of TIMESTAMP_LTZ may have a zone (``Z``, ``+02:00``); without one it is UTC. FLOAT and
    DOUBLE take the nearest value. Only ``inf`` and similar texts become infinite.

    :raises pa.ArrowInvalid: a text is not a value of this type.
    """
    kind = field.type
    if not (pa.types.is_string(kind) or _kind(kind) == "bytes"):
        texts = pc.utf8_trim_whitespace(texts)
    if is_instant(field):
        zoned = pc.match_substring_regex(texts, _WITH_ZONE)
        at_midnight = pc.if_else(pc.match_substring_regex(texts, r"[T ]\d\d"), "Z", "T00:00Z")
        texts = pc.if_else(zoned, texts, pc.binary_join_element_wise(texts, at_midnight, ""))
        kind = pa.timestamp(kind.unit, "UTC")
    if pa.types.is_time(kind):  # Arrow casts no text to a time of the day
        is_time = pc.match_substring_regex(texts, r"^\d\d:\d\d")
        texts = pc.binary_join_element_wise(pc.if_else(is_time, "1970-01-01", "?"), texts, " ")
        kind = pa.timestamp(kind.unit)
    if pa.types.is_timestamp(kind) and kind.unit == "ns":  # Arrow 19 to 21 wraps them around
        cut = pc.replace_substring_regex(texts, r"(\.\d{6})\d+", r"\1")
        micros = pc.min_max(cut.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())).as_py()
        if any(abs(bound or 0) >= _MICROS for bound in micros.values()):
            raise pa.ArrowInvalid("out of range")
    values = texts.cast(kind)
    if has_infinite(values):  # digits never mean infinity
        finite = pc.match_substring_regex(texts, r"\d")
        if pc.any(pc.and_(pc.is_inf(values), finite)).as_py():
            raise pa.ArrowInvalid("out of range")
    return values.cast(field.type)


def has_infinite(values: pa.Array) -> bool:
    """Whether one of the values is infinite, at any depth."""
    if pa.types.is_list(values.type):
        return has_infinite(values.flatten())
    if pa.types.is_struct(values.type):
        return any(map(has_infinite, values.flatten()))
    return pa.types.is_floating(values.type) and bool(pc.any(pc.is_inf(values)).as_py())


def is_instant(field: pa.Field) -> bool:
    """Whether a column is a TIMESTAMP_LTZ."""
    return bool(field.metadata) and INSTANT in field.metadata


def unfit(arrow: pa.DataType, field: pa.Field) -> str:
    """Why a column does not accept values of an Arrow type."""
    because = ""
    if pa.types.is_timestamp(arrow) and pa.types.is_timestamp(field.type):
        because = "; only TIMESTAMP_LTZ has a time zone"
    return f"expected {type_text(field)}, found a column of type {arrow}{because}"


def _plain(array: pa.Array) -> pa.Array:
    """The same values, without dictionaries, as ``string``, ``binary`` or ``list``."""
    types = pa.types
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    if types.is_large_string(kind) or types.is_string_view(kind):
        return array.cast(pa.string())
    if types.is_large_binary(kind) or types.is_binary_view(kind):
        return array.cast(pa.binary())
    if types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return array.cast(pa.list_(kind.value_field))
    return array


def _cast_nested(array: pa.Array, field: pa.Field) -> pa.Array:
    """A map may also be a list of structs of key and value, as JSON has it."""
    kind, types, nulls = field.type, pa.types, array.is_null()
    if types.is_struct(kind):
        if not types.is_struct(array.type) or {f.name for f in array.type} != {
            f.name for f in kind
        }:
            raise pa.ArrowNotImplementedError(unfit(array.type, field))
        given = dict(zip((f.name for f in array.type), array.flatten(), strict=True))
        children = [cast(given[child.name], child) for child in kind]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=nulls)
    if types.is_map(array.type) and types.is_map(kind):
        array = array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))
    if not types.is_list(array.type):
        raise pa.ArrowNotImplementedError(unfit(array.type, field))
    first = array.offsets[0]
    offsets = pc.subtract(array.offsets, first)
    inner = array.values.slice(first.as_py(), offsets[-1].as_py())
    if types.is_list(kind):
        elements = cast(inner, kind.value_field)
        return pa.ListArray.from_arrays(offsets, elements, type=kind, mask=nulls)
    if not types.is_struct(inner.type) or inner.type.num_fields != 2:
        raise pa.ArrowNotImplementedError(unfit(array.type, field))
    keys, items = inner.flatten()
    keys, items = cast(keys, kind.key_field), cast(items, kind.item_field)
    if keys.null_count:
        raise pa.ArrowInvalid("a key is null")
    return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=nulls)


def _kind(arrow: pa.DataType, *, is_instant: bool = False) -> str:
    types = pa.types
    if types.is_timestamp(arrow):
        return "instant" if is_instant or arrow.tz is not None else "timestamp"
    if types.is_integer(arrow) or types.is_floating(arrow) or types.is_decimal(arrow):
        return "number"
    if types.is_string(arrow):
        return "text"
    if types.is_date(arrow) or types.is_time(arrow):
        return "date" if types.is_date(arrow) else "time"
    if types.is_boolean(arrow):
        return "boolean"
    is_bytes = types.is_binary(arrow) or types.is_fixed_size_binary(arrow)
    return "bytes" if is_bytes else str(arrow)


def _same_values(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Values of another type, if converting them back returns the original ones.

    :raises pa.ArrowException: a value would change.
    """
    source, types = array.type, pa.types
    if types.is_integer(source) and types.is_decimal(target):
        # room for any number first: Arrow looks at the type here, not at the values
        return array.cast(pa.decimal256(20 + target.scale, target.scale)).cast(target)
    converted = _converted(array, target)
    if types.is_integer(source) or types.is_integer(target):  # Arrow compares these itself
        return converted
    differs = pc.not_equal(array, _converted(converted, source))
    if types.is_floating(source):
        differs = pc.and_(differs, pc.invert(pc.is_nan(array)))
    if pc.any(differs).as_py():
        raise pa.ArrowInvalid("the value would change")
    return converted


def _converted(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Arrow's own cast makes another number than 0.07 of the DECIMAL 0.07; a text does not."""
    if pa.types.is_decimal(array.type) and pa.types.is_floating(target):
        return array.cast(pa.string()).cast(pa.float64()).cast(target, safe=False)
    return array.cast(target)


def type_text(field: pa.Field) -> str:
    """The type of a column as the user knows it."""
    known = (field.metadata or {}).get(TYPE)
    return known.decode() if known else str(field.type)


@dataclass(frozen=True, slots=True)
class _Time:
    """A date or a time that Python's own types may not hold; shown without quotes."""

    text: str

    def __str__(self) -> str:
        return self.text


def value_at(values: pa.Array, row: int) -> object:
    """One value, for people to read."""
    if is_time(values.type) and values[row].is_valid:
        return _Time(times(values.slice(row, 1))[0].as_py())
    return values[row].as_py()


def expected(field: pa.Field, value: object) -> str:
    """A message: the column, its type, a value (None is a null), and how to write one."""
    if value is None:
        because = (field.metadata or {}).get(KEY)
        shown, form = f"no value ({because.decode()})" if because else "no value", ""
    else:
        shown = str(value)[:_SHOWN_CHARACTERS]
        shown = shortened(value) if isinstance(value, str | bytes) else shown
        form = _form(field, value)
    return f"column {field.name}: expected {type_text(field)}, found {shown}{form and '; '}{form}"


def shortened(text: str | bytes) -> str:
    """A text in quotes, cut off where it is long."""
    return repr(text[:_SHOWN_CHARACTERS]) + ("..." if len(text) > _SHOWN_CHARACTERS else "")


def _form(field: pa.Field, value: object) -> str:
    """How a value of a column must be written; empty if the type says enough."""
    types, kind = pa.types, field.type
    if types.is_integer(kind):
        most = 2 ** (kind.bit_width - 1)
        return f"write a whole number from {-most} to {most - 1}"
    if types.is_floating(kind):
        if not isinstance(value, str):
            return f"{kind.bit_width} bits cannot hold it exactly"
        return f"write a number such as 12.5, up to {_LARGEST[kind.bit_width]}"
    if types.is_decimal(kind):
        before, after = kind.precision - kind.scale, kind.scale
        return f"write up to {before} digits before and {after} after the point"
    if types.is_string(kind):
        length = (field.metadata or {}).get(LENGTH)
        is_text = isinstance(value, str)
        return f"write up to {length.decode()} characters" if length and is_text else "use UTF-8"
    if types.is_boolean(kind):
        return "write true or false"
    if types.is_date(kind):
        return "write it as 2024-05-01"
    if types.is_fixed_size_binary(kind):
        return f"write exactly {kind.byte_width} bytes"
    if not (types.is_time(kind) or types.is_timestamp(kind)):
        return ""
    time = "13:45:00" + _FRACTIONS[kind.unit]
    if types.is_time(kind):
        return f"write it as {time}"
    form = f"2024-05-01T{time}Z" if is_instant(field) else f"2024-05-01 {time}"
    return f"write it as {form}{_RANGE if kind.unit == 'ns' else ''}"
