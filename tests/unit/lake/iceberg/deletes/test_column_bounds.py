"""Bounds may exclude a file only if it has none of the keys; held against plain comparisons."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.lake.iceberg.deletes.column_bounds import KeyBounds
from tests.support.lake.lake_keys import EDGES, KINDS, bounds_of

CUT = ("CHAR", "STRING", "BINARY", "BYTES")
"""Kinds whose bounds may be shorter than their values."""


def keys_of(kind: str, *values: Any) -> KeyBounds:
    return KeyBounds([KINDS[kind].array(values)])


def some_values(kind: str, data: st.DataObject) -> tuple[list[Any], list[Any]]:
    """Values of a few keys and of a file: often the same ones."""
    known = data.draw(st.lists(KINDS[kind].values, min_size=1, max_size=5))
    some = st.lists(st.sampled_from(known), min_size=1, max_size=4)
    return data.draw(some), data.draw(some)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25)
@given(data=st.data())
def test_no_file_with_a_key_is_excluded_and_others_are(kind: str, data: st.DataObject) -> None:
    keys, stored = some_values(kind, data)
    found = keys_of(kind, *keys).may_be_in([bounds_of(kind, stored)])
    wanted = any(min(stored) <= key <= max(stored) for key in keys)
    if kind in CUT:
        assert found or not wanted
    else:
        assert found == wanted


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25)
@given(data=st.data())
def test_statistics_of_row_groups_exclude_no_key_either(kind: str, data: st.DataObject) -> None:
    keys, stored = some_values(kind, data)
    sink = pa.BufferOutputStream()
    column = KINDS[kind].array(stored)
    pq.write_table(pa.table({"k": column}), sink, store_decimal_as_integer=data.draw(st.booleans()))
    metadata = pq.read_metadata(pa.BufferReader(sink.getvalue()))
    limits = metadata.row_group(0).column(0).statistics
    found = keys_of(kind, *keys).may_be_between([limits.min_raw], [limits.max_raw])
    assert found == any(min(stored) <= key <= max(stored) for key in keys)


@pytest.mark.parametrize("kind", KINDS)
def test_the_ends_of_a_range_are_in_it(kind: str) -> None:
    edges = sorted(EDGES[kind])
    for value in edges:
        assert keys_of(kind, value).may_be_in([bounds_of(kind, [value])])
        assert keys_of(kind, value).may_be_in([bounds_of(kind, edges)])
    assert not keys_of(kind, edges[0]).may_be_in([bounds_of(kind, edges[1:])])
    if kind not in CUT:
        assert not keys_of(kind, edges[-1]).may_be_in([bounds_of(kind, edges[:-1])])


def test_unknown_bounds_exclude_nothing() -> None:
    bounds = keys_of("INT", 5)
    five, six = bounds_of("INT", [5])[0], bounds_of("INT", [6])[0]
    for known in ([], [(None, None)], [(five, None)], [(None, five)], [(None, six)]):
        assert bounds.may_be_in(known), known
    assert not bounds.may_be_in([(six, None)])
    assert bounds.may_be_between([None], [None])
    assert not bounds.may_be_between([None], [4])


def test_a_column_that_was_an_int_when_the_file_was_written() -> None:
    four_bytes = [bounds_of("INT", [-3, 7])]
    assert keys_of("BIGINT", -3).may_be_in(four_bytes)
    assert keys_of("BIGINT", 7).may_be_in(four_bytes)
    assert not keys_of("BIGINT", -4, 8, 2**40).may_be_in(four_bytes)


def test_the_bounds_of_a_long_text_are_cut_and_the_upper_one_is_rounded_up() -> None:
    stored = ["order-0000000000-1", "order-0000000000-9"]
    assert bounds_of("STRING", stored) == (b"order-0000000000", b"order-0000000001")
    assert keys_of("STRING", *stored).may_be_in([bounds_of("STRING", stored)])
    assert not keys_of("STRING", "order-0000000001-1").may_be_in([bounds_of("STRING", stored)])
    assert bounds_of("STRING", ["\U0010ffff" * 17])[1] is None
    assert keys_of("STRING", "\U0010ffff" * 17).may_be_in(
        [bounds_of("STRING", ["\U0010ffff" * 17])]
    )


def test_texts_are_ordered_by_their_bytes_not_by_utf_16() -> None:
    """U+FFFD comes before U+1F600, whose first half in UTF-16 is smaller."""
    assert keys_of("STRING", "\U0001f600").may_be_in(
        [bounds_of("STRING", ["\ufffd", "\U0001f601"])]
    )
    assert not keys_of("STRING", "\ufffd").may_be_in([bounds_of("STRING", ["\U0001f600"])])


def test_each_column_of_a_key_may_exclude_a_file() -> None:
    bounds = KeyBounds([KINDS["INT"].array([1, 9]), KINDS["STRING"].array(["b", "b"])])
    near, far = bounds_of("INT", [0, 2]), bounds_of("INT", [3, 8])
    texts, others = bounds_of("STRING", ["a", "c"]), bounds_of("STRING", ["c", "d"])
    assert bounds.may_be_in([near, texts])
    assert not bounds.may_be_in([far, texts])
    assert not bounds.may_be_in([near, others])
    assert bounds.may_be_in([near])
    assert not bounds.may_be_in([far])
