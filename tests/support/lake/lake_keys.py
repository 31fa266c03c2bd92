"""Keys of every type that a primary key may have, as plain values and as the lake stores them.

A plain value is a bool, an int (of a DECIMAL its unscaled number, of a date or time what Arrow
stores), a str or bytes: Python compares these as Iceberg orders the column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Context, Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from sluice.rounds.values.lake_files import LiveFile

FIELD_ID = b"PARQUET:field_id"
_EXACT = Context(prec=76)
_DAYS = st.one_of(st.integers(-800_000, 3_000_000), st.integers(-(2**31), 2**31 - 1))
_MICROS = st.one_of(st.integers(-(10**15), 10**16), st.integers(-(2**63), 2**63 - 1))
_STEMS = (
    "",
    "a",
    "order-00000000000",
    "größe-größe-größe",
    "日本語日本語日本語日本語日本語日",
    "\U0001f600" * 9,
)
_TEXT = st.one_of(
    st.text(max_size=40),
    st.builds("{}{}".format, st.sampled_from(_STEMS), st.text("ab\0\x7f\uffff\U0010ffff")),
)
_BYTES = st.one_of(
    st.binary(max_size=40),
    st.builds(lambda n, end: b"\xff" * n + end, st.integers(0, 20), st.binary(max_size=2)),
)


@dataclass(frozen=True)
class KeyKind:
    """A type of Fluss, the lake's Arrow type for it, and values."""

    arrow: pa.DataType
    values: st.SearchStrategy[Any]
    bits: int = 0
    """Of integers and what is stored as one."""

    def array(self, values: Sequence[Any]) -> pa.Array:
        """Plain values as the lake's column."""
        if pa.types.is_decimal(self.arrow):
            scale = -self.arrow.scale
            return pa.array([Decimal(v).scaleb(scale, _EXACT) for v in values], self.arrow)
        if pa.types.is_temporal(self.arrow):
            return pa.array(values, pa.int32() if self.bits == 32 else pa.int64()).view(self.arrow)
        return pa.array(values, self.arrow)


KINDS = {
    "BOOLEAN": KeyKind(pa.bool_(), st.booleans(), 8),
    "TINYINT": KeyKind(pa.int32(), st.integers(-128, 127), 32),
    "SMALLINT": KeyKind(pa.int32(), st.integers(-(2**15), 2**15 - 1), 32),
    "INT": KeyKind(pa.int32(), st.integers(-(2**31), 2**31 - 1), 32),
    "BIGINT": KeyKind(pa.int64(), st.integers(-(2**63), 2**63 - 1), 64),
    "DECIMAL(9, 2)": KeyKind(pa.decimal128(9, 2), st.integers(-(10**9) + 1, 10**9 - 1)),
    "DECIMAL(38, 10)": KeyKind(pa.decimal128(38, 10), st.integers(-(10**38) + 1, 10**38 - 1)),
    "CHAR": KeyKind(pa.string(), st.text(max_size=3)),
    "STRING": KeyKind(pa.string(), _TEXT),
    "BINARY": KeyKind(pa.binary(), st.binary(min_size=2, max_size=2)),
    "BYTES": KeyKind(pa.binary(), _BYTES),
    "DATE": KeyKind(pa.date32(), _DAYS, 32),
    "TIME": KeyKind(pa.time64("us"), st.integers(0, 86_399_999_999), 64),
    "TIMESTAMP": KeyKind(pa.timestamp("us"), _MICROS, 64),
    "TIMESTAMP_LTZ": KeyKind(pa.timestamp("us", "UTC"), _MICROS, 64),
}

EDGES: dict[str, list[Any]] = {
    "BOOLEAN": [False, True],
    "TINYINT": [-128, -1, 0, 127],
    "SMALLINT": [-(2**15), 0, 2**15 - 1],
    "INT": [-(2**31), -1, 0, 2**31 - 1],
    "BIGINT": [-(2**63), -1, 0, 2**63 - 1],
    "DECIMAL(9, 2)": [-(10**9) + 1, -1, 0, 10**9 - 1],
    "DECIMAL(38, 10)": [-(10**38) + 1, -1, 0, 10**30 + 1, 10**38 - 1],
    "CHAR": ["", "abc", "ßüö"],
    "STRING": [
        "",
        "\0",
        "a",
        "x" * 16,
        "x" * 17,
        "größe",
        "日本語",
        "\U0001f600" * 20,
        "y" * 3_000,
    ],
    "BINARY": [b"\x00\x00", b"ab", b"\xff\xff"],
    "BYTES": [b"", b"\x00", b"\xff" * 16, b"\xff" * 17, b"z" * 3_000],
    "DATE": [-800_000, 0, 20_000, 2_932_896, 5_000_000],
    "TIME": [0, 1, 86_399_999_999],
    "TIMESTAMP": [-(2**62), -1, 0, 253_402_300_799_999_999, 300_000_000_000_000_000],
    "TIMESTAMP_LTZ": [-(2**62), -1, 0, 253_402_300_799_999_999, 300_000_000_000_000_000],
}
"""The ends of each type's range, what does not fit its bounds, dates that Python cannot name."""


def key_schema(kinds: Sequence[str], prefix: str = "k") -> pa.Schema:
    """Key columns k0, k1, ... with the field ids 10, 11, ..."""
    return pa.schema(
        [
            pa.field(f"{prefix}{i}", KINDS[kind].arrow, False, {FIELD_ID: str(10 + i)})
            for i, kind in enumerate(kinds)
        ]
    )


def key_table(kinds: Sequence[str], keys: Sequence[tuple[Any, ...]]) -> pa.Table:
    """Keys as a table with that schema."""
    columns = [KINDS[kind].array([key[i] for key in keys]) for i, kind in enumerate(kinds)]
    return pa.Table.from_arrays(columns, schema=key_schema(kinds))


def bounds_of(kind: str, values: Sequence[Any]) -> tuple[bytes | None, bytes | None]:
    """The bounds that Iceberg stores for a column: text and bytes are cut at 16."""
    low, high = min(values), max(values)
    if isinstance(low, str):
        end = _next_text(high)
        return low[:16].encode(), None if end is None else end.encode()
    if isinstance(low, bytes):
        return low[:16], _next_bytes(high)
    return _number(kind, low), _number(kind, high)


def data_file(
    path: Path, kinds: Sequence[str], keys: Sequence[tuple[Any, ...]], **options: Any
) -> LiveFile:
    """Writes a data file with these keys and a column beside them; options are of pyarrow."""
    table = key_table(kinds, keys)
    beside = pa.field("n", pa.int64(), True, {FIELD_ID: "1"})
    table = table.add_column(0, beside, pa.array(range(len(keys)), pa.int64()))
    pq.write_table(table, path, **{"store_schema": False, **options})
    return live_file(path, kinds, keys)


def live_file(path: Path, kinds: Sequence[str], keys: Sequence[tuple[Any, ...]]) -> LiveFile:
    """What the lake's metadata says of a file with these keys."""
    bounds = [bounds_of(kind, [key[i] for key in keys]) for i, kind in enumerate(kinds)]
    return LiveFile(str(path), len(keys), path.stat().st_size, 10 * len(keys), tuple(bounds))


@contextmanager
def folder_in_memory() -> Iterator[Path]:
    """For many small files: a disk would take its time to sync each of them."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


def _number(kind: str, value: int) -> bytes:
    bits = KINDS[kind].bits
    if bits:
        return int(value).to_bytes(bits // 8, "little", signed=True)
    length = (max(value, -value - 1).bit_length() + 8) // 8
    return value.to_bytes(length, "big", signed=True)


def _next_text(value: str) -> str | None:
    """The smallest text of 16 characters that is above all that begin with these; or the text."""
    if len(value) <= 16:
        return value
    for end in range(15, -1, -1):
        code = ord(value[end]) + 1
        code = 0xE000 if 0xD800 <= code <= 0xDFFF else code
        if code <= 0x10FFFF:
            return value[:end] + chr(code)
    return None


def _next_bytes(value: bytes) -> bytes | None:
    if len(value) <= 16:
        return value
    for end in range(15, -1, -1):
        if value[end] < 0xFF:
            return value[:end] + bytes([value[end] + 1])
    return None
