"""Tells from the bounds of a column whether a data file can have one of some keys.

Bounds are in Iceberg's binary form of single values (Iceberg's table specification, appendix D).
"""

from __future__ import annotations

import bisect
import decimal
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

Bounds = Sequence[tuple[bytes | None, bytes | None]]
"""Lower and upper bound of each key column; None: not known."""
_DIGITS = decimal.Context(prec=38)
"""Python's own context would round to 28 digits."""


class KeyBounds:
    """The keys of a look-up, sorted by each column. Immutable."""

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        """:param columns: the key columns, without nulls."""
        self._columns = [_Sorted(column) for column in columns]

    def may_be_in(self, bounds: Bounds) -> bool:
        """Whether a file with these bounds may have one of the keys."""
        return all(
            column.any_between(_decoded(low, column.type), _decoded(high, column.type))
            for column, (low, high) in zip(self._columns, bounds, strict=False)
        )

    def may_be_between(self, lowest: Sequence[Any], highest: Sequence[Any]) -> bool:
        """The same for Parquet's raw values: integers, booleans and bytes; None: not known."""
        return all(
            column.any_between(_of_parquet(low, column.type), _of_parquet(high, column.type))
            for column, low, high in zip(self._columns, lowest, highest, strict=True)
        )


class _Sorted:
    """The values of one column in ascending order."""

    def __init__(self, column: pa.Array) -> None:
        self.type = column.type
        self._values = column.take(pc.sort_indices(column))

    def any_between(self, low: Any, high: Any) -> bool:
        """Whether a value is between these two, inclusive; None: without that limit."""
        place = 0 if low is None else bisect.bisect_left(_Comparable(self._values), low)
        if place == len(self._values):
            return False
        return high is None or bool(_comparable(self._values[place]) <= high)


class _Comparable(Sequence[Any]):
    """The values of an array in a form that Python compares as Iceberg does."""

    def __init__(self, values: pa.Array) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, place: Any) -> Any:
        return _comparable(self._values[place])


def _comparable(scalar: pa.Scalar) -> Any:
    """Integers for numbers, dates and times; bytes for text and bytes."""
    kind = scalar.type
    if pa.types.is_decimal(kind):
        return int(scalar.as_py().scaleb(kind.scale, _DIGITS))
    if pa.types.is_temporal(kind):
        return scalar.value
    value = scalar.as_py()
    return value.encode() if isinstance(value, str) else value


def _decoded(bound: bytes | None, kind: pa.DataType) -> Any:
    if bound is None or pa.types.is_string(kind) or pa.types.is_binary(kind):
        return bound
    return int.from_bytes(bound, "big" if pa.types.is_decimal(kind) else "little", signed=True)


def _of_parquet(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_decimal(kind) and isinstance(value, bytes):
        return int.from_bytes(value, "big", signed=True)
    return value
