"""Whole rows that replace one another: the changes of all records of a batch at once.

Without a merge engine a record takes the place of whatever is there. So what it replaces is the
record before it that has the same key, or else the stored row, and nothing need be played through.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sluice.server.tablet.kv_rows import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE

NO_ROW = -1
"""In the place of a row's number."""


@dataclass(frozen=True, slots=True)
class Changes:
    """``types`` (uint8) and ``rows`` (int64): what to log, in order. ``last``: see below."""

    types: np.ndarray
    rows: np.ndarray
    last: np.ndarray
    """The row of each key when all is done (int64)."""


def replacing(keys: np.ndarray, rows: np.ndarray, stored: np.ndarray, *, is_wal: bool) -> Changes:
    """What records do to rows; rows are told by numbers.

    :param keys: the key of each record: numbers from 0 in the order of their first appearance.
    :param rows: the row of each record; none where it deletes.
    :param stored: the stored row of each key.
    :param is_wal: logs no rows before, and every upsert as an update.
    """
    last = np.full(len(stored), NO_ROW, np.int64)
    last[keys] = rows  # of a key that comes twice the later one stays
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
    """The row that each record finds under its key."""
    old: np.ndarray = stored[keys]
    if len(stored) == len(keys):  # every key comes once
        return old
    order = np.argsort(keys, kind="stable")
    again = keys[order[1:]] == keys[order[:-1]]
    old[order[1:][again]] = rows[order[:-1][again]]
    return old
