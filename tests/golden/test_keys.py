"""Keys and buckets that pyfluss chose, for each type of key and lake format."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from sluice.formats.keys.bucketing import bucket_numbers
from sluice.formats.keys.keys import encode_key
from tests.golden import tables
from tests.golden.files import read

CASES = json.loads(read("keys.json"))
WORD = 0xFFFFFFFF


def case_id(case: dict[str, Any]) -> str:
    return f"{case['lake_format']}-{'-'.join(case['columns'])}"


def rotate(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & WORD


def mix(word: int) -> int:
    return rotate(word * 0xCC9E2D51 & WORD, 15) * 0x1B873593 & WORD


def finish(word: int) -> int:
    word = (word ^ word >> 16) * 0x85EBCA6B & WORD
    word = (word ^ word >> 13) * 0xC2B2AE35 & WORD
    return word ^ word >> 16


def fluss_bucket(key: bytes, *, signed: bool) -> int:
    """Fluss's own function, one key at a time; ``signed`` says how the bytes after the last whole
    word are taken."""
    whole = len(key) // 4 * 4
    words = [int.from_bytes(key[at : at + 4], "little") for at in range(0, whole, 4)]
    words += [byte - 256 & WORD if signed and byte > 127 else byte for byte in key[whole:]]
    hashed = 42
    for word in words:
        hashed = rotate(hashed ^ mix(word), 13) * 5 + 0xE6546B64 & WORD
    again = rotate(mix(finish(hashed ^ len(key))), 13) * 5 + 0xE6546B64 & WORD
    number = finish(again ^ 4)
    return abs(number - (number >> 31 << 32)) % tables.BUCKETS


def check_buckets(keys: list[bytes], buckets: list[int], lake_format: str | None) -> None:
    """Our buckets are those of pyfluss.

    Without a lake format pyfluss (Rust) takes bytes behind the last whole word as 0 to 255, Fluss
    (Java) as -128 to 127: a key with such a byte above 127 goes to different buckets. Ours are
    Java's, which makes and reads the tables of most users.
    """
    ours = bucket_numbers(pa.array(keys, pa.binary()), tables.BUCKETS, lake_format).tolist()
    if lake_format is None:
        assert buckets == [fluss_bucket(key, signed=False) for key in keys]
        assert ours == [fluss_bucket(key, signed=True) for key in keys]
        plain = [max(key[len(key) // 4 * 4 :], default=0) < 128 for key in keys]
        ours = [bucket for bucket, same in zip(ours, plain, strict=True) if same]
        buckets = [bucket for bucket, same in zip(buckets, plain, strict=True) if same]
    assert ours == buckets


def test_every_kind_of_key_is_there() -> None:
    expected = [
        (lake_format, columns)
        for lake_format in tables.LAKE_FORMATS
        for columns in tables.key_kinds(lake_format)
    ]
    assert [(case["lake_format"], tuple(case["columns"])) for case in CASES] == expected


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_buckets_are_those_of_pyfluss(case: dict[str, Any]) -> None:
    schema, rows = tables.key_rows(tuple(case["columns"]))
    [batch] = rows.to_batches()
    keys = encode_key(batch, case["columns"], schema, case["lake_format"])
    check_buckets(keys.to_pylist(), case["buckets"], case["lake_format"])


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_keys_are_those_of_pyfluss(case: dict[str, Any]) -> None:
    schema, rows = tables.key_rows(tuple(case["columns"]))
    [batch] = tables.for_python(rows).combine_chunks().to_batches()
    keys = encode_key(batch, case["columns"], schema, case["lake_format"]).to_pylist()
    # equal keys are one row to the writer, the last of them
    assert [[key.hex() for key in keys][row] for row, _, _ in case["keys"]] == [
        key for _, key, _ in case["keys"]
    ]
    assert {bytes.fromhex(key) for _, key, _ in case["keys"]} == set(keys)
    buckets = [bucket for _, _, bucket in case["keys"]]
    check_buckets([keys[row] for row, _, _ in case["keys"]], buckets, case["lake_format"])
