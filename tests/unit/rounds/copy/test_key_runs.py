"""Runs of equal keys, where hashes collide: chance never shows that."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from sluice.errors import CorruptRecord
from sluice.rounds.copy.key_hashes import KeyColumns
from sluice.rounds.copy.key_runs import KeySet, find_runs

SCHEMA = pa.schema([("k", pa.string())])


class WeakHashes(KeyColumns):
    """A hash with few values for the first seeds."""

    def __init__(self, weak_seeds: int, values: int = 3) -> None:
        super().__init__(SCHEMA, ["k"])
        self.weak_seeds, self.values = weak_seeds, values

    def hashes(self, columns: Sequence[pa.Array], seed: int = 0) -> np.ndarray:
        found = super().hashes(columns, seed)
        return found % np.uint64(self.values) if seed < self.weak_seeds else found


def ends(key: KeyColumns, keys: list[str], seed: int = 0) -> dict[str, tuple[int, int]]:
    blocks = [[pa.array(keys[:3], pa.string())], [pa.array(keys[3:], pa.string())]]
    runs = find_runs(key, blocks, [key.hashes(block, seed) for block in blocks], seed)
    assert (np.diff(runs.hashes) > 0).all()
    pairs = zip(runs.first.tolist(), runs.last.tolist(), strict=True)
    return {keys[first]: (first, last) for first, last in pairs}


KEYS = ["a", "b", "a", "c", "d", "b", "e", "f", "a", "g"]
ENDS = {"a": (0, 8), "b": (1, 5), "c": (3, 3), "d": (4, 4), "e": (6, 6), "f": (7, 7), "g": (9, 9)}


@pytest.mark.parametrize("weak_seeds", [0, 1, 7])
def test_keys_with_equal_hashes_are_hashed_anew(weak_seeds: int) -> None:
    assert ends(WeakHashes(weak_seeds), KEYS) == ENDS


def test_keys_that_collide_for_ever_are_an_error() -> None:
    with pytest.raises(
        CorruptRecord, match="key k: different keys have equal hashes with 8 different seeds"
    ):
        ends(WeakHashes(100), KEYS)


def test_one_key_needs_no_good_hash() -> None:
    assert ends(WeakHashes(100), ["a"] * 6) == {"a": (0, 5)}


def test_hashes_that_differ_only_in_their_low_bits_are_told_apart() -> None:
    """Places take these bits while the hashes are sorted."""
    key = KeyColumns(pa.schema([("k", pa.int64())]), ["k"])
    hashes = np.array([5, 4, 5, 7, 4, 6, 2**63, 7], np.uint64)
    runs = find_runs(key, [], [hashes[:3], hashes[3:]], 0)
    assert runs.hashes.tolist() == [4, 5, 6, 7, 2**63]
    assert runs.first.tolist() == [1, 0, 5, 3, 6]
    assert runs.last.tolist() == [4, 2, 5, 7, 6]


@pytest.mark.parametrize("weak_seeds", [0, 1])
def test_a_row_with_the_hash_of_a_key_but_another_key_is_not_in_the_set(weak_seeds: int) -> None:
    key = WeakHashes(weak_seeds)
    column = [pa.array(["a", "a"])]
    runs = find_runs(key, [column], [key.hashes(column)], 0)
    rows = pa.record_batch([pa.array(["b", "a", "c", "d", "a", ""])], schema=SCHEMA)
    assert runs.seed == 0
    assert KeySet(key, runs).has(rows).tolist() == [False, True, False, False, True, False]


def test_hashes_do_not_depend_on_where_a_value_lies() -> None:
    """Slices, the end of a buffer, neighbours of other lengths, bytes beyond a short value."""
    texts = ["", "a", "ab", "abcdefg", "abcdefgh", "abcdefghi", "x" * 200, "x" * 201, "\0", "\0\0"]
    key = KeyColumns(SCHEMA, ["k"])
    together = pa.array([*texts, "tail"])
    whole = key.hashes([together]).tolist()
    assert len(set(whole)) == len(whole)
    for i, text in enumerate(texts):
        assert key.hashes([pa.array([text])]).tolist() == [whole[i]]
        assert key.hashes([together.slice(i, 2)]).tolist() == whole[i : i + 2]


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.bool_(), pa.int32(), pa.float64(), pa.binary(3), pa.decimal128(9, 1)]
)
def test_hashes_of_slices_of_fixed_width(kind: pa.DataType) -> None:
    numbers = pa.array([0, 1, 1, 0, 1, 0, 0, 1, 1])
    if pa.types.is_decimal(kind):
        values = numbers.cast(pa.decimal128(20, 1)).cast(kind)
    elif pa.types.is_fixed_size_binary(kind):
        values = pa.array([bytes([n, 0, 9]) for n in numbers.to_pylist()], kind)
    else:
        values = numbers.cast(kind)
    key = KeyColumns(pa.schema([("k", kind)]), ["k"])
    whole = key.hashes([values])
    assert (whole == whole[:2][numbers.to_numpy()]).all()
    assert key.hashes([values.slice(3, 4)]).tolist() == whole[3:7].tolist()
    assert len(set(whole.tolist())) == 2


def test_columns_count_in_their_order() -> None:
    key = KeyColumns(pa.schema([("a", pa.int64()), ("b", pa.int64())]), ["a", "b"])
    hashes = key.hashes([pa.array([1, 2, 1, 0]), pa.array([2, 1, 1, 0])])
    assert len(set(hashes.tolist())) == 4
    assert (key.hashes([pa.array([1]), pa.array([2])], seed=1) != hashes[0]).all()
