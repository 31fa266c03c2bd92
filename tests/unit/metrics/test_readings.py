"""Reads of a cluster that are slow, fail, or are shared by several scrapes."""

from __future__ import annotations

import logging
import threading
import time

import pytest

from sluice.errors import NetworkError
from sluice.metrics.readings import CachedReadings, ClusterCollector, ClusterState, read_once

NOTHING = ClusterState((), None, 0)
LONG_S = 60.0


def test_scrapes_share_a_read() -> None:
    reads = []

    def read() -> ClusterState:
        reads.append(1)
        return NOTHING

    shared = CachedReadings(read, cache_s=LONG_S, timeout_s=LONG_S)
    assert [shared.reading().state for _ in range(3)] == [NOTHING] * 3
    assert len(reads) == 1
    each = CachedReadings(read, cache_s=0, timeout_s=LONG_S)
    assert [each.reading().state for _ in range(3)] == [NOTHING] * 3
    assert len(reads) == 4


def test_a_read_that_takes_too_long_serves_the_next_caller() -> None:
    answers, reads = threading.Event(), []

    def read() -> ClusterState:
        reads.append(1)
        assert answers.wait(LONG_S)
        return NOTHING

    readings = CachedReadings(read, cache_s=LONG_S, timeout_s=0.02)
    slow = readings.reading()
    assert (slow.state, slow.error) == (None, "no complete answer within 0.02 s")
    assert readings.reading() is slow
    answers.set()
    deadline = time.monotonic() + LONG_S
    while readings.reading().state is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert (readings.reading().error, len(reads)) == (None, 1)


def test_failures_are_logged_when_they_begin_and_end(caplog: pytest.LogCaptureFixture) -> None:
    failing = [True, True, False, False]

    def read() -> ClusterState:
        if failing.pop(0):
            raise NetworkError("token=planted is refused", sent=False)
        return NOTHING

    collector = ClusterCollector(lambda: read_once(read))
    with caplog.at_level(logging.WARNING, "sluice.metrics"):
        pages = [list(collector.collect()) for _ in range(4)]
    assert [page[0].samples[0].value for page in pages] == [0, 0, 1, 1]
    assert [record.getMessage() for record in caplog.records] == [
        "the cluster cannot be read: NetworkError: token=*** is refused",
        "the cluster can be read again",
    ]
