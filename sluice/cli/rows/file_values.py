"""Values of a file as values of a table's column, and messages about those that do not fit."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import numpy as np
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
_TIME_OF_DAY = r"[T ]\d\d"
_DIGIT = r"\d"
_EXACT_WHOLE = 2**53
"""Whole numbers below are exact as float64."""
_EXACT_POWER = 22
"""Of ten, the largest that is."""
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

    Values are equal if converting them back returns the original ones.

    :raises pa.ArrowNotImplementedError: the column does not accept values of this kind.
    :raises pa.ArrowException: a value does not fit, or would change.
    """
    array = _plain(array)
    if pa.types.is_string(array.type) and not pa.types.is_string(field.type):
        return from_text(array, field)
    if not _takes(field, array.type):
        raise pa.ArrowNotImplementedError(unfit(array.type, field))
    if array.type != field.type:
        array = _same_values(array, field.type)
    elif pa.types.is_decimal(field.type):  # a CSV file's may have too many digits
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
    if not _is_instant(field):
        _check_range(texts, field.type)
        if pa.types.is_floating(field.type):  # as Arrow reads numbers of a CSV file
            texts = pc.utf8_trim_whitespace(texts)
        values = texts.cast(field.type)
        if is_infinite(values):  # digits never mean infinity
            finite = pc.match_substring_regex(texts, _DIGIT)
            if pc.any(pc.and_(pc.is_inf(values), finite)).as_py():
                raise pa.ArrowInvalid("out of range")
        return values
    zoned = pc.match_substring_regex(texts, _WITH_ZONE)
    at_midnight = pc.if_else(pc.match_substring_regex(texts, _TIME_OF_DAY), "Z", "T00:00Z")
    texts = pc.if_else(zoned, texts, pc.binary_join_element_wise(texts, at_midnight, ""))
    instant = pa.timestamp(field.type.unit, "UTC")
    _check_range(texts, instant)
    return texts.cast(instant).cast(field.type)


def _check_range(texts: pa.Array, kind: pa.DataType) -> None:
    """Refuses times that nanoseconds cannot hold: Arrow 19 to 21 wraps those of texts around.

    :raises pa.ArrowInvalid: one is out of range, or no time.
    """
    if not pa.types.is_timestamp(kind) or kind.unit != "ns":
        return
    cut = pc.replace_substring_regex(texts, r"(\.\d{6})\d+", r"\1")
    micros = cut.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    known = pc.min_max(micros).as_py()
    if known["min"] is not None and not -_MICROS < known["min"] <= known["max"] < _MICROS:
        raise pa.ArrowInvalid("out of range")


def is_infinite(values: pa.Array) -> bool:
    """Whether one of the values is infinite."""
    return pa.types.is_floating(values.type) and bool(pc.any(pc.is_inf(values)).as_py())


def unfit(arrow: pa.DataType, field: pa.Field) -> str:
    """Why a column does not accept values of an Arrow type."""
    because = ""
    if pa.types.is_timestamp(arrow) and pa.types.is_timestamp(field.type):
        because = "; only TIMESTAMP_LTZ has a time zone"
    return f"expected {type_text(field)}, found a column of type {arrow}{because}"


def _plain(array: pa.Array) -> pa.Array:
    """The same values, with text as ``string`` and bytes as ``binary``."""
    types = pa.types
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if types.is_large_string(array.type) or types.is_string_view(array.type):
        return array.cast(pa.string())
    if types.is_large_binary(array.type) or types.is_binary_view(array.type):
        return array.cast(pa.binary())
    return array


def _takes(field: pa.Field, arrow: pa.DataType) -> bool:
    """Whether the kinds agree; the cast then checks the values."""
    if pa.types.is_null(arrow) or not pa.types.is_nested(field.type):
        return pa.types.is_null(arrow) or _kind(arrow) in _TAKES.get(_kind_of(field), ())
    if not pa.types.is_nested(arrow) or arrow.num_fields != field.type.num_fields:
        return False
    pairs = [(arrow.field(i), field.type.field(i)) for i in range(arrow.num_fields)]
    if pa.types.is_struct(arrow) and any(own.name != other.name for own, other in pairs):
        return False
    # nested values are not compared, so types that could round are refused
    is_like = type(arrow) is type(field.type) or (_is_list(arrow) and _is_list(field.type))
    return is_like and all(
        _takes(other, own.type) and not _may_change(own.type, other.type) for own, other in pairs
    )


def _kind_of(field: pa.Field) -> str:
    return "instant" if _is_instant(field) else _kind(field.type)


def _is_instant(field: pa.Field) -> bool:
    return bool(field.metadata) and INSTANT in field.metadata


def _kind(arrow: pa.DataType) -> str:
    types = pa.types
    if types.is_dictionary(arrow):
        return _kind(arrow.value_type)
    if types.is_timestamp(arrow):
        return "timestamp" if arrow.tz is None else "instant"
    if types.is_integer(arrow) or types.is_floating(arrow) or types.is_decimal(arrow):
        return "number"
    if types.is_string(arrow) or types.is_large_string(arrow) or types.is_string_view(arrow):
        return "text"
    if types.is_date(arrow) or types.is_time(arrow):
        return "date" if types.is_date(arrow) else "time"
    if types.is_boolean(arrow):
        return "boolean"
    is_bytes = types.is_binary(arrow) or types.is_fixed_size_binary(arrow)
    is_bytes = is_bytes or types.is_large_binary(arrow) or types.is_binary_view(arrow)
    return "bytes" if is_bytes else str(arrow)


def _may_change(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether Arrow's own cast changes some values without a word."""
    types = pa.types
    if source == target:
        return False
    if types.is_floating(source):
        is_narrower = types.is_floating(target) and target.bit_width < source.bit_width
        return bool(is_narrower or types.is_decimal(target))
    if types.is_decimal(source):
        return bool(types.is_floating(target))
    is_day = types.is_date(target) or types.is_string(target)
    return bool((types.is_timestamp(source) or types.is_date(source)) and is_day)


def _is_list(arrow: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_list(arrow) or types.is_large_list(arrow) or types.is_fixed_size_list(arrow)
    )


def _same_values(array: pa.Array, target: pa.DataType) -> pa.Array:
    """:raises pa.ArrowException: for a value that would change."""
    source = array.type
    if pa.types.is_integer(source) and pa.types.is_decimal(target):
        # room for any number first: Arrow looks at the type here, not at the values
        array = array.cast(pa.decimal256(20 + target.scale, target.scale))
    if pa.types.is_decimal(source) and pa.types.is_floating(target):
        converted = _as_real(array, target)
    else:
        converted = array.cast(target)
    if _may_change(source, target):
        is_back = pa.types.is_decimal(target)
        back = _as_real(converted, source) if is_back else converted.cast(source)
        differs = pc.not_equal(array, back)
        if pa.types.is_floating(source):
            differs = pc.and_(differs, pc.invert(pc.is_nan(array)))
        if pc.any(differs).as_py():
            raise pa.ArrowInvalid("the value would change")
    return converted


def _as_real(decimals: pa.Array, target: pa.DataType) -> pa.Array:
    """Decimals as the nearest floating-point numbers: Arrow's own cast makes 0.07 another one."""
    kind = decimals.type
    if len(decimals) and pa.types.is_decimal128(kind) and kind.scale <= _EXACT_POWER:
        bounds = pc.min_max(decimals).as_py().values()
        if all(abs(bound or Decimal()).scaleb(kind.scale) < _EXACT_WHOLE for bound in bounds):
            start, end = decimals.offset, decimals.offset + len(decimals)
            valid, halves = decimals.buffers()
            reals = np.zeros(end)
            units = np.frombuffer(halves, "<i8")[2 * start : 2 * end : 2]  # the low ones
            reals[start:] = units / 10.0**kind.scale
            buffers, nulls = [valid, pa.py_buffer(reals)], decimals.null_count
            found = pa.Array.from_buffers(pa.float64(), len(decimals), buffers, nulls, start)
            return found.cast(target, safe=False)
    return decimals.cast(pa.string()).cast(pa.float64()).cast(target, safe=False)


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
        shown = f"no value ({because.decode()})" if because else "no value"
        return f"column {field.name}: expected {type_text(field)}, found {shown}"
    shown = shortened(value) if isinstance(value, str | bytes) else str(value)[:_SHOWN_CHARACTERS]
    form = _form(field, value)
    form = f"; {form}" if form else ""
    return f"column {field.name}: expected {type_text(field)}, found {shown}{form}"


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
        if length and isinstance(value, str):
            return f"write up to {length.decode()} characters"
        return "use UTF-8"
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
    form = f"2024-05-01T{time}Z" if _is_instant(field) else f"2024-05-01 {time}"
    return f"write it as {form}{_RANGE if kind.unit == 'ns' else ''}"
