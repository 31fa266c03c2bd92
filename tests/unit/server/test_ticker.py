"""Work in the background: it goes on after an error, and ends with a stop."""

from __future__ import annotations

import queue
import threading

import pytest

from sluice.errors import StorageError
from sluice.server.ticker import Ticker


@pytest.mark.parametrize("error", [StorageError("full"), ZeroDivisionError("oops")])
def test_a_tick_that_fails_is_logged_and_the_next_one_comes(
    error: Exception, capfd: pytest.CaptureFixture[str]
) -> None:
    ticks: queue.SimpleQueue[int] = queue.SimpleQueue()

    def tick() -> None:
        ticks.put(1)
        raise error

    ticker = Ticker("some-work", tick)
    ticker.start(1)
    for _ in range(3):
        ticks.get(timeout=60)
    ticker.stop(60)
    logged = "".join(capfd.readouterr())
    assert "some-work" in logged
    assert str(error) in logged


def test_a_stop_waits_for_a_tick_but_not_longer_than_it_may() -> None:
    begun, go_on = threading.Event(), threading.Event()
    stopping: list[bool] = []

    def tick() -> None:
        begun.set()
        assert go_on.wait(60)
        stopping.append(ticker.is_stopping)

    ticker = Ticker("slow-work", tick)
    ticker.start(1)
    assert begun.wait(60)
    ticker.stop(0.01)
    assert not stopping, "it still runs"
    go_on.set()
    ticker.stop()
    assert stopping == [True], "no other tick has begun"


def test_without_a_start_or_an_interval_there_is_nothing_to_wait_for() -> None:
    Ticker("none", lambda: None).stop()
    never = Ticker("never", lambda: pytest.fail("it ticks"))
    never.start(0)
    never.stop()
