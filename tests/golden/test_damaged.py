"""Real bytes, changed in places or cut: a clear error or other values, never anything worse."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.errors import CorruptRecord, SchemaNotExist
from sluice.formats.kv_batch import parse_kv_batch
from sluice.formats.log_batch import change_types, decode_log_batch, iter_batches
from sluice.formats.row_arrays import COMPACTED, decode_rows
from sluice.formats.row_log import parse_row_log_batch
from sluice.formats.types import arrow_schema
from sluice.formats.value_batch import decode_values, values_of
from tests.golden import tables
from tests.golden.files import DATA, read

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


READERS: dict[str, Callable[[bytes], None]] = {
    "log/nullable_none.log": log,
    "log/nullable_zstd.log": log,
    "log/nullable_lz4_frame.log": log,
    "changelog/keyed_arrow_lz4_frame.log": changelog,
    "changelog/keyed_compacted_none.log": row_log,
    "kv/limit_scan.values": values,
    "kv/put_0.kv": kv,
}


@st.composite
def damages(draw: st.DrawFn) -> tuple[list[tuple[float, int]], float]:
    """Places (as part of the length) with new bytes; more of them near the start, and a cut."""
    place = st.one_of(st.floats(0, 1, exclude_max=True), st.floats(0, 0.1))
    changed = draw(st.lists(st.tuples(place, st.integers(0, 255)), max_size=4))
    return changed, draw(st.one_of(st.just(1.0), st.floats(0, 1)))


@pytest.mark.parametrize("name", READERS)
@given(damages())
def test_damaged_bytes(name: str, damage: tuple[list[tuple[float, int]], float]) -> None:
    content = bytearray(read(name))
    changed, cut = damage
    for place, byte in changed:
        content[int(place * len(content))] = byte
    try:
        READERS[name](bytes(content[: int(cut * len(content))]))
    except CorruptRecord as error:
        assert str(error)


def test_undamaged_bytes_are_read() -> None:
    for name, reader in READERS.items():
        assert (DATA / name).stat().st_size
        reader(read(name))
