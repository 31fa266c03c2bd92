"""Log batches that a client may send on purpose: changed bytes under a right checksum."""

from __future__ import annotations

import struct

from hypothesis import strategies as st

from sluice.formats.log.batch import LENGTH_OVERHEAD, V0_HEADER_SIZE, crc32c, read_header
from sluice.model import TableBucket
from sluice.server.cluster import EmbeddedCluster

CRC_AT = 21
_INTERESTING = (0, 1, 2, 3, 7, 8, 16, 0x7F, 0x80, 0xFE, 0xFF)
_NUMBERS = (-(2**63), -(2**31), -2, -1, 0, 1, 8, 2**20, 2**31 - 1, 2**31, 2**40, 2**63 - 1)


def sealed_again(content: bytes) -> bytes:
    """The batch (version 0) with the length and the checksum of its present bytes."""
    batch = bytearray(content)
    struct.pack_into("<i", batch, 8, len(batch) - LENGTH_OVERHEAD)
    struct.pack_into("<I", batch, CRC_AT, crc32c(batch[CRC_AT + 4 :]))
    return bytes(batch)


def append_unchecked(cluster: EmbeddedCluster, bucket: TableBucket, batch: bytes) -> int:
    """Stores a batch as a server of an earlier version did; returns its base offset."""
    assert cluster._parts is not None
    table = cluster._parts.catalog.find(bucket.table_id)
    assert table is not None
    return cluster._parts._logs.find(table, bucket).append(read_header(batch), batch)


@st.composite
def forged(draw: st.DrawFn, batch: bytes) -> bytes:
    """A batch with up to four changes behind its checksum: of bytes, numbers, or its length."""
    content = bytearray(batch)
    for _ in range(draw(st.integers(1, 4))):
        # Mostly in the metadata, where few bytes decide everything.
        most = len(content) - 1 if draw(st.booleans()) else min(len(content) - 1, 400)
        at = draw(st.integers(CRC_AT + 4, most))
        kind = draw(st.sampled_from(["byte", "bit", "i32", "i64", "move", "cut", "more"]))
        if kind == "byte":
            content[at] = draw(st.sampled_from(_INTERESTING) | st.integers(0, 255))
        elif kind == "bit":
            content[at] ^= 1 << draw(st.integers(0, 7))
        elif kind in ("i32", "i64"):
            size = 4 if kind == "i32" else 8
            number = draw(st.sampled_from(_NUMBERS) | st.integers(-64, 4096))
            put = (number % 2 ** (8 * size)).to_bytes(size, "little")
            content[at : at + size] = put[: len(content) - at]
        elif kind == "move":
            source = draw(st.integers(V0_HEADER_SIZE, most)) if most > V0_HEADER_SIZE else at
            piece = bytes(content[source : source + draw(st.integers(1, 16))])
            content[at : at + len(piece)] = piece[: len(content) - at]
        elif kind == "cut":
            del content[max(at, V0_HEADER_SIZE) :]
        else:
            content += draw(st.binary(min_size=1, max_size=32))
    return sealed_again(bytes(content))


@st.composite
def changed_bytes(draw: st.DrawFn, content: bytes) -> bytes:
    """Bytes with up to three changes: of a byte or a bit, or of the length."""
    changed = bytearray(content)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(len(changed) - 1, 0)))
        kind = draw(st.sampled_from(["byte", "bit", "cut", "more"]))
        if kind == "cut" or not changed:
            del changed[at:]
        elif kind == "byte":
            changed[at] = draw(st.sampled_from(_INTERESTING) | st.integers(0, 255))
        elif kind == "bit":
            changed[at] ^= 1 << draw(st.integers(0, 7))
        else:
            changed += draw(st.binary(min_size=1, max_size=8))
    return bytes(changed)
