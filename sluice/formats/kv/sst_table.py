"""Reads RocksDB's SST files in the block-based format: footer, properties, index and blocks.

Supported are format versions 2 to 6 with a plain index and without a dictionary, which is RocksDB's
default. Everything else raises ``UnreadableStore``. The caller reads the bytes; the checksum of
every block is checked before its content is used.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from sluice.formats.kv.rocksdb_manifest import Cursor, UnreadableStore, masked_crc
from sluice.formats.rows.column_memory import load_kernels

FOOTER_SIZE = 53
BLOCK_TRAILER = 5
"""Bytes after a block that its size does not count: type of compression and checksum."""

_MAGIC = bytes.fromhex("f7cff485b741e288")
_CONTEXT_MAGIC = bytes.fromhex("3e007a00")
_VERSION_WITH_CONTEXT = 6
_CRC32C, _XXH3 = 1, 4
_U32 = struct.Struct("<I")
_HASH_INDEX = 1 << 31
_BLOCK_MAX = 1 << 30
_NONE, _SNAPPY, _ZLIB, _ZSTD = 0, 1, 2, 7
_LZ4 = (4, 5)
_CODECS = {_SNAPPY: "snappy", **dict.fromkeys(_LZ4, "lz4_raw"), _ZSTD: "zstd"}
_UNREADABLE = (b"rocksdb.range_del", b"rocksdb.compression_dict", b"rocksdb.external_sst_file")

_SECRET = np.frombuffer(
    bytes.fromhex(
        "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
        "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
        "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
        "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
        "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
        "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
    ),
    np.uint8,
)
"""XXH3's default secret."""


@dataclass(frozen=True, slots=True)
class Handle:
    """Position of a block in its file; ``size`` excludes the trailer."""

    start: int
    size: int

    @property
    def end(self) -> int:
        return self.start + self.size + BLOCK_TRAILER


@dataclass(frozen=True, slots=True)
class Footer:
    """The footer at the end of a file."""

    checksum: int
    base: int
    """The base that checksums are mixed with, in addition to their position; 0 for neither."""
    metaindex: Handle
    index: Handle | None
    """None if the metaindex has its position."""


@dataclass(frozen=True, slots=True)
class Properties:
    """The properties of a file's content."""

    entries: int
    index_deltas: bool
    """Whether its index holds differences between the sizes of blocks."""


def read_footer(tail: bytes, file_size: int) -> Footer:
    """``tail``: the last bytes of the file, at least ``FOOTER_SIZE`` if it has so many.

    :raises UnreadableStore: the version is not supported, or the footer is damaged.
    """
    footer = tail[-FOOTER_SIZE:]
    if len(footer) != FOOTER_SIZE or not footer.endswith(_MAGIC):
        raise UnreadableStore("the SST file has no footer")
    kind, version = footer[0], _U32.unpack_from(footer, FOOTER_SIZE - 12)[0]
    if kind not in (_CRC32C, _XXH3) or not 2 <= version <= _VERSION_WITH_CONTEXT:
        raise UnreadableStore(
            f"format version {version} with checksums of type {kind} is not supported"
        )
    start = file_size - FOOTER_SIZE
    if version < _VERSION_WITH_CONTEXT:
        cursor = Cursor(footer[1:])
        metaindex = Handle(cursor.number(), cursor.number())
        index = Handle(cursor.number(), cursor.number())
        _check_handle(metaindex, start)
        _check_handle(index, start)
        return Footer(kind, 0, metaindex, index)
    if footer[1:5] != _CONTEXT_MAGIC:
        raise UnreadableStore("the footer of version 6 is not valid")
    checksum, base, size = struct.unpack_from("<III", footer, 5)
    metaindex = Handle(start - BLOCK_TRAILER - size, size)
    _check_handle(metaindex, start)
    found = Footer(kind, base, metaindex, None)
    # its own checksum counts as zero in the computation
    block = footer[:5] + bytes(4) + footer[9:] + _U32.pack(checksum)
    check_blocks(found, block, np.zeros(1, np.int64), np.array([FOOTER_SIZE - 1]), start)
    return found


def _check_handle(handle: Handle, end: int) -> None:
    if handle.start < 0 or handle.size > _BLOCK_MAX or handle.end > end:
        raise UnreadableStore(f"the position {handle.start} of a block is not valid")


def check_blocks(
    footer: Footer, data: bytes, starts: np.ndarray, sizes: np.ndarray, origin: int
) -> None:
    """Checks blocks by their checksums.

    :param data: a part of the file, from position ``origin`` on.
    :param starts: positions of blocks in ``data``, int64; they and their trailers are within it.
    :param sizes: without trailers, int64.
    :raises UnreadableStore: a block is damaged.
    """
    if footer.checksum == _XXH3:
        content = np.frombuffer(data, np.uint8)
        good = load_kernels().check_xxh3(
            content, starts, sizes, len(starts), origin, footer.base, _SECRET
        )
    else:
        good = _count_good(footer, memoryview(data), starts.tolist(), sizes.tolist(), origin)
    if good < len(starts):
        raise UnreadableStore(f"the block at {origin + int(starts[good])} is damaged")


def _count_good(
    footer: Footer, view: memoryview, starts: list[int], sizes: list[int], origin: int
) -> int:
    for block, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        end = start + size + 1
        crc = masked_crc(view[start:end])
        if footer.base:
            position = origin + start
            crc += footer.base ^ ((position + (position >> 32)) & 0xFFFFFFFF)
        if _U32.unpack_from(view, end)[0] != crc & 0xFFFFFFFF:
            return block
    return len(starts)


def read_block(footer: Footer, data: bytes, handle: Handle) -> pa.Buffer:
    """One block, checked and uncompressed; ``data`` is the block with its trailer.

    :raises UnreadableStore: the block is damaged, or its compression is not supported.
    """
    if len(data) != handle.size + BLOCK_TRAILER:
        raise UnreadableStore("a block is truncated")
    starts, sizes = np.zeros(1, np.int64), np.array([handle.size], np.int64)
    check_blocks(footer, data, starts, sizes, handle.start)
    [block] = uncompress(data, starts, sizes)
    return block


def uncompress(
    data: bytes, starts: np.ndarray, sizes: np.ndarray, most_bytes: int = _BLOCK_MAX
) -> list[pa.Buffer]:
    """Uncompresses blocks; blocks that were not compressed share the memory of ``data``.

    Returns fewer blocks than requested if more would exceed ``most_bytes``, but at least one.

    :param starts: positions of blocks in ``data``, int64; they and their trailers are within it.
    :param sizes: without trailers, int64.
    :raises UnreadableStore: the compression of a block is not supported, or it is damaged.
    """
    content = np.frombuffer(data, np.uint8)
    kinds = content[starts + sizes]
    wholes, heads = _uncompressed_sizes(content, starts)
    plain = kinds == _NONE
    wholes = np.where(plain, sizes, wholes)
    heads[plain | (kinds == _SNAPPY)] = 0  # snappy's own format starts with the size
    if (heads > sizes).any() or (wholes > _BLOCK_MAX).any():
        raise UnreadableStore("the uncompressed size of a block is not valid")
    count = max(int(np.searchsorted(np.cumsum(wholes), most_bytes, "right")), 1)
    parts = (starts + heads, sizes - heads, kinds, wholes)
    _check_lz4(content, *(part[:count] for part in parts))
    blocks = pa.py_buffer(data)
    codecs = _decompressors()
    try:
        return [
            codecs[kind](blocks.slice(start, size), wanted)
            for start, size, kind, wanted in zip(*(p[:count].tolist() for p in parts), strict=True)
        ]
    except KeyError as error:
        raise UnreadableStore(f"a block has the unsupported compression type {error}") from error
    except (pa.ArrowException, OSError, ValueError, zlib.error) as error:
        raise UnreadableStore(f"a block cannot be uncompressed: {error}") from error


def _check_lz4(
    content: np.ndarray,
    starts: np.ndarray,
    sizes: np.ndarray,
    kinds: np.ndarray,
    wholes: np.ndarray,
) -> None:
    """Refuses LZ4 blocks that do not become as many bytes as they say.

    pyarrow's codec takes a shorter block for a complete one: the rest of the buffer that it returns
    is memory of this process.
    """
    mine = np.flatnonzero(np.isin(kinds, _LZ4))
    found = starts[mine], sizes[mine], wholes[mine]
    good = load_kernels().check_lz4(content, *found, len(mine)) if len(mine) else 0
    if good < len(mine):
        whole = int(found[2][good])
        raise UnreadableStore(
            f"a block cannot be uncompressed: its size is not the declared {whole} bytes"
        )


def _uncompressed_sizes(content: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sizes at the start of compressed blocks, and the bytes that each of them takes."""
    values, lengths = np.zeros(len(starts), np.int64), np.zeros(len(starts), np.int64)
    more = np.ones(len(starts), bool)
    for at in range(5):  # a block's trailer has as many bytes: all of these exist
        found = content[starts + at].astype(np.int64)
        values += np.where(more, found & 0x7F, 0) << (7 * at)
        lengths += more
        more &= found >= 0x80
    lengths[more] = _BLOCK_MAX
    return values, lengths


@lru_cache(maxsize=1)
def _decompressors() -> dict[int, Callable[[pa.Buffer, int], pa.Buffer]]:
    """Functions that uncompress a block to ``size`` bytes, by the type in its trailer."""

    def inflated(block: pa.Buffer, size: int) -> pa.Buffer:
        stream = zlib.decompressobj(-15)
        content = stream.decompress(block, size + 1)  # limits the growth of a short block
        if len(content) != size or not stream.eof:
            raise ValueError(f"its size is not the declared {size} bytes")
        return pa.py_buffer(content)

    codecs = {kind: pa.Codec(name).decompress for kind, name in _CODECS.items()}
    return {**codecs, _NONE: lambda block, _: block, _ZLIB: inflated}


def metadata(block: pa.Buffer) -> Iterator[tuple[bytes, bytes]]:
    """Names and values of a block that describes its file, which are few.

    :raises UnreadableStore: the block is not valid.
    """
    cursor = Cursor(memoryview(block)[: _entries_size(block)].tobytes())
    name = b""
    while cursor:
        shared, own, size = cursor.number(), cursor.number(), cursor.number()
        name = name[:shared] + cursor.take(own)
        yield name, cursor.take(size)


def _entries_size(block: pa.Buffer) -> int:
    """Bytes of a block before the restart positions and their count."""
    if block.size >= _U32.size:
        [restarts] = _U32.unpack_from(block, block.size - _U32.size)
        size = block.size - _U32.size * (restarts + 1)
        if restarts < _HASH_INDEX and size >= 0:
            return size
    raise UnreadableStore("the end of a block is not valid")


def find_parts(footer: Footer, metaindex: pa.Buffer, file_size: int) -> tuple[Handle, Handle]:
    """Returns the positions of index and properties.

    :raises UnreadableStore: one is missing, or the file has unsupported parts.
    """
    handles = {}
    for name, value in metadata(metaindex):
        if name in _UNREADABLE:
            raise UnreadableStore(f"the SST file has the unsupported part {name.decode()}")
        cursor = Cursor(value)
        handles[name] = Handle(cursor.number(), cursor.number())
    index = footer.index or handles.get(b"rocksdb.index")
    properties = handles.get(b"rocksdb.properties")
    if index is None or properties is None:
        raise UnreadableStore("the SST file has no index or no properties")
    _check_handle(index, file_size)
    _check_handle(properties, file_size)
    return index, properties


def read_properties(block: pa.Buffer) -> Properties:
    """:raises UnreadableStore: there are entries other than puts and deletes, or a two-level
    index."""
    found = dict(metadata(block))

    def number(name: bytes, default: int | None = None) -> int:
        value = found.get(b"rocksdb." + name)
        if value is None and default is not None:
            return default
        return Cursor(value or b"").number()

    if found.get(b"rocksdb.block.based.table.index.type") != bytes(4):
        raise UnreadableStore("the type of the SST file's index is not supported")
    if found.get(b"rocksdb.comparator") != b"leveldb.BytewiseComparator":
        raise UnreadableStore("the comparator of the SST file is not supported")
    for name in (b"merge.operands", b"num.range-deletions"):
        if number(name, 0):
            raise UnreadableStore(
                f"the SST file has the unsupported property rocksdb.{name.decode()}"
            )
    for name in found:
        if name.startswith(b"rocksdb.external_sst_file."):
            raise UnreadableStore("the SST file was ingested, not written by its store")
    return Properties(number(b"num.entries"), bool(number(b"index.value.is.delta.encoded", 0)))


def read_index(block: pa.Buffer, properties: Properties, end: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions and sizes (int64, without trailers) of a file's data blocks, in its order.

    :param end: the end of the file's last possible block.
    :raises UnreadableStore: the index is not valid.
    """
    size = _entries_size(block)
    capacity = size // 3 + 1  # an entry has three bytes at least
    starts, sizes = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    count = load_kernels().read_index(
        block, size, int(properties.index_deltas), starts, sizes, capacity
    )
    if count < 0:
        raise UnreadableStore("the index of the SST file is damaged")
    starts, sizes = starts[:count].copy(), sizes[:count].copy()
    ends = starts + sizes + BLOCK_TRAILER
    if count and (ends[-1] > end or sizes.max() > _BLOCK_MAX or (starts[1:] < ends[:-1]).any()):
        raise UnreadableStore("the index of the SST file has block positions that are not valid")
    return starts, sizes
