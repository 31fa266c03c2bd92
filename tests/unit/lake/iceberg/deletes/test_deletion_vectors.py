"""Deletion vectors as bytes: every kind of position there and back, and damage."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from sluice.errors import LakeFileUnreadable
from sluice.lake.iceberg.deletes.deletion_vectors import (
    POSITION_MAX,
    DeletionVector,
    write_vectors,
)
from tests.support.lake.iceberg_vectors import vectors_in

WHERE = "s3://lake/x.puffin, offset 4"
Positions = npt.NDArray[np.int64]


def positions(*values: int) -> Positions:
    return np.array(values, np.int64)


@st.composite
def many_positions(draw: st.DrawFn) -> Positions:
    """Runs, strides and single positions around the borders of containers and keys, any order."""
    border = st.sampled_from([0, 1 << 16, 5 << 16, 1 << 31, 1 << 32, 3 << 32, 1 << 45])
    stretch = st.tuples(border, st.integers(-80, 80), st.integers(1, 150), st.integers(1, 3_000))
    parts = [
        np.arange(count, dtype=np.int64) * step + at + by
        for at, by, count, step in draw(st.lists(stretch, max_size=5))
    ]
    found = np.concatenate([*parts, np.empty(0, np.int64)])
    found = found[found >= 0]
    return np.random.default_rng(draw(st.integers(0, 9))).permutation(found)


@given(many_positions())
def test_positions_there_and_back(given_: Positions) -> None:
    expected = sorted(set(given_.tolist()))
    vector = DeletionVector.of(given_)
    read = DeletionVector.from_blob(vector.to_blob(), WHERE, len(expected))
    assert read == vector
    assert read.positions().tolist() == expected
    assert read.positions().dtype == np.int64
    assert read.cardinality == len(expected)
    assert read.last == (expected[-1] if expected else None)


def test_the_bytes_of_a_small_vector() -> None:
    """Written down by hand, from the specifications of Puffin and of Roaring bitmaps."""
    array_of_3_and_9 = "3a300000 01000000 0000 0100 10000000 0300 0900"
    body = bytes.fromhex(f"d1d33964 0100000000000000 00000000 {array_of_3_and_9}")
    expected = struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))
    assert DeletionVector.of(positions(9, 3, 9)).to_blob() == expected


def test_no_positions() -> None:
    empty = DeletionVector.of(positions())
    assert (empty.cardinality, empty.last) == (0, None)
    read = DeletionVector.from_blob(empty.to_blob(), WHERE, 0)
    assert read.positions().shape == (0,)


def test_runs_take_few_bytes() -> None:
    vector = DeletionVector.of(np.arange(1_000_000))
    assert len(vector.to_blob()) < 300


def test_billions_of_positions_cost_nothing_until_they_are_asked_for() -> None:
    full = BitMap.flip(BitMap(), 0, 1 << 32).serialize()
    blob = sealed(struct.pack("<QI", 1, 0) + full)
    assert len(blob) < 1 << 20
    vector = DeletionVector.from_blob(blob, WHERE)
    assert (vector.cardinality, vector.last) == (1 << 32, (1 << 32) - 1)
    with pytest.raises(LakeFileUnreadable, match="4294967296 positions, the manifest says 3"):
        DeletionVector.from_blob(blob, WHERE, 3)


@pytest.mark.parametrize("kind", ["u1", "<i4", ">i8", "<u8"])
def test_integers_of_any_type(kind: str) -> None:
    strided = np.array([7, 0, 200, 0, 3, 0], kind)[::2]
    assert DeletionVector.of(strided).positions().tolist() == [3, 7, 200]


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_the_largest_position(dtype: type[np.integer]) -> None:
    vector = DeletionVector.of(np.array([POSITION_MAX], dtype))
    assert DeletionVector.from_blob(vector.to_blob(), WHERE).last == POSITION_MAX
    with pytest.raises(ValueError, match=f"to {POSITION_MAX + 1}: Iceberg allows 0 to "):
        DeletionVector.of(np.array([0, POSITION_MAX + 1], dtype))


@pytest.mark.parametrize(
    "wrong",
    [positions(4, -1), np.array([2**63 + 5], np.uint64), np.array([1.0]), positions(1, 2)[None]],
    ids=["negative", "above 63 bits", "float", "two dimensions"],
)
def test_what_is_no_position_is_refused(wrong: npt.NDArray) -> None:
    with pytest.raises(ValueError, match=r"positions (from -|of shape)"):
        DeletionVector.of(wrong)


BLOB = DeletionVector.of(np.concatenate([np.arange(90), positions(1 << 20, 1 << 33)])).to_blob()


def test_every_changed_byte_is_found() -> None:
    for at in range(len(BLOB)):
        changed = bytearray(BLOB)
        changed[at] ^= 1 << at % 8
        with pytest.raises(LakeFileUnreadable, match=r"x\.puffin, offset 4 cannot be read"):
            DeletionVector.from_blob(bytes(changed), WHERE)


def test_every_cut_and_each_byte_too_many_is_found() -> None:
    for size in range(len(BLOB)):
        with pytest.raises(LakeFileUnreadable, match=r"bytes"):
            DeletionVector.from_blob(BLOB[:size], WHERE)
    with pytest.raises(LakeFileUnreadable, match=f"states {len(BLOB) - 8} bytes and has"):
        DeletionVector.from_blob(BLOB + b"\0", WHERE)


def sealed(bitmap: bytes, magic: str = "d1d33964") -> bytes:
    """A blob with a right length and checksum."""
    body = bytes.fromhex(magic) + bitmap
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


THREE = BitMap([1, 2, 3]).serialize()


@pytest.mark.parametrize(
    ("bitmap", "told"),
    [
        (b"", "12 bytes are too few"),
        (bytes(7), "19 bytes are too few"),
        (struct.pack("<QI", 2, 0) + THREE, "bitmap is invalid"),
        (struct.pack("<QI", 1 << 40, 0) + THREE, "bitmap is invalid"),
        (struct.pack("<QI", 2, 0) + THREE + struct.pack("<I", 0) + THREE, "bitmap is invalid"),
        (struct.pack("<QI", 1, 1 << 31) + THREE, "position 9223372036854775811 is above"),
        (struct.pack("<QI", 1, (1 << 31) - 1) + THREE, f"is above {POSITION_MAX}"),
    ],
    ids=[
        "none",
        "no count",
        "cut",
        "too many keys",
        "a key twice",
        "negative",
        "above Iceberg's maximum",
    ],
)
def test_an_invalid_bitmap_with_a_right_checksum(bitmap: bytes, told: str) -> None:
    with pytest.raises(LakeFileUnreadable, match=told):
        DeletionVector.from_blob(sealed(bitmap), WHERE)


def test_another_magic_with_a_right_checksum() -> None:
    with pytest.raises(LakeFileUnreadable, match="begins with 0x6439d3d1, not 0xd1d33964"):
        DeletionVector.from_blob(sealed(struct.pack("<QI", 1, 0) + THREE, "6439d3d1"), WHERE)


CHANGES = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=4)


@given(many_positions(), CHANGES, st.floats(0, 1))
def test_a_damaged_bitmap_with_a_right_checksum_is_refused_or_other_positions(
    of: Positions, changes: list[tuple[float, int]], cut: float
) -> None:
    """pyroaring before 1.0.1 crashes here."""
    bitmap = bytearray(DeletionVector.of(of).to_blob()[8:-4])
    for place, byte in changes:
        bitmap[int(place * len(bitmap))] = byte
    try:
        read = DeletionVector.from_blob(sealed(bytes(bitmap[: int(cut * 2 * len(bitmap))])), WHERE)
    except LakeFileUnreadable:
        return
    assert read.last is None or read.last <= POSITION_MAX
    assert DeletionVector.from_blob(read.to_blob(), WHERE, read.cardinality) == read
    if read.cardinality < 1_000_000:
        assert DeletionVector.of(read.positions()) == read


def test_a_file_of_vectors() -> None:
    rows = {f"s3://lake/größe {k}.parquet": np.arange(k, 40 * k, k) for k in range(1, 102)}
    vectors = {path: DeletionVector.of(at) for path, at in rows.items()}
    file = write_vectors(vectors)
    assert [stored.data_file for stored in file.vectors] == list(rows)
    for stored in file.vectors:
        blob = memoryview(file.content)[stored.offset : stored.offset + stored.size_bytes]
        read = DeletionVector.from_blob(blob, WHERE, stored.cardinality)
        assert read.positions().tolist() == rows[stored.data_file].tolist()
    assert vectors_in(file.content) == file.vectors


def test_no_file_without_vectors_and_no_vector_without_positions() -> None:
    with pytest.raises(ValueError, match="no deletion vector to write"):
        write_vectors({})
    with pytest.raises(ValueError, match=r"of a\.parquet has no position"):
        write_vectors({"a.parquet": DeletionVector.of(positions())})
