"""Strangers' doings are logged at a bounded rate."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.wire.listeners.refusals import DETAIL_CHARS_MAX, LOGGED_MAX, WINDOW_S, RefusalLog
from tests.support.harness.owned_clock import MonotonicClock


class Lines:
    """Stands for structlog's logger: keeps what it would write."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def warning(self, kind: str, **details: Any) -> None:
        self.lines.append((kind, details))


@pytest.fixture
def lines() -> Lines:
    return Lines()


@pytest.fixture
def clock() -> MonotonicClock:
    return MonotonicClock()


def test_a_flood_of_one_kind_is_counted(lines: Lines, clock: MonotonicClock) -> None:
    log = RefusalLog(lines, clock)
    for _ in range(1_000):
        log.warning("call refused", peer="a")
    assert lines.lines == [("call refused", {"peer": "a"})] * LOGGED_MAX
    log.warning("login refused", peer="b")  # of another kind
    assert len(lines.lines) == LOGGED_MAX + 1
    clock.now_s += WINDOW_S
    log.warning("call refused", peer="a")
    log.warning("call refused", peer="a")
    left_out = 1_000 - LOGGED_MAX
    assert lines.lines[-2:] == [
        ("call refused", {"peer": "a", "left_out_before": left_out}),
        ("call refused", {"peer": "a"}),
    ]
    log.flush()
    assert len(lines.lines) == LOGGED_MAX + 3


def test_the_end_of_a_listener_counts_what_was_left_out(
    lines: Lines, clock: MonotonicClock
) -> None:
    log = RefusalLog(lines, clock)
    for _ in range(LOGGED_MAX + 5):
        log.warning("call refused")
    log.flush()
    log.flush()
    assert lines.lines[LOGGED_MAX:] == [
        ("call refused, more often than was logged", {"left_out": 5})
    ]


def test_a_long_text_is_cut(lines: Lines, clock: MonotonicClock) -> None:
    RefusalLog(lines, clock).warning("call refused", error="word " * 10_000, count=7)
    ((_, details),) = lines.lines
    assert details == {"error": "word " * (DETAIL_CHARS_MAX // 5) + "...", "count": 7}
