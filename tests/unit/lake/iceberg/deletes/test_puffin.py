"""Puffin files as bytes: what is written is read, and damaged footers are refused."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.errors import LakeFileUnreadable
from sluice.lake.iceberg.deletes.puffin import (
    TAIL_BYTES,
    Blob,
    Footer,
    NewBlob,
    footer_bytes,
    read_footer,
    write_puffin,
)

BLOBS = [NewBlob("sketch", (1, 7), b"12345", {"größe": "3"}), NewBlob("other", (), b"", {})]
CONTENT, PLACED = write_puffin(BLOBS, "Sluice 1")
SIZE = len(CONTENT)
WHERE = "s3://lake/x.puffin"


def test_the_bytes_of_a_file() -> None:
    assert CONTENT[:13] == b"PFA112345PFA1"
    assert CONTENT[-12:] == struct.pack("<i", SIZE - 13 - 12) + bytes(4) + b"PFA1"
    assert "größe".encode() in CONTENT
    common = {"snapshot-id": -1, "sequence-number": -1}
    sketch = {"type": "sketch", "fields": [1, 7], "offset": 4, "length": 5, **common}
    other = {"type": "other", "fields": [], "offset": 9, "length": 0, **common, "properties": {}}
    assert json.loads(CONTENT[13:-12]) == {
        "blobs": [{**sketch, "properties": {"größe": "3"}}, other],
        "properties": {"created-by": "Sluice 1"},
    }


def test_what_is_written_is_read() -> None:
    sketch = Blob("sketch", (1, 7), 4, 5, {"größe": "3"})
    assert list(PLACED) == [sketch, Blob("other", (), 9, 0, {})]
    assert read_footer(CONTENT, SIZE, WHERE) == Footer(PLACED, {"created-by": "Sluice 1"})
    empty, _ = write_puffin([], "x")
    assert read_footer(empty, len(empty), WHERE) == Footer((), {"created-by": "x"})


def test_the_end_of_a_file_suffices() -> None:
    size = footer_bytes(CONTENT[-TAIL_BYTES:], SIZE, WHERE)
    assert size == SIZE - 9
    assert read_footer(CONTENT[-size:], SIZE, WHERE).blobs == PLACED
    with pytest.raises(ValueError, match=f"has {size} bytes, and {size - 1} were read"):
        read_footer(CONTENT[1 - size :], SIZE, WHERE)


def test_a_file_that_was_cut_anywhere() -> None:
    for size in range(SIZE):
        with pytest.raises(LakeFileUnreadable, match=r"s3://lake/x\.puffin cannot be read"):
            read_footer(CONTENT[:size], size, WHERE)


@pytest.mark.parametrize(
    ("tail", "told"),
    [
        (struct.pack("<i4s4s", SIZE, bytes(4), b"PFA1"), f"a footer of {SIZE} bytes is not within"),
        (struct.pack("<i4s4s", -1, bytes(4), b"PFA1"), "a footer of -1 bytes is not within"),
        (struct.pack("<i4s4s", SIZE - 26, bytes(4), b"PFA1"), "footer begins with 0x4641317b"),
        (struct.pack("<i4s4s", SIZE - 25, b"\1\0\0\0", b"PFA1"), "flags are 0x01000000: "),
        (struct.pack("<i4s4s", SIZE - 25, bytes(4), b"PAR1"), "ends with 0x50415231"),
    ],
)
def test_a_damaged_tail(tail: bytes, told: str) -> None:
    with pytest.raises(LakeFileUnreadable, match=told):
        read_footer(CONTENT[:-12] + tail, SIZE, WHERE)


def described(**changed: Any) -> dict[str, Any]:
    blob = {"type": "t", "fields": [1], "snapshot-id": -1, "sequence-number": -1}
    blob |= {"offset": 4, "length": 5, **changed}
    return {"blobs": [{name: value for name, value in blob.items() if value is not ...}]}


def with_payload(payload: bytes) -> bytes:
    tail = struct.pack("<i4s4s", len(payload), bytes(4), b"PFA1")
    return b"PFA112345PFA1" + payload + tail


def test_what_a_footer_may_leave_out() -> None:
    content = with_payload(json.dumps(described(properties=None, more=3)).encode())
    assert read_footer(content, len(content), WHERE) == Footer((Blob("t", (1,), 4, 5, {}),), {})
    zipped = described(**{"compression-codec": "zstd", "snapshot-id": 8, "sequence-number": 2})
    content = with_payload(json.dumps(zipped).encode())
    [blob] = read_footer(content, len(content), WHERE).blobs
    assert (blob.codec, blob.snapshot_id, blob.sequence_number) == ("zstd", 8, 2)


WRONG: dict[str, list[Any]] = {
    "offset": [3, 5, 4.0, True, None],
    "length": [-1, 6, ...],
    "type": [7, ...],
    "fields": [["1"], [True], 1, ...],
    "snapshot-id": [None, ...],
    "sequence-number": ["1"],
    "compression-codec": [1],
    "properties": [[], {"a": 1}],
}
"""Values that a blob's description may not have; ``...``: it is missing."""


@pytest.mark.parametrize(
    "stored",
    [
        *({}, [], {"blobs": {}}, {"blobs": [3]}, {"blobs": [], "properties": {"a": 1}}),
        *(described(**{name: value}) for name, values in WRONG.items() for value in values),
    ],
    ids=str,
)
def test_a_footer_that_is_not_as_puffin_demands(stored: Any) -> None:
    content = with_payload(json.dumps(stored).encode())
    with pytest.raises(LakeFileUnreadable, match="not as Puffin demands"):
        read_footer(content, len(content), WHERE)


@pytest.mark.parametrize("payload", [b"", b"{", b"\xff\xff", b"[" * 100_000, b"1" * 10_000])
def test_a_footer_that_is_no_json(payload: bytes) -> None:
    content = with_payload(payload)
    with pytest.raises(LakeFileUnreadable, match="not as Puffin demands"):
        read_footer(content, len(content), WHERE)


@given(st.lists(st.tuples(st.integers(0, SIZE - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_changed_bytes_lead_to_an_error_or_another_footer(changes: list[tuple[int, int]]) -> None:
    content = bytearray(CONTENT)
    for at, byte in changes:
        content[at] = byte
    try:
        footer = read_footer(bytes(content), SIZE, WHERE)
    except LakeFileUnreadable:
        return
    for blob in footer.blobs:
        assert 4 <= blob.offset <= blob.offset + blob.size_bytes <= SIZE
