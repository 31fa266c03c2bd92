"""Whole rows that replace one another, all at once, against the same played through one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sluice.server.tablet.kv.full_rows import NO_ROW, replacing
from sluice.server.tablet.kv.rows import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE

Logged = list[tuple[int, int]]


def one_by_one(
    keys: list[int], rows: list[int], stored: list[int], *, is_wal: bool
) -> tuple[Logged, list[int]]:
    """Change type and row of each line of the log, and the rows in the end."""
    now, logged = list(stored), Logged()
    for key, row in zip(keys, rows, strict=True):
        old, now[key] = now[key], row
        if row == NO_ROW:
            logged += [(DELETE, old)] if old != NO_ROW else []
        elif is_wal:
            logged.append((UPDATE_AFTER, row))
        elif old == NO_ROW:
            logged.append((INSERT, row))
        else:
            logged += [(UPDATE_BEFORE, old), (UPDATE_AFTER, row)]
    return logged, now


@given(
    st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=20),
    st.lists(st.booleans(), min_size=6, max_size=6),
    st.booleans(),
)
def test_all_at_once_is_one_by_one(
    records: list[tuple[int, bool]], has_stored: list[bool], is_wal: bool
) -> None:
    numbers = {key: number for number, key in enumerate(dict.fromkeys(k for k, _ in records))}
    keys = [numbers[key] for key, _ in records]
    rows, given_rows = [], 0
    for _, is_delete in records:
        rows.append(NO_ROW if is_delete else given_rows)
        given_rows += not is_delete
    stored = [100 + key if has_stored[key] else NO_ROW for key in numbers]
    expected, last = one_by_one(keys, rows, stored, is_wal=is_wal)
    found = replacing(
        np.array(keys, np.int32),
        np.array(rows, np.int64),
        np.array(stored, np.int64),
        is_wal=is_wal,
    )
    assert list(zip(found.types.tolist(), found.rows.tolist(), strict=True)) == expected
    assert found.last.tolist() == last
    assert found.types.dtype == np.uint8
