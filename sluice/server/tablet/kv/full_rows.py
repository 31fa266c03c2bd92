"""Computes the changes of complete rows that replace one another, for all records at once.

Without a merge engine, a record replaces the previous record with the same key, or else the stored
row. So the records need not be processed one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sluice.server.tablet.kv.rows import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE

NO_ROW = -1
"""In the place of a row's number."""


@dataclass(frozen=True, slots=True)
class Changes:
    """``types`` (uint8) and ``rows`` (int64): what to log, in order. ``last``: see below."""

    types: np.ndarray
    rows: np.ndarray
    last: np.ndarray
    """The final row of each key (int64)."""


def replacing(keys: np.ndarray, rows: np.ndarray, stored: np.ndarray, *, is_wal: bool) -> Changes:
    """Computes the changes of records to rows, which are identified by numbers.

    :param keys: the key of each record: numbers from 0 in the order of their first appearance.
    :param rows: the row of each record; NO_ROW for a delete.
    :param stored: the stored row of each key.
    :param is_wal: whether to log no old rows, and every upsert as an update.
    """
    last = np.full(len(stored), NO_ROW, np.int64)
    last[keys] = rows  # the last record of a key wins
    old = _replaced(keys, rows, stored)
    there, was_there = rows != NO_ROW, old != NO_ROW
    deletes = ~there & was_there
    updates = there & (was_there | is_wal)
    inserts = there & ~updates
    befores = updates & (not is_wal)
    counts = deletes.astype(np.int64) + there + befores
    at = np.cumsum(counts) - counts
    total = int(counts.sum())
    types, logged = np.empty(total, np.uint8), np.empty(total, np.int64)
    after = at + befores
    for kind, which, where, what in (
        (DELETE, deletes, at, old),
        (INSERT, inserts, at, rows),
        (UPDATE_BEFORE, befores, at, old),
        (UPDATE_AFTER, updates, after, rows),
    ):
        places = where[which]
        types[places], logged[places] = kind, what[which]
    return Changes(types, logged, last)


def _replaced(keys: np.ndarray, rows: np.ndarray, stored: np.ndarray) -> np.ndarray:
    """The row that each record replaces."""
    old: np.ndarray = stored[keys]
    if len(stored) == len(keys):  # every key occurs once
        return old
    order = np.argsort(keys, kind="stable")
    again = keys[order[1:]] == keys[order[:-1]]
    old[order[1:][again]] = rows[order[:-1][again]]
    return old
