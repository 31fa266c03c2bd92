"""Hashes and buckets against docs/fluss/test-vectors.md#hashes-and-buckets"""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.errors import InvalidTable, UnsupportedLakeOption
from sluice.formats.keys.bucketing import (
    bucket_hashes,
    bucket_numbers,
    hash_bytes,
    murmur3_x86_32,
    murmur_int,
    numbered,
)
from sluice.formats.types.types import arrow_schema
from sluice.model import Column, Schema, TableDescriptor, TableInfo, TablePath
from sluice.model.types import BIGINT, INT, STRING

FOX = b"The quick brown fox jumps over the lazy dog"
UUID = b"2bb87d68-baf9-4e64-90f9-f80910419fa6"


def keys(*values: bytes) -> pa.Array:
    return pa.array(values, pa.binary())


@pytest.mark.parametrize(
    ("key", "count", "fluss", "paimon", "iceberg"),
    [
        (b"\x00\x0a", 7, 1, 1, 3),
        (b"\x00\x0a\x0a\x0a", 12, 0, 11, 4),
        (UUID, 16, 6, 12, 12),
        (FOX, 8, 6, 0, 3),
    ],
)
def test_buckets_of_the_docs(key: bytes, count: int, fluss: int, paimon: int, iceberg: int) -> None:
    for lake, bucket in ((None, fluss), ("lance", fluss), ("paimon", paimon), ("ICEBERG", iceberg)):
        assert bucket_numbers(keys(key), count, lake).tolist() == [bucket], lake


def test_hashes_of_the_docs() -> None:
    assert hash_bytes(keys(b"", FOX)).tolist() == [0x087FCD5C, 0x1BC6F880]
    assert murmur3_x86_32(keys(FOX)).tolist() == [0x2E4FF723]
    words = np.array([0, 42, -77], np.int32).view(np.uint32)
    assert murmur_int(words).tolist() == [0x2362F9DE, 0x43A46E1D, 0x2EEB27DE]


def test_derived_iceberg_buckets_of_the_docs() -> None:
    key = keys(bytes.fromhex("2A00000000000000"))
    assert murmur3_x86_32(key).tolist() == [0x6F8F913E]
    assert bucket_numbers(key, 10, "iceberg").tolist() == [6]
    assert bucket_numbers(key, 16, "iceberg").tolist() == [14]
    text = keys(b"Hello Iceberg, Fluss this side!")
    assert bucket_numbers(text, 10, "iceberg").tolist() == [1]


def java_hash(key: bytes, seed: int, *, standard: bool) -> int:
    """The functions of docs/fluss/keys-and-buckets.md#bucketing, one key and step at a time."""
    mask = 0xFFFFFFFF

    def rotate(x: int, bits: int) -> int:
        return (x << bits | x >> (32 - bits)) & mask

    def mix_k(k: int) -> int:
        return rotate(k * 0xCC9E2D51 & mask, 15) * 0x1B873593 & mask

    def mix_h(h: int, k: int) -> int:
        return (rotate(h ^ k, 13) * 5 + 0xE6546B64) & mask

    h, whole = seed, len(key) // 4 * 4
    for i in range(0, whole, 4):
        h = mix_h(h, mix_k(int.from_bytes(key[i : i + 4], "little")))
    if standard:
        h ^= mix_k(int.from_bytes(key[whole:], "little"))
    else:
        for byte in key[whole:]:
            h = mix_h(h, mix_k((byte - 256 if byte > 127 else byte) & mask))
    h ^= len(key)
    h = (h ^ h >> 16) * 0x85EBCA6B & mask
    h = (h ^ h >> 13) * 0xC2B2AE35 & mask
    return h ^ h >> 16


@given(st.lists(st.binary(max_size=40), max_size=60), st.integers(0, 5))
def test_vectorised_hashes_agree_with_the_plain_ones(values: list[bytes], skip: int) -> None:
    array = keys(*values)[skip:]
    values = values[skip:]
    assert hash_bytes(array).tolist() == [java_hash(v, 42, standard=False) for v in values]
    assert murmur3_x86_32(array).tolist() == [java_hash(v, 0, standard=True) for v in values]


def test_one_long_key_among_many_short_ones() -> None:
    values = [b"%d" % i for i in range(100)] + [bytes(range(256)) * 40 + b"xyz"]
    assert hash_bytes(keys(*values)).tolist() == [java_hash(v, 42, standard=False) for v in values]


@given(st.lists(st.binary(min_size=1, max_size=12)), st.integers(1, 4096))
def test_buckets_lie_in_range(values: list[bytes], count: int) -> None:
    for lake in (None, "paimon", "iceberg"):
        buckets = bucket_numbers(keys(*values), count, lake)
        assert buckets.dtype == np.int32
        assert all(0 <= bucket < count for bucket in buckets)


def test_unknown_lakes_and_no_buckets_are_refused() -> None:
    with pytest.raises(UnsupportedLakeOption, match="hudi"):
        bucket_numbers(keys(b"a"), 3, "hudi")
    with pytest.raises(ValueError, match="bucket count 0"):
        bucket_numbers(keys(b"a"), 0, None)


def info(**kwargs: object) -> TableInfo:
    columns = (Column("id", BIGINT, 0), Column("name", STRING, 1), Column("n", INT, 2))
    descriptor = TableDescriptor(Schema(columns), bucket_count=16, **kwargs)  # type: ignore[arg-type]
    return TableInfo(TablePath("db", "t"), 1, 1, descriptor, 0, 0)


def batch(ids: list[int | None]) -> pa.RecordBatch:
    arrays = [pa.array(ids, pa.int64()), pa.array(["x"] * len(ids)), pa.array(range(len(ids)))]
    schema = arrow_schema(info().schema)
    return pa.record_batch([a.cast(f.type) for a, f in zip(arrays, schema, strict=True)], schema)


def test_a_batch_is_bucketed_by_its_tables_key_and_format() -> None:
    iceberg = {"table.datalake.format": "iceberg"}
    table = info(bucket_keys=("id",), properties=iceberg)
    hashes = bucket_hashes(batch([42, 42]), table)
    assert hashes is not None
    assert numbered(hashes, 16).tolist() == [14, 14]
    assert numbered(hashes, 10).tolist() == [6, 6]
    empty = bucket_hashes(batch([]), table)
    assert empty is not None
    assert numbered(empty, 16).tolist() == []
    assert bucket_hashes(batch([42]), info()) is None


def test_the_default_bucket_key_is_the_primary_key_without_partition_keys() -> None:
    columns = (Column("id", BIGINT.not_null(), 0), Column("p", STRING.not_null(), 1))
    properties = {"table.datalake.format": "iceberg"}
    descriptor = TableDescriptor(
        Schema(columns, ("id", "p")), ("p",), bucket_count=16, properties=properties
    )
    table = TableInfo(TablePath("db", "t"), 1, 1, descriptor, 0, 0)
    rows = pa.record_batch([pa.array([42]), pa.array(["a"])], schema=arrow_schema(table.schema))
    hashes = bucket_hashes(rows, table)
    assert hashes is not None
    assert numbered(hashes, 16).tolist() == [14]


def test_a_null_in_the_bucket_key_names_its_column() -> None:
    with pytest.raises(InvalidTable, match="'id'"):
        bucket_hashes(batch([1, None]), info(bucket_keys=("id",)))
