"""Tables of several kinds, the rows that are written to them, and what is left of these."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa

from sluice.formats.types.types import arrow_schema
from sluice.model import Column, DataType, RowField, Schema, TableDescriptor, TypeRoot
from sluice.model import types as t
from tests.support.tables.keyed_stock import DUE

Row = dict[str, Any]
Values = dict[str, tuple[DataType, Sequence[Any]]]
BUCKETS = 2
STEP = 12
"""New rows of a step."""
LATE = 2 * STEP
"""The first id that may be in the partition ``wed``."""
_NOON = dt.datetime(2026, 3, 1, 12, 30, 15, 123456)
_OLD = dt.datetime(1901, 2, 3, 4, 5, 6, 789000)


def _stamps(unit_us: int) -> list[dt.datetime | None]:
    return [
        one.replace(microsecond=one.microsecond // unit_us * unit_us) for one in (_NOON, _OLD)
    ] + [None]


FEW: Values = {
    "name": (t.STRING, ["pen", "", None, "größe", "x" * 40]),
    "n": (t.INT, [0, -(2**31), None, 2**31 - 1]),
}
EVERY: Values = {
    "c_boolean": (t.BOOLEAN, [True, None, False]),
    "c_tinyint": (t.TINYINT, [-128, None, 127]),
    "c_smallint": (t.SMALLINT, [-(2**15), 2**15 - 1, None]),
    "c_int": (t.INT, [-(2**31), 2**31 - 1, None]),
    "c_bigint": (t.BIGINT, [-(2**63), None, 2**63 - 1]),
    "c_float": (t.FLOAT, [1.5, -0.25, None]),
    "c_double": (t.DOUBLE, [1e300, None, -2.5]),
    "c_char": (t.char(3), ["abc", "ä", None]),
    "c_string": (t.STRING, ["", "zürich 漢字", None]),
    "c_binary": (t.binary(2), [b"\x00\x01", None, b"ab"]),
    "c_bytes": (t.BYTES, [b"", b"\xff" * 5, None]),
    "c_decimal_5": (t.decimal(5, 2), [Decimal("-999.99"), None, Decimal("0.01")]),
    "c_decimal_38": (t.decimal(38, 10), [Decimal("9" * 28 + ".0123456789"), None]),
    "c_date": (t.DATE, [dt.date(1969, 12, 31), None, dt.date(2026, 3, 1)]),
    "c_time": (t.time(3), [dt.time(23, 59, 58, 999000), None, dt.time(0)]),
    "c_timestamp_0": (t.timestamp(0), _stamps(1_000_000)),
    "c_timestamp_3": (t.timestamp(3), _stamps(1_000)),
    "c_timestamp_6": (t.timestamp(6), _stamps(1)),
    "c_timestamp_9": (t.timestamp(9), _stamps(1)),
    "c_ltz_3": (t.timestamp_ltz(3), _stamps(1_000)),
    "c_ltz_6": (t.timestamp_ltz(6), _stamps(1)),
    "c_not_null": (t.INT.not_null(), [7, 8]),
}
"""A column of every type that has no others inside."""


def _row(**fields: DataType) -> DataType:
    return DataType(TypeRoot.ROW, fields=tuple(RowField(n, kind) for n, kind in fields.items()))


def _array(element: DataType) -> DataType:
    return DataType(TypeRoot.ARRAY, element=element)


NESTED: Values = {
    "many": (_array(t.INT), [[1, None, 3], [], None]),
    "named": (
        DataType(TypeRoot.MAP, key=t.STRING.not_null(), value=t.BIGINT),
        [[("a", 5), ("b", None)], None, []],
    ),
    "place": (
        _row(x=t.SMALLINT, inside=_row(y=t.STRING, tags=_array(t.STRING))),
        [{"x": 7, "inside": {"y": "z", "tags": ["u", None]}}, None, {"x": None, "inside": None}],
    ),
    "parts": (
        _array(_row(sku=t.STRING, price=t.decimal(9, 2))),
        [[{"sku": "a", "price": Decimal("1.20")}, None], [], None],
    ),
}


@dataclass(frozen=True)
class Kind:
    """A kind of table; its rows have an id, and values that follow from it."""

    values: Values
    is_keyed: bool = False
    is_partitioned: bool = False
    has_bucket_key: bool = False

    @property
    def types(self) -> dict[str, DataType]:
        """The type of each column, in order."""
        day = {"day": t.STRING.not_null()} if self.is_partitioned else {}
        return {**day, "id": t.BIGINT.not_null(), **{n: one[0] for n, one in self.values.items()}}

    @property
    def key(self) -> tuple[str, ...]:
        """The primary key; empty for a log table."""
        return (("day", "id") if self.is_partitioned else ("id",)) if self.is_keyed else ()

    @property
    def arrow(self) -> pa.Schema:
        """The columns as they are in the log."""
        return arrow_schema(self._schema())

    def descriptor(self, properties: Mapping[str, str]) -> TableDescriptor:
        """The table, due whenever one asks."""
        return TableDescriptor(
            self._schema(),
            partition_keys=("day",) if self.is_partitioned else (),
            bucket_keys=("id",) if self.is_keyed or self.has_bucket_key else (),
            bucket_count=BUCKETS,
            properties={**DUE, **properties},
        )

    def without(self, name: str) -> Kind:
        """The same without a column, if there is one."""
        if name not in self.values:
            return self
        return replace(self, values={n: one for n, one in self.values.items() if n != name})

    def row(self, number: int, change: int = 0) -> Row:
        """The row of an id after so many changes."""
        found: Row = {"day": day_of(number)} if self.is_partitioned else {}
        found["id"] = number
        for place, (name, (_, some)) in enumerate(self.values.items()):
            found[name] = some[(number + place + change) % len(some)]
        return found

    def table(self, rows: Sequence[Row]) -> pa.Table:
        """Rows as a writer takes them."""
        return pa.Table.from_pylist(rows, schema=self.arrow)

    def _schema(self) -> Schema:
        columns = tuple(Column(n, kind, i) for i, (n, kind) in enumerate(self.types.items()))
        return Schema(columns, self.key, len(columns) - 1)


def day_of(number: int) -> str:
    """The partition of an id."""
    if number >= LATE and number % 3 == 0:
        return "wed"
    return ("mon", "a_b-2")[number % 2]


KINDS = {
    "log": Kind(FEW),
    "partitioned log": Kind(FEW, is_partitioned=True),
    "log of all types": Kind(EVERY, has_bucket_key=True),
    "nested log": Kind(NESTED),
    "keyed": Kind(FEW, is_keyed=True),
    "partitioned keyed": Kind(FEW, is_keyed=True, is_partitioned=True),
    "keyed of all types": Kind(EVERY, is_keyed=True),
    "nested keyed": Kind(NESTED, is_keyed=True),
}


@dataclass
class Replay:
    """What a table holds, by what was acknowledged of it."""

    kind: Kind
    log: list[Row] = field(default_factory=list)
    """Of a log table: every row."""
    by_id: dict[int, Row] = field(default_factory=dict)
    """Of a keyed table: each id is in one partition only."""

    def put(self, rows: Iterable[Row]) -> None:
        for row in rows:
            if self.kind.is_keyed:
                self.by_id[row["id"]] = row
            else:
                self.log.append(row)

    def delete(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.by_id.pop(number, None)

    def lose(self, numbers: Iterable[int]) -> None:
        """Rows of a log table that a user has given up."""
        gone = set(numbers)
        self.log = [row for row in self.log if row["id"] not in gone]

    def rows(self) -> list[Row]:
        """In no order."""
        return [*self.log, *self.by_id.values()]

    def assert_equal(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """These rows, without other columns, are those of the table."""
        own = [{name: row[name] for name in self.kind.types} for row in rows]
        found, wanted = Counter(map(_plain, own)), Counter(map(_plain, self.rows()))
        assert found == wanted, {"lacks": wanted - found, "has also": found - wanted}


def _plain(value: Any) -> Any:
    """A value that can be hashed, in one spelling of those that readers give it."""
    if isinstance(value, Mapping):
        return tuple(sorted((name, _plain(one)) for name, one in value.items()))
    if isinstance(value, list):
        found = tuple(_plain(one) for one in value)
        is_map = bool(value) and all(isinstance(one, tuple) for one in value)
        return tuple(sorted(found)) if is_map else found
    if isinstance(value, tuple):
        return tuple(_plain(one) for one in value)
    if isinstance(value, dt.datetime):  # of a zone, which is always UTC
        return value.replace(tzinfo=None)
    return bytes(value) if isinstance(value, bytearray) else value
