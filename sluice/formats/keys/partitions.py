"""Finds the partition of each row, by the text of its partition keys.

See docs/fluss/messages.md#partition-names
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pyarrow as pa

from sluice.errors import InvalidTable, PartitionSpecInvalid, UnsupportedType
from sluice.formats.rows import field_bytes
from sluice.model import DataType, TableInfo, TypeRoot

_VALUE = re.compile(r"(?!__)[A-Za-z0-9_-]{1,200}")


def partition_values(
    batch: pa.RecordBatch, info: TableInfo
) -> list[tuple[tuple[str, ...], np.ndarray]]:
    """Returns the partitions of a batch by first appearance, each with the indices of its rows.

    Values are in the order of the partition keys, indices are ascending (int64). Without partition
    keys all rows form one group, ``()``.

    :raises PartitionSpecInvalid: a value is null, or cannot be part of a partition name.
    :raises UnsupportedType: the type of a column is not supported in partition keys.
    """
    rows = batch.num_rows
    if not rows:
        return []
    codes = np.zeros(rows, np.int64)
    texts: list[list[str]] = []
    firsts = np.zeros(1, np.int64)
    column_codes = []
    for name in info.descriptor.partition_keys:
        column_code, column_texts = _texts(batch, name, info)
        texts.append(column_texts)
        column_codes.append(column_code)
        _, firsts, codes = np.unique(
            codes * len(column_texts) + column_code, return_index=True, return_inverse=True
        )
    order = np.argsort(codes, kind="stable")
    groups = np.split(order, np.cumsum(np.bincount(codes))[:-1])
    return [
        (tuple(text[code[first]] for text, code in zip(texts, column_codes, strict=True)), group)
        for first, group in sorted(zip(firsts.tolist(), groups, strict=True), key=_by_first)
    ]


def check_partition_value(key: str, value: str) -> None:
    """:raises PartitionSpecInvalid: if the value cannot be part of a partition's name."""
    if not _VALUE.fullmatch(value):
        raise PartitionSpecInvalid(
            f"partition key {key!r} has the value {value[:200]!r}: use 1 to 200 letters, digits,"
            " '_' and '-', not beginning with '__'"
        )


def _by_first(item: tuple[int, np.ndarray]) -> int:
    return item[0]


def _texts(batch: pa.RecordBatch, name: str, info: TableInfo) -> tuple[np.ndarray, list[str]]:
    """A code for each row, and the text of each code."""
    position = batch.schema.get_field_index(name)
    if position < 0:
        raise InvalidTable(
            f"partition key column {name!r} is missing from the data: {batch.schema.names}"
        )
    array = batch.column(position)
    if array.null_count:
        raise PartitionSpecInvalid(
            f"partition key column {name!r} has {array.null_count} nulls, which are not allowed"
        )
    encoded = array.dictionary_encode()
    texts = value_texts(encoded.dictionary, info.schema.column(name).data_type, name)
    for text in texts:
        check_partition_value(name, text)
    return encoded.indices.to_numpy().astype(np.int64), texts


def value_texts(values: pa.Array, data_type: DataType, name: str) -> list[str]:
    """The text of each value as Fluss writes it into a partition's name; no nulls.

    :raises UnsupportedType: DECIMAL and nested types have no such text.
    """
    writer = _TEXTS.get(data_type.root)
    if writer is None:
        raise UnsupportedType(
            f"column {name!r}: type {data_type} is not supported in a partition key"
        )
    return writer(values)


def java_text(value: float, *, single: bool) -> str:
    """A number as Java's ``Float.toString`` or ``Double.toString`` (shortest digits) writes it."""
    if value == 0:
        return "-0.0" if np.signbit(value) else "0.0"
    shortest = Decimal(str(np.float32(value)) if single else repr(float(value)))
    sign, digits, exponent = shortest.as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).rstrip("0") or "0"
    point = len(digits) + exponent  # the value is 0.text * 10**point
    minus = "-" if sign else ""
    if -3 < point <= 7:
        if point <= 0:
            return f"{minus}0.{'0' * -point}{text}"
        text = text.ljust(point, "0")
        return f"{minus}{text[:point]}.{text[point:] or '0'}"
    return f"{minus}{text[0]}.{text[1:] or '0'}E{point - 1}"


def _plain(values: pa.Array) -> list[str]:
    return [str(value) for value in values.to_pylist()]


def _boolean(values: pa.Array) -> list[str]:
    return ["true" if value else "false" for value in values.to_pylist()]


def _hex(values: pa.Array) -> list[str]:
    return [value.hex() for value in values.to_pylist()]


def _date(values: pa.Array) -> list[str]:
    days = field_bytes.numbers(values).astype("datetime64[D]")
    return np.datetime_as_string(days).tolist()


def _time(values: pa.Array) -> list[str]:
    texts = []
    for millis in field_bytes.millis_of_day(values).tolist():
        seconds, milli = divmod(millis, 1000)
        minutes, second = divmod(seconds, 60)
        hour, minute = divmod(minutes, 60)
        texts.append(f"{hour:02d}-{minute:02d}-{second:02d}_{milli:03d}")
    return texts


def _timestamp(values: pa.Array) -> list[str]:
    millis, nanos = field_bytes.epoch_millis(values)
    texts = []
    for milli, nano in zip(millis.tolist(), nanos.tolist(), strict=True):
        second, rest = divmod(milli, 1000)
        text = np.datetime_as_string(np.datetime64(second, "s"))
        fraction = f"{rest * 1_000_000 + nano:09d}".rstrip("0")
        texts.append(f"{text.replace('T', '-').replace(':', '-')}_{fraction}")
    return texts


def _float(values: pa.Array) -> list[str]:
    single = values.type == pa.float32()
    return [_float_text(value, single) for value in values.to_pylist()]


def _float_text(value: float, single: bool) -> str:
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    return java_text(value, single=single).replace(".", "_")


_TEXTS: dict[TypeRoot, Callable[[pa.Array], list[str]]] = {
    TypeRoot.CHAR: _plain,
    TypeRoot.STRING: _plain,
    TypeRoot.BOOLEAN: _boolean,
    TypeRoot.TINYINT: _plain,
    TypeRoot.SMALLINT: _plain,
    TypeRoot.INT: _plain,
    TypeRoot.BIGINT: _plain,
    TypeRoot.BINARY: _hex,
    TypeRoot.BYTES: _hex,
    TypeRoot.DATE: _date,
    TypeRoot.TIME: _time,
    TypeRoot.TIMESTAMP: _timestamp,
    TypeRoot.TIMESTAMP_LTZ: _timestamp,
    TypeRoot.FLOAT: _float,
    TypeRoot.DOUBLE: _float,
}
