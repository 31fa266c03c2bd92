"""Idempotent writers of one bucket, against a model that remembers everything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.errors import DuplicateSequence, OutOfOrderSequence
from sluice.server.tablet.logs import writers
from sluice.server.tablet.logs.writers import EXPIRATION_MS, RETAINED_BATCHES, WriterStates

SENDS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12)), max_size=120)


@given(SENDS)
def test_every_sequence_is_stored_once_and_in_order(sends: list[tuple[int, int]]) -> None:
    states = WriterStates()
    stored: dict[int, list[int]] = {}  # writer -> offsets by sequence
    for offset, (writer, sequence) in enumerate(sends):
        offsets = stored.setdefault(writer, [])
        try:
            found = states.check(writer, sequence)
        except OutOfOrderSequence:
            assert sequence > len(offsets)
            continue
        except DuplicateSequence:
            assert sequence < len(offsets) - RETAINED_BATCHES
            continue
        if found is None:
            assert sequence == len(offsets)
            states.record(writer, sequence, offset, 0)
            offsets.append(offset)
        else:
            assert found == offsets[sequence]
            assert sequence >= len(offsets) - RETAINED_BATCHES


def test_sequences_wrap_around() -> None:
    states = WriterStates()
    states.record(1, 2**31 - 1, 10, 0)
    assert states.check(1, 0) is None
    states.record(1, 0, 11, 0)
    assert states.check(1, 2**31 - 1) == 10
    assert states.check(1, 1) is None


def test_silent_writers_expire() -> None:
    states = WriterStates()
    states.record(1, 0, 0, 1_000)
    states.record(2, 0, 1, 5_000)
    states.expire(1_000 + EXPIRATION_MS)
    assert len(states) == 1
    with pytest.raises(OutOfOrderSequence):
        states.check(1, 1)
    assert states.check(2, 1) is None


def test_writers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "WRITERS_MAX", 3)
    states = WriterStates()
    for writer in (1, 2, 3):
        states.record(writer, 0, 0, 0)
    states.record(1, 1, 0, 0)
    states.record(4, 0, 0, 0)  # the one silent longest is 2
    assert len(states) == 3
    assert states.check(1, 2) is None
    with pytest.raises(OutOfOrderSequence):
        states.check(2, 1)
