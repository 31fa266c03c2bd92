"""Real bytes, changed in places or cut: a clear error or other values, never anything worse."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.errors import CorruptRecord, SchemaNotExist
from sluice.formats.kv.kv_batch import parse_kv_batch
from sluice.formats.kv.value_batch import decode_values, values_of
from sluice.formats.log.batch import change_types, crc32c, decode_log_batch, iter_batches
from sluice.formats.log.row_log import parse_row_log_batch
from sluice.formats.rows.arrays import COMPACTED, decode_rows
from sluice.formats.types.types import arrow_schema
from tests.golden import tables
from tests.golden.files import DATA, read
from tests.support.programs.arrow_memory import all_given_back

NULLABLE, KEYED = arrow_schema(tables.NULLABLE), arrow_schema(tables.KEYED)
TYPES = [column.data_type for column in tables.KEYED.columns]


def log(content: bytes) -> None:
    for header, view in iter_batches(content):
        decode_log_batch(view, header, NULLABLE)


def changelog(content: bytes) -> None:
    for header, view in iter_batches(content):
        change_types(view, header)
        decode_log_batch(view, header, KEYED)


def row_log(content: bytes) -> None:
    for header, view in iter_batches(content):
        decode_rows(parse_row_log_batch(view, header).rows, TYPES, COMPACTED)


def values(content: bytes) -> None:
    with contextlib.suppress(SchemaNotExist):
        decode_values(values_of(content), {1: tables.KEYED}, tables.KEYED, COMPACTED)


def kv(content: bytes) -> None:
    decode_rows(parse_kv_batch(content).rows, TYPES, COMPACTED)


def resealed_kv(content: bytes) -> None:
    """With the length and the checksum of what there is: the damage reaches keys and rows."""
    batch = bytearray(content)
    if len(batch) > KV_HEAD_BYTES:
        struct.pack_into("<ibI", batch, 0, len(batch) - 4, 0, crc32c(batch[KV_HEAD_BYTES:]))
    kv(bytes(batch))


def resealed_values(content: bytes) -> None:
    batch = bytearray(content)
    if len(batch) > KV_HEAD_BYTES:
        struct.pack_into("<ib", batch, 0, len(batch) - 4, 0)
    values(bytes(batch))


def rows(content: bytes) -> None:
    """Each piece of the bytes as a row, so that none is refused for the framing around it."""
    pieces = [content[at : at + 150] for at in range(0, len(content), 150)]
    decode_rows(pa.array(pieces, pa.binary()), TYPES, COMPACTED)


KV_HEAD_BYTES = 9
READERS: dict[str, Callable[[bytes], None]] = {
    "log/nullable_none.log": log,
    "log/nullable_zstd.log": log,
    "log/nullable_lz4_frame.log": log,
    "changelog/keyed_arrow_lz4_frame.log": changelog,
    "changelog/keyed_compacted_none.log": row_log,
    "kv/limit_scan.values": values,
    "kv/put_0.kv": kv,
}


AS_DAMAGED: list[tuple[str, Callable[[bytes], None]]] = [
    *READERS.items(),
    ("kv/put_0.kv", resealed_kv),
    ("kv/limit_scan.values", resealed_values),
    ("kv/limit_scan.values", rows),
    ("changelog/keyed_compacted_none.log", rows),
]


@st.composite
def damages(draw: st.DrawFn) -> tuple[list[tuple[float, int]], float]:
    """Places (as part of the length) with new bytes; more of them near the start, and a cut."""
    place = st.one_of(st.floats(0, 1, exclude_max=True), st.floats(0, 0.1))
    changed = draw(st.lists(st.tuples(place, st.integers(0, 255)), max_size=4))
    return changed, draw(st.one_of(st.just(1.0), st.floats(0, 1)))


@pytest.mark.parametrize(("name", "reader"), AS_DAMAGED)
@given(damages())
def test_damaged_bytes(
    name: str, reader: Callable[[bytes], None], damage: tuple[list[tuple[float, int]], float]
) -> None:
    content = bytearray(read(name))
    changed, cut = damage
    for place, byte in changed:
        content[int(place * len(content))] = byte
    try:
        reader(bytes(content[: int(cut * len(content))]))
    except CorruptRecord as error:
        assert str(error)


COUNTS = [1 << 16, 1 << 24, 2**31 - 1, -1, -(2**31)]
"""Numbers of records that a batch of some kilobytes cannot have."""


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(
    ("name", "reader", "places"),
    [
        ("log/nullable_zstd.log", log, {28: -1, 44: 0}),
        ("changelog/keyed_arrow_lz4_frame.log", changelog, {28: -1, 44: 0}),
        ("changelog/keyed_compacted_none.log", row_log, {28: -1, 44: 0}),
        ("kv/put_0.kv", resealed_kv, {24: 0}),
        ("kv/limit_scan.values", values, {5: 0}),
    ],
)
def test_a_number_of_records_that_cannot_be_costs_nothing(
    name: str, reader: Callable[[bytes], None], places: dict[int, int], count: int
) -> None:
    content = bytearray(read(name))
    for place, less in places.items():
        struct.pack_into("<I", content, place, (count + less) & 0xFFFFFFFF)
    reader(read(name))  # compiles what is compiled
    with all_given_back():
        tracemalloc.start()
        try:
            with pytest.raises(CorruptRecord):
                reader(bytes(content))
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("reader", [kv, row_log, values, rows])
@given(content=st.binary(max_size=400))
def test_any_bytes(reader: Callable[[bytes], None], content: bytes) -> None:
    with contextlib.suppress(CorruptRecord):
        reader(content)


def test_undamaged_bytes_are_read() -> None:
    for name, reader in READERS.items():
        assert (DATA / name).stat().st_size
        reader(read(name))
