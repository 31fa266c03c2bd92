"""Finds the first and the last change of each key by sorting hashes, and tests rows for these keys.

If different keys have equal hashes, which comparing the keys shows, all are hashed with another
seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sluice.errors import CorruptRecord
from sluice.rounds.copy.key_hashes import KeyColumns, same_values

_TRIES = 8
_SLOTS_PER_KEY = 8


@dataclass(frozen=True, slots=True)
class KeyRuns:
    """One entry per key, sorted by hash; positions count all changes from 0."""

    seed: int
    hashes: np.ndarray
    """Ascending and distinct, uint64."""
    first: np.ndarray
    last: np.ndarray
    columns: list[pa.Array]
    """The key of each change; empty if equal hashes mean equal keys."""


def find_runs(
    key: KeyColumns, keys: Sequence[list[pa.Array]], hashes: Sequence[np.ndarray], seed: int
) -> KeyRuns:
    """Finds the runs of equal keys.

    :param keys: the key columns of the changes, block by block.
    :param hashes: the hashes of these keys, with ``seed``.
    :raises CorruptRecord: different keys have equal hashes with every seed.
    """
    whole = np.concatenate(hashes)
    columns: list[pa.Array] = []
    if not key.one_word:
        columns = [pa.concat_arrays(chunks) for chunks in zip(*keys, strict=True)]
    for attempt in range(_TRIES):
        if attempt:
            whole = np.concatenate([key.hashes(block, seed + attempt) for block in keys])
        places, same = _sorted(whole)
        if not columns or _are_keys(columns, places, same):
            begins = np.concatenate(([True], ~same))
            last = places[np.concatenate((begins[1:], [True]))]
            return KeyRuns(seed + attempt, whole[last], places[begins], last, columns)
    raise CorruptRecord(
        f"key {', '.join(key.names)}: different keys have equal hashes with {_TRIES} different"
        " seeds, which does not happen by chance"
    )


def _sorted(hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions sorted by hash, then by position; and which have the same hash as the one
    before.
    """
    count = len(hashes)
    low = np.uint64((1 << max(1, count - 1).bit_length()) - 1)
    packed = hashes & ~low  # hash in the upper bits, position in the lower: one sort of integers
    packed |= np.arange(count, dtype=np.uint64)
    packed.sort()
    places = (packed & low).view(np.int64)
    packed &= ~low
    same = packed[1:] == packed[:-1]
    rows = np.flatnonzero(same)
    if not np.array_equal(hashes[places[rows]], hashes[places[rows + 1]]):
        # hashes differ only in the bits that the position replaced: sort by all bits
        places = np.argsort(hashes, kind="stable")
        ordered = hashes[places]
        same = ordered[1:] == ordered[:-1]
    return places, same


def _are_keys(columns: list[pa.Array], places: np.ndarray, same: np.ndarray) -> bool:
    """Whether neighbours with the same hash have the same key."""
    rows = np.flatnonzero(same)
    left, right = pa.array(places[rows]), pa.array(places[rows + 1])
    equal = same_values([c.take(left) for c in columns], [c.take(right) for c in columns])
    return bool(equal.all())


class KeySet:
    """The set of keys of some runs. Immutable.

    Memory in addition to the runs: 8 to 16 bytes per key.
    """

    def __init__(self, key: KeyColumns, runs: KeyRuns) -> None:
        self._key = key
        self._runs = runs
        self._slots = HashSlots(_SLOTS_PER_KEY * len(runs.hashes))
        self._slots.add(runs.hashes)

    def has(self, rows: pa.RecordBatch) -> np.ndarray:
        """Whether each row's key is in the set; bool array.

        :raises CorruptRecord: a key has a null.
        """
        found, maybe, _ = self._matches(rows)
        found[:] = False
        found[maybe] = True
        return found

    def places(self, rows: pa.RecordBatch) -> np.ndarray:
        """Which entry of the runs has each row's key, -1 for none; int64 array.

        :raises CorruptRecord: a key has a null.
        """
        _, maybe, at = self._matches(rows)
        found = np.full(rows.num_rows, -1, np.int64)
        found[maybe] = at
        return found

    def _matches(self, rows: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """An array of bools to use, the rows whose keys are in the set, and their entries."""
        columns = self._key.of(rows)
        hashes = self._key.hashes(columns, self._runs.seed)
        found = self._slots.has(hashes)  # most rows end here
        maybe = np.flatnonzero(found)
        wanted = hashes[maybe]
        at = np.searchsorted(self._runs.hashes, wanted)
        np.minimum(at, len(self._runs.hashes) - 1, out=at)
        hits = self._runs.hashes[at] == wanted
        maybe, at = maybe[hits], at[hits]
        if self._runs.columns:
            ours, theirs = pa.array(self._runs.last[at]), pa.array(maybe)
            same = same_values(
                [c.take(ours) for c in self._runs.columns], [c.take(theirs) for c in columns]
            )
            maybe, at = maybe[same], at[same]
        return found, maybe, at


class HashSlots:
    """A filter of the hashes that may have been added; one byte per slot."""

    def __init__(self, slots: int) -> None:
        """:param slots: number of slots, rounded up to a power of two."""
        bits = max(1, (slots - 1).bit_length())
        self._shift = np.uint64(64 - bits)
        self._used = np.zeros(1 << bits, bool)

    def add(self, hashes: np.ndarray) -> None:
        self._used[hashes >> self._shift] = True

    def has(self, hashes: np.ndarray) -> np.ndarray:
        """False if a hash was certainly not added; bool array."""
        found: np.ndarray = self._used[hashes >> self._shift]
        return found
