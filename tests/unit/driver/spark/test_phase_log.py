"""The log of a round's phases: one line each, with the table's name, rows and rates."""

import logging

import pytest

from sluice.driver.spark.phase_log import PhaseLog


def test_each_phase_is_a_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sluice.driver.spark.phase_log")
    now = [0.0]
    log = PhaseLog("shop.orders", lambda: now[0])
    log.phase("recover")
    now[0] = 0.25
    log.phase("plan")
    log.planned(1, 1_200_000)
    now[0] = 0.5
    log.phase("copy")
    log.copied_by = "executors"
    log.copied(7)
    now[0] = 2.5
    log.phase("prepare")
    now[0] = 2.75
    log.phase("lake_commit")
    assert caplog.messages == [
        "shop.orders: recover took 0.25 s",
        "shop.orders: plan took 0.25 s: 1,200,000 offsets in 1 split",
        "shop.orders: copy took 2.00 s: 1,200,000 offsets by executors, 600,000 a second",
        "shop.orders: prepare took 0.25 s",
    ]


def test_no_rate_of_a_time_that_is_too_short_to_tell(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sluice.driver.spark.phase_log")
    log = PhaseLog("shop.orders", lambda: 1.0)
    log.phase("recover")
    log.phase("plan")
    log.planned(2, 10)
    log.phase("copy")
    log.phase("prepare")
    log.phase("lake_commit")
    assert caplog.messages == [
        "shop.orders: plan took 0.00 s: 10 offsets in 2 splits",
        "shop.orders: copy took 0.00 s: 10 offsets",
    ]
