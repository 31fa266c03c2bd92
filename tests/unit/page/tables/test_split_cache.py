"""Splits of a table are read once for all who look at it within some seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from sluice.errors import RequestTimeOut, TableNotExist
from sluice.model import TablePath
from sluice.page.tables import split_cache
from sluice.page.tables.split_cache import KEPT_MAX, KEPT_S, Asked, SplitCache
from sluice.page.tables.splits import FoundSplits
from tests.support.programs.processes import wait_for
from tests.support.statuses.status_shop import OwnClock

ORDERS = Asked(TablePath("shop", "orders"), 0, 100)


def counted(reads: list[int]) -> Callable[[], FoundSplits]:
    def read() -> FoundSplits:
        reads.append(len(reads))
        return FoundSplits((), len(reads), True, None)

    return read


def test_an_answer_is_given_again_for_some_seconds_with_its_age() -> None:
    clock, reads = OwnClock(), list[int]()
    cache, first_ms = SplitCache(clock), clock.ms
    assert cache.of(ORDERS, counted(reads))[1] == first_ms
    clock.ms += round(KEPT_S * 1000) - 1
    found, read_ms = cache.of(ORDERS, counted(reads))
    assert (found.total, read_ms, len(reads)) == (1, first_ms, 1)
    assert cache.of(ORDERS._replace(offset=100), counted(reads))[0].total == 2
    clock.ms += 1
    found, read_ms = cache.of(ORDERS, counted(reads))
    assert (found.total, read_ms) == (3, clock.ms)


def test_those_who_ask_at_the_same_time_wait_for_one_read() -> None:
    cache, reads, goes_on = SplitCache(OwnClock()), list[int](), threading.Event()
    waits = threading.Semaphore(0)

    def slow() -> FoundSplits:
        waits.release()
        assert goes_on.wait(60)
        return counted(reads)()

    with ThreadPoolExecutor(4) as viewers:
        first = viewers.submit(cache.of, ORDERS, slow)
        assert waits.acquire(timeout=60)
        others = [viewers.submit(cache.of, ORDERS, slow) for _ in range(3)]
        wait_for("the others to begin", lambda: all(one.running() for one in others))
        goes_on.set()
        assert {one.result(60)[0].total for one in (first, *others)} == {1}


def test_nobody_waits_long_for_the_read_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_cache, "WAIT_S", 0.05)
    cache, begins, goes_on = SplitCache(OwnClock()), threading.Event(), threading.Event()

    def slow() -> FoundSplits:
        begins.set()
        assert goes_on.wait(60)
        return counted([])()

    with ThreadPoolExecutor(1) as viewer:
        first = viewer.submit(cache.of, ORDERS, slow)
        assert begins.wait(60)
        with pytest.raises(RequestTimeOut, match=r"shop\.orders are still being read"):
            cache.of(ORDERS, slow)
        goes_on.set()
        assert first.result(60)[0].total == 1


def test_a_failure_is_told_and_not_kept() -> None:
    cache = SplitCache(OwnClock())

    def fail() -> FoundSplits:
        raise TableNotExist("no table")

    with pytest.raises(TableNotExist, match="no table"):
        cache.of(ORDERS, fail)
    assert cache.of(ORDERS, counted([]))[0].total == 1


def test_the_newest_answers_are_kept() -> None:
    cache, reads = SplitCache(OwnClock()), list[int]()
    pages = [ORDERS._replace(offset=number) for number in range(3 * KEPT_MAX)]
    for each in pages:
        cache.of(each, counted(reads))
    reads.clear()
    for each in pages[: -KEPT_MAX - 1 : -1]:
        cache.of(each, counted(reads))
    assert reads == []
    cache.of(pages[-KEPT_MAX - 1], counted(reads))
    assert len(reads) == 1
