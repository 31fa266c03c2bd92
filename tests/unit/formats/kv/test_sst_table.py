"""Parts of SST files: checksums beside known ones, and bytes that cannot be."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.formats.kv import sst_table as sst
from sluice.formats.kv.rocksdb_manifest import UnreadableStore, live_files, masked_crc
from sluice.formats.rows.column_memory import load_kernels

XXH3 = sst.Footer(4, 0, sst.Handle(0, 0), None)
# the lower halves of XXH3 of so many bytes, as xxhash 0.8 gives them
KNOWN = (
    (1, 0x074EECDB),
    (3, 0x4F40B19C),
    (4, 0xB553FE7E),
    (8, 0xA6CB6952),
    (9, 0x2F430FEF),
    (16, 0xFC3D25FD),
    (17, 0x6A78E347),
    (32, 0x79EBBFBF),
    (33, 0xBB9D1991),
    (64, 0x1A91EE2D),
    (100, 0x99BA93C9),
    (128, 0x2C0D7380),
    (129, 0x055FB150),
    (200, 0x36CB0C43),
    (240, 0x6101B7C7),
    (241, 0x0B821A67),
    (1024, 0x086F73F1),
    (1025, 0x27327C00),
    (4099, 0xAED1FE53),
)


def content(size: int) -> bytes:
    return bytes(i * i % 251 for i in range(size))


@pytest.mark.parametrize(("size", "xxh3"), KNOWN)
def test_blocks_are_checked_by_xxh3(size: int, xxh3: int) -> None:
    block = content(size) + b"\0" + struct.pack("<I", xxh3)
    starts, sizes = np.zeros(1, np.int64), np.array([size], np.int64)
    sst.check_blocks(XXH3, block, starts, sizes, 0)
    for at in (0, size // 2, size, size + 4):
        damaged = bytearray(block)
        damaged[at] ^= 16
        with pytest.raises(UnreadableStore, match="the block at 7 is damaged"):
            sst.check_blocks(XXH3, bytes(damaged), starts, sizes, 7)


@pytest.mark.parametrize("size", [0, 3, 52, 53, 200])
def test_what_is_no_footer_is_told(size: int) -> None:
    with pytest.raises(UnreadableStore):
        sst.read_footer(content(size), size)


@pytest.mark.parametrize(
    "block", [b"", b"\0\0\0", b"\0\0\0\1", b"\xff\xff\xff\xff", b"\1\2\3\1\0\0\0"]
)
def test_blocks_that_cannot_be_are_told(block: bytes) -> None:
    with pytest.raises(UnreadableStore):
        list(sst.metadata(pa.py_buffer(block)))
    with pytest.raises(UnreadableStore):
        sst.read_index(pa.py_buffer(block), sst.Properties(0, False), 100)


@pytest.mark.parametrize(
    "entries", [b"\0\1\2k" + b"\0\x0a", b"\0\1\1k\xff", b"\0\1\2k" + b"\0\x80", b"\x80" * 9]
)
def test_an_index_that_cannot_be_is_told(entries: bytes) -> None:
    block = entries + struct.pack("<II", 0, 1)
    with pytest.raises(UnreadableStore, match="index"):
        sst.read_index(pa.py_buffer(block), sst.Properties(0, False), 10)


@pytest.mark.parametrize("size", [0, 7, 99, 101, 5000])
def test_a_block_is_of_the_size_that_it_says(size: int) -> None:
    deflated = zlib.compress(bytes(100), wbits=-15)

    def block(size: int) -> list[bytes]:
        head = bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])
        data = head + deflated + b"\2" + bytes(4)  # a type, and no checksum that anybody asks for
        starts, sizes = np.zeros(1, np.int64), np.array([len(data) - 5], np.int64)
        return [found.to_pybytes() for found in sst.uncompress(data, starts, sizes)]

    assert block(100) == [bytes(100)]
    with pytest.raises(UnreadableStore, match="a block cannot be uncompressed"):
        block(size)


SIZE = 4_100
CONTENT = bytes(number % 251 for number in range(SIZE))


@pytest.mark.parametrize("kind", [1, 4, 5, 7])
@pytest.mark.parametrize("declared", [SIZE - 1, SIZE, SIZE + 1, 2 * SIZE, 0])
def test_a_forged_size_shows_no_memory(kind: int, declared: int) -> None:
    """LZ4 leaves what it does not fill as it was: memory of the process that reads."""
    name = {1: "snappy", 4: "lz4_raw", 5: "lz4_raw", 7: "zstd"}[kind]
    packed = pa.Codec(name).compress(CONTENT, asbytes=True)
    head = bytes([declared & 127 | 128, declared >> 7])
    own_head = packed[:2] if kind == 1 else b""  # snappy's own size is the declared one
    data = head + packed[len(own_head) :] + bytes([kind]) + bytes(4)
    starts, sizes = np.zeros(1, np.int64), np.array([len(data) - 5], np.int64)
    if declared == SIZE:
        assert [found.to_pybytes() for found in sst.uncompress(data, starts, sizes)] == [CONTENT]
        return
    with pytest.raises(UnreadableStore, match="a block cannot be uncompressed"):
        sst.uncompress(data, starts, sizes)


def record(edit: bytes, kind: int = 1) -> bytes:
    body = bytes([kind]) + edit
    return struct.pack("<IH", masked_crc(body), len(edit)) + body


BYTEWISE = b"\1\x1aleveldb.BytewiseComparator"


def test_a_manifest_may_be_in_pieces() -> None:
    assert live_files(record(BYTEWISE)) == []
    assert (
        live_files(record(BYTEWISE[:3], 2) + record(BYTEWISE[3:9], 3) + record(BYTEWISE[9:], 4))
        == []
    )


def test_no_file_is_newer_than_its_store() -> None:
    file = b"g\0\7\1" + b"\x09a" + bytes(8) + b"\x09b" + bytes(8) + b"\1\5\1"
    [found] = live_files(record(BYTEWISE + b"\4\5" + file))
    assert (found.name, found.smallest, found.largest) == ("000007.sst", b"a", b"b")
    with pytest.raises(UnreadableStore, match="newer"):  # RocksDB would pass over its last rows
        live_files(record(BYTEWISE + b"\4\4" + file))


@pytest.mark.parametrize(
    "manifest",
    [
        b"",
        record(BYTEWISE)[:-1],
        record(BYTEWISE)[:-1] + b"x",
        record(BYTEWISE, 2),
        record(BYTEWISE, 3),
        record(b"\1\1x"),
        record(BYTEWISE + b"\x90\3\0"),  # a blob file
        record(BYTEWISE + b"\xac\2\1"),  # a group of which one edit is missing
        record(BYTEWISE + b"\6\0\5"),  # deletes what is not there
        record(BYTEWISE + b"\x84\x40\1\2\4\1"),  # a log's size, without its own before it
        record(BYTEWISE + b"\x85\x40\0"),  # logs that are gone, in the same old way
    ],
)
def test_other_manifests_are_not_read(manifest: bytes) -> None:
    with pytest.raises(UnreadableStore):
        live_files(manifest)


@given(st.lists(st.binary(max_size=400) | st.binary(max_size=6).map(lambda b: b * 400), max_size=8))
def test_every_lz4_block_has_its_size(parts: list[bytes]) -> None:
    content = b"".join(parts)
    packed = pa.Codec("lz4_raw").compress(content, asbytes=True)
    starts, sizes = np.array([3], np.int64), np.array([len(packed)], np.int64)
    data = np.frombuffer(b"abc" + packed + bytes(5), np.uint8)
    for declared in (len(content), len(content) + 1, max(len(content) - 1, 0)):
        wholes = np.array([declared], np.int64)
        good = load_kernels().check_lz4(data, starts, sizes, wholes, 1)
        assert good == (declared == len(content))


@given(st.binary(max_size=80), st.integers(0, 400))
def test_no_lz4_block_is_read_beyond_its_end(block: bytes, whole: int) -> None:
    """Whatever it says: only its own bytes count."""
    starts, sizes = np.zeros(1, np.int64), np.array([len(block)], np.int64)
    found = {
        load_kernels().check_lz4(
            np.frombuffer(block + after, np.uint8), starts, sizes, np.array([whole], np.int64), 1
        )
        for after in (b"\0", b"\xff" * 300, b"\x10" * 300)
    }
    assert len(found) == 1
