"""Fluss's data types; ``sluice.formats`` converts them to JSON and Arrow.

See docs/fluss/types-and-options.md#data-types
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum


class TypeRoot(Enum):
    """The kind of a type; the value is its name in Fluss's JSON."""

    BOOLEAN = "BOOLEAN"
    TINYINT = "TINYINT"
    SMALLINT = "SMALLINT"
    INT = "INTEGER"
    BIGINT = "BIGINT"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    CHAR = "CHAR"
    STRING = "STRING"
    BINARY = "BINARY"
    BYTES = "BYTES"
    DECIMAL = "DECIMAL"
    DATE = "DATE"
    TIME = "TIME_WITHOUT_TIME_ZONE"
    TIMESTAMP = "TIMESTAMP_WITHOUT_TIME_ZONE"
    TIMESTAMP_LTZ = "TIMESTAMP_WITH_LOCAL_TIME_ZONE"
    ARRAY = "ARRAY"
    MAP = "MAP"
    ROW = "ROW"


@dataclass(frozen=True, slots=True)
class RowField:
    """A field of a ROW type; ``field_id`` is -1 if an old descriptor has none."""

    name: str
    data_type: DataType
    description: str | None = None
    field_id: int = -1


@dataclass(frozen=True, slots=True)
class DataType:
    """A data type; only the attributes of its root are set.

    ``length``: CHAR, BINARY. ``precision``: DECIMAL, TIME, both TIMESTAMPs. ``scale``: DECIMAL.
    ``element``: ARRAY. ``key`` and ``value``: MAP. ``fields``: ROW.
    """

    root: TypeRoot
    nullable: bool = True
    length: int | None = None
    precision: int | None = None
    scale: int | None = None
    element: DataType | None = None
    key: DataType | None = None
    value: DataType | None = None
    fields: tuple[RowField, ...] = ()

    def not_null(self) -> DataType:
        return replace(self, nullable=False)

    def __str__(self) -> str:
        name = self.root.name
        if self.root is TypeRoot.DECIMAL:
            name += f"({self.precision},{self.scale})"
        elif self.length is not None or self.precision is not None:
            name += f"({self.length if self.precision is None else self.precision})"
        elif self.element is not None:
            name += f"<{self.element}>"
        elif self.key is not None:
            name += f"<{self.key}, {self.value}>"
        elif self.fields:
            name += f"<{', '.join(f'{f.name} {f.data_type}' for f in self.fields)}>"
        return name if self.nullable else f"{name} NOT NULL"


BOOLEAN = DataType(TypeRoot.BOOLEAN)
TINYINT = DataType(TypeRoot.TINYINT)
SMALLINT = DataType(TypeRoot.SMALLINT)
INT = DataType(TypeRoot.INT)
BIGINT = DataType(TypeRoot.BIGINT)
FLOAT = DataType(TypeRoot.FLOAT)
DOUBLE = DataType(TypeRoot.DOUBLE)
STRING = DataType(TypeRoot.STRING)
BYTES = DataType(TypeRoot.BYTES)
DATE = DataType(TypeRoot.DATE)


def char(length: int) -> DataType:
    return DataType(TypeRoot.CHAR, length=length)


def binary(length: int) -> DataType:
    return DataType(TypeRoot.BINARY, length=length)


def decimal(precision: int, scale: int) -> DataType:
    return DataType(TypeRoot.DECIMAL, precision=precision, scale=scale)


def time(precision: int = 0) -> DataType:
    return DataType(TypeRoot.TIME, precision=precision)


def timestamp(precision: int = 6) -> DataType:
    return DataType(TypeRoot.TIMESTAMP, precision=precision)


def timestamp_ltz(precision: int = 6) -> DataType:
    return DataType(TypeRoot.TIMESTAMP_LTZ, precision=precision)
