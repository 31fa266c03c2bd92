"""Steps of a stop within a time, of which some hang."""

from __future__ import annotations

import threading
import time

import pytest

from sluice.clock import SystemClock
from sluice.server.time_limit import TimeLimit

PATIENCE_S = 10.0


def test_without_a_limit_all_steps_run_in_order() -> None:
    done: list[int] = []
    assert TimeLimit(None, SystemClock()).run(lambda: done.append(1), lambda: done.append(2))
    assert done == [1, 2]


def test_a_step_that_hangs_is_left_behind() -> None:
    hangs, after = threading.Event(), threading.Event()
    limit = TimeLimit(0.1, SystemClock())
    began = time.monotonic()
    assert not limit.run(lambda: hangs.wait(60), after.set)
    assert time.monotonic() - began < PATIENCE_S
    assert not after.is_set()
    assert limit.left_s() == 0
    hangs.set()


def test_items_go_on_beside_one_that_hangs_and_those_left_are_counted() -> None:
    hangs, done = threading.Event(), list[int]()

    def action(item: int) -> None:
        if item == 0:
            hangs.wait(60)
        else:
            done.append(item)

    assert TimeLimit(0.3, SystemClock()).each(range(20), action, 2) == 1
    assert done == list(range(1, 20))
    hangs.set()


def test_no_item_begins_after_the_time() -> None:
    limit, done = TimeLimit(0, SystemClock()), list[int]()
    assert limit.each(range(5), done.append, 2) == 5
    assert not done


def test_an_error_is_raised_after_the_others_have_run() -> None:
    done: list[int] = []

    def action(item: int) -> None:
        if item == 1:
            raise ValueError("one")
        done.append(item)

    with pytest.raises(ValueError, match="one"):
        TimeLimit(None, SystemClock()).each(range(5), action, 2)
    assert sorted(done) == [0, 2, 3, 4]
